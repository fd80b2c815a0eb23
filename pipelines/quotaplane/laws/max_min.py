"""Weighted max-min fairness with floors: the default law."""

from __future__ import annotations

import numpy as np

from quotaplane.laws.blocks import in_blocks
from quotaplane.laws.problem import Allocation, Problem
from quotaplane.laws.reason import Reason, ReasonArray
from quotaplane.laws.segments import Segments, overshooting, scale_down
from quotaplane.laws.water import water_level
from quotaplane.model import BoolArray, FloatArray


@in_blocks
def max_min(problem: Problem) -> Allocation:
    """Fill every broker like a vessel, as wide as its weight, from one common level.

    ``limit = max(floor, min(demand, weight * level))`` with the level at which the limits add up
    to the quota. When everything fits (floors and demands together stay under the quota) each
    broker has ``max(floor, demand)`` and the spare is given back by weight on top, so that the
    limits still add up to the quota and nobody who wakes finds nothing. Floors that exceed the
    quota are cut in proportion. Nobody's limit can be raised without lowering that of a broker
    which has less (per weight) or is held by its floor.

    Conserving, in floating point too: however the limits are added up, the sum never exceeds the
    quota. Against exact arithmetic each is off by less than 1e-9 of the quota.

    Source: max-min fairness by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2).

    >>> from quotaplane.laws import one_group
    >>> max_min(one_group(120, demand=[8, 32, 38, 44])).limits
    array([ 8., 32., 38., 42.])
    >>> max_min(one_group(100, demand=[500, 500, 500], floor=[60, 0, 0])).limits
    array([60., 20., 20.])
    >>> max_min(one_group(120, demand=[10, 20])).limits  # 90 to spare
    array([55., 65.])
    """
    rows = Segments(problem.starts)
    limited = np.isfinite(problem.quota)
    quota = problem.quota if limited.all() else np.where(limited, problem.quota, 0.0)
    weight = None if (problem.weight == 1.0).all() else problem.weight
    quota_of_row = rows.spread(quota)
    # A demand beyond the whole quota can't matter, and finite numbers are easier to add.
    high = np.minimum(problem.demand, quota_of_row)
    low, cut = None, None
    if problem.floor.any():
        low, cut = _fitting_floors(rows, problem.floor, quota)
        high = np.maximum(high, low)

    want = rows.total(high)
    fits = want <= quota * (1.0 - rows.slack)
    slope = rows.counts.astype(np.float64) if weight is None else rows.total(weight)
    level = np.divide(quota - want, slope, out=np.zeros(rows.groups), where=slope > 0)
    tight = ~fits
    if tight.all():
        level, slope = water_level(rows, quota, weight, low, high)
    elif tight.any():
        some, at = rows.keep(tight)
        level[tight], slope[tight] = water_level(
            some,
            quota[tight],
            None if weight is None else weight[at],
            None if low is None else low[at],
            high[at],
        )

    limits = _filled(rows, level, fits, weight, low, high)
    over = overshooting(rows, limits, quota)
    if over.any():
        # Rounding is paid for by those who are filled to the level, not by the satisfied.
        margin = np.where(over, quota * rows.slack, 0.0)
        margin = np.divide(margin, slope, out=np.zeros(rows.groups), where=slope > 0)
        level = np.maximum(level - margin, 0.0)
        limits = _filled(rows, level, fits, weight, low, high)
        still = over & (rows.total(limits) > quota * (1.0 - rows.slack / 2))
        if still.any():
            limits = scale_down(rows, limits, quota, still)
    reasons = _reasons(rows, problem, limits, fits, low, cut, quota)
    if not limited.all():
        unlimited = ~rows.spread(limited)
        limits[unlimited] = np.inf
        reasons[unlimited] = Reason.UNLIMITED
    return Allocation(limits, reasons)


def _fitting_floors(
    rows: Segments, floor: FloatArray, quota: FloatArray
) -> tuple[FloatArray, BoolArray | None]:
    """Floors that fit their quotas, and which groups' floors had to be cut for that."""
    total = rows.total(floor)
    cut = total > quota
    if not cut.any():
        return floor, None
    factor = np.ones(rows.groups)
    np.divide(quota, total, out=factor, where=cut)
    return floor * rows.spread(factor), cut


def _filled(
    rows: Segments,
    level: FloatArray,
    fits: BoolArray,
    weight: FloatArray | None,
    low: FloatArray | None,
    high: FloatArray,
) -> FloatArray:
    """Limits for a level: on top of the demand where all fits, else between floor and demand."""
    filled: FloatArray = rows.spread(level)
    if weight is not None:
        filled *= weight
    if fits.all():
        filled += high
        return filled
    # Arithmetic instead of masks: several times faster where the two kinds alternate.
    np.minimum(filled, high + rows.spread(np.where(fits, np.inf, 0.0)), out=filled)
    if fits.any():
        filled += high * rows.spread(fits)
    return filled if low is None else np.maximum(filled, low, out=filled)


def _reasons(
    rows: Segments,
    problem: Problem,
    limits: FloatArray,
    fits: BoolArray,
    low: FloatArray | None,
    cut: BoolArray | None,
    quota: FloatArray,
) -> ReasonArray:
    demand = problem.demand
    satisfied = limits >= demand
    table = np.array([Reason.FAIR_SHARE, Reason.DEMAND, Reason.FAIR_SHARE, Reason.HEADROOM])
    reasons: ReasonArray = table.astype(np.uint8).take(rows.spread(fits) * np.uint8(2) + satisfied)
    if low is not None:
        held = (low > 0) & ((limits <= low) | (low > demand))
        reasons[held] = Reason.FLOOR
    if cut is not None:
        reasons[rows.spread(cut)] = Reason.FLOORS_CUT
    if not quota.all():
        reasons[rows.spread(quota == 0)] = Reason.NO_QUOTA
    return reasons
