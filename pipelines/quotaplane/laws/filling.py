"""Turns a group's water level into its brokers' limits: bounds, spare quota, priorities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quotaplane.laws.segments import Segments
from quotaplane.laws.water import water_level
from quotaplane.model import BoolArray, FloatArray, IntArray


@dataclass(slots=True)
class Vessels:
    """The brokers of g groups, n rows, while their limits are computed; None means absent."""

    rows: Segments
    fits: BoolArray
    """(g,) the demands fit into the quota: the level is that of the spare, on top of demands."""
    weight: FloatArray | None
    """(n,); None: all 1."""
    low: FloatArray | None
    """(n,) floors, cut to fit; None: all 0."""
    high: FloatArray
    """(n,) upper bounds if the demands don't fit; not below ``low``."""
    ceiling: FloatArray | None = None
    """(n,) upper bounds for spare on top of ``high``; None: no bounds."""
    cut: BoolArray | None = None
    """(g,) the floors exceeded the quota by more than a rounding error; None: no group's did."""
    fixed: FloatArray | None = None
    """(n,) limits determined by priorities, not by the level; NaN: none."""
    waiting: BoolArray | None = None
    """(n,) only the floor is left, because brokers of higher priority take the rest."""


def filled(vessels: Vessels, level: FloatArray) -> FloatArray:
    """(n,) limits at levels (g,): on top of the demand if all fits, else within bounds."""
    rows, fits, high = vessels.rows, vessels.fits, vessels.high
    limits: FloatArray = rows.spread(level)
    if vessels.weight is not None:
        limits *= vessels.weight
    if fits.all():
        limits += high
        if vessels.ceiling is not None:
            np.minimum(limits, vessels.ceiling, out=limits)
        return limits
    # Arithmetic, not masks: several times faster if groups that fit and others alternate.
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
    if vessels.fixed is not None:
        np.copyto(limits, vessels.fixed, where=~np.isnan(vessels.fixed))
    return limits


def spare_level(
    vessels: Vessels,
    spare: FloatArray,
    level: FloatArray,
    slope: FloatArray,
) -> None:
    """Find the level of the spare in groups where all fits and ceilings exist.

    Args:
        vessels: rows, bounds, and which groups have spare.
        spare: (g,) quota that is left after all demands; read only where all fits.
        level: (g,) the level without ceilings; updated in place where a ceiling is lower. inf: all
            brokers are at their ceilings and some quota stays unallocated.
        slope: (g,) units per unit of level; updated likewise.
    """
    rows, weight = vessels.rows, vessels.weight
    assert vessels.ceiling is not None
    # Room above twice the spare never matters; where not all fits there is no spare.
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
    """Find the priority at which each group's quota ends; higher ones get their whole demand.

    Sets ``fixed`` and ``waiting`` in groups where not everything fits.

    Args:
        vessels: rows and bounds.
        priority: (n,); the loop is over distinct values.
        quota: (g,) finite.

    Returns:
        (g,) what is left for the brokers at that priority, including their floors, and (n,) which
        brokers these are.
    """
    rows, high = vessels.rows, vessels.high
    low = np.zeros(len(high)) if vessels.low is None else vessels.low
    above = high - low
    rest = np.maximum(quota - rows.total(low), 0.0)  # after all floors
    none_left = quota * rows.slack
    open_ = ~vessels.fits
    started = np.zeros(rows.groups, dtype=np.bool_)
    fixed = np.where(rows.spread(open_), low, np.nan)
    rising = np.zeros(len(high), dtype=np.bool_)
    waiting = np.zeros(len(high), dtype=np.bool_)
    for current in np.unique(priority)[::-1]:
        of_current = priority == current
        more = rows.total(above * of_current)
        # Leave at least a rounding error: some broker at the level must absorb it.
        served = open_ & ((more <= rest - none_left) | (more == 0))
        np.copyto(fixed, high, where=of_current & rows.spread(served))
        ends_here = open_ & ~served
        # Not for the highest priority: what other brokers' floors take is no matter of priority.
        shut_out = (~vessels.fits & ~open_) | (ends_here & started & (rest <= none_left))
        waiting |= of_current & rows.spread(shut_out)
        rising |= of_current & rows.spread(ends_here & ~shut_out)
        started |= served & (more > 0)
        rest = np.where(served, np.maximum(rest - more, 0.0), rest)
        open_ = served
    fixed[rising] = np.nan
    vessels.fixed, vessels.waiting = fixed, waiting
    return rest + rows.total(low * rising), rising
