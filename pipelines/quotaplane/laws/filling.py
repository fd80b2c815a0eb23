"""What the level of a group means for each of its brokers: bounds, room for spare, priorities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quotaplane.laws.segments import Segments
from quotaplane.laws.water import water_level
from quotaplane.model import BoolArray, FloatArray, IntArray


@dataclass(slots=True)
class Vessels:
    """The brokers of g groups, n rows in all, while they are filled; absent is None throughout."""

    rows: Segments
    fits: BoolArray
    """(g,) all that is wanted fits under the quota: the level is that of the spare, on top."""
    weight: FloatArray | None
    """(n,); None = all 1."""
    low: FloatArray | None
    """(n,) floors that fit; None = all 0."""
    high: FloatArray
    """(n,) what is filled at most while not everything fits; not below ``low``."""
    ceiling: FloatArray | None = None
    """(n,) up to which spare is filled on top of ``high``; None = no bound."""
    cut: BoolArray | None = None
    """(g,) whose floors exceeded the quota, by more than a rounding; None = nobody's."""
    held: FloatArray | None = None
    """(n,) what those have that no level moves, because of their priority; NaN = the others."""
    waiting: BoolArray | None = None
    """(n,) those who have only their floors because higher priorities leave nothing."""


def filled(vessels: Vessels, level: FloatArray) -> FloatArray:
    """(n,) limits at a level (g,): on top of what is wanted where all fits, else within bounds."""
    rows, fits, high = vessels.rows, vessels.fits, vessels.high
    limits: FloatArray = rows.spread(level)
    if vessels.weight is not None:
        limits *= vessels.weight
    if fits.all():
        limits += high
        if vessels.ceiling is not None:
            np.minimum(limits, vessels.ceiling, out=limits)
        return limits
    # Arithmetic instead of masks: several times faster where the two kinds alternate.
    if fits.any():
        limits += high * rows.spread(fits)
        if vessels.ceiling is None:
            np.minimum(limits, high + rows.spread(np.where(fits, np.inf, 0.0)), out=limits)
        else:
            np.minimum(limits, np.where(rows.spread(fits), vessels.ceiling, high), out=limits)
    else:
        np.minimum(limits, high, out=limits)
    if vessels.low is not None:
        np.maximum(limits, vessels.low, out=limits)
    if vessels.held is not None:
        np.copyto(limits, vessels.held, where=~np.isnan(vessels.held))
    return limits


def spare_level(
    vessels: Vessels,
    spare: FloatArray,
    level: FloatArray,
    slope: FloatArray,
) -> None:
    """Fill the spare of the groups in which all fits up to ceilings.

    Args:
        vessels: rows, bounds, and which groups have spare.
        spare: (g,) quota that nobody wants; only read where all fits.
        level: (g,) as if there were no ceilings; set anew where one is in the way. inf means that
            all are at their ceilings and something stays unallocated.
        slope: (g,) units per unit of level; likewise.
    """
    rows, weight = vessels.rows, vessels.weight
    assert vessels.ceiling is not None
    # More than all of the spare can't matter; where not all fits there is none.
    most = rows.spread(np.where(vessels.fits, 2.0 * spare, 0.0))
    room: FloatArray = np.minimum(vessels.ceiling - vessels.high, most)
    np.maximum(room, 0.0, out=room)
    share = rows.spread(level) if weight is None else weight * rows.spread(level)
    in_the_way = vessels.fits & (rows.total(room < share) > 0)
    if not in_the_way.any():
        return
    full = in_the_way & (rows.total(room) <= spare)
    level[full], slope[full] = np.inf, 0.0
    filling = in_the_way & ~full
    if filling.any():
        some, at = rows.keep(filling)
        level[filling], slope[filling] = water_level(
            some, spare[filling], None if weight is None else weight[at], None, room[at]
        )


def by_priority(
    vessels: Vessels, priority: IntArray, quota: FloatArray
) -> tuple[FloatArray, BoolArray]:
    """Find the priority that each group's quota ends in; those above have all they want.

    Sets ``held`` and ``waiting`` of the groups in which not everything fits.

    Args:
        vessels: rows and bounds.
        priority: (n,); the loop is over the distinct ones.
        quota: (g,) finite.

    Returns:
        (g,) what is left for the brokers that share the end of the quota, their own floors with
        it, and (n,) which brokers these are.
    """
    rows, high = vessels.rows, vessels.high
    low = np.zeros(len(high)) if vessels.low is None else vessels.low
    above = high - low
    rest = np.maximum(quota - rows.total(low), 0.0)  # what no floor takes
    none_left = quota * rows.slack
    open_ = ~vessels.fits
    started = np.zeros(rows.groups, dtype=np.bool_)
    held = np.where(rows.spread(open_), low, np.nan)
    rising = np.zeros(len(high), dtype=np.bool_)
    waiting = np.zeros(len(high), dtype=np.bool_)
    for this in np.unique(priority)[::-1]:
        of_this = priority == this
        more = rows.total(above * of_this)
        # All the quota but a rounding: somebody has to be at the level, to pay for it.
        served = open_ & ((more <= rest - none_left) | (more == 0))
        np.copyto(held, high, where=of_this & rows.spread(served))
        ends_here = open_ & ~served
        # Not for the first: what the floors of others take is no matter of priority.
        shut_out = (~vessels.fits & ~open_) | (ends_here & started & (rest <= none_left))
        waiting |= of_this & rows.spread(shut_out)
        rising |= of_this & rows.spread(ends_here & ~shut_out)
        started |= served & (more > 0)
        rest = np.where(served, np.maximum(rest - more, 0.0), rest)
        open_ = served
    held[rising] = np.nan
    vessels.held, vessels.waiting = held, waiting
    return rest + rows.total(low * rising), rising
