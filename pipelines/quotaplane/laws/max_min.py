"""Weighted max-min fairness with floors, ceilings and priorities: the default law."""

from __future__ import annotations

import numpy as np

from quotaplane.laws.blocks import in_blocks
from quotaplane.laws.filling import Vessels, by_priority, filled, spare_level
from quotaplane.laws.problem import Allocation, Problem
from quotaplane.laws.reason import Reason, ReasonArray
from quotaplane.laws.segments import Segments, overshooting, scale_down
from quotaplane.laws.water import water_level
from quotaplane.model import BoolArray, FloatArray, IntArray


@in_blocks
def max_min(problem: Problem) -> Allocation:
    """Divide each quota by weighted max-min fairness (water-filling).

    ``limit = max(floor, min(demand, ceiling, weight * level))``, with the level at which the limits
    add up to the quota. No limit can be raised without lowering that of a broker that has less (per
    weight), a higher priority, or only its floor. In this order:

    1. Floors are lower bounds on limits (not extra on top) for any demand and priority. A floor
       above its own ceiling is cut to the ceiling; floors that together exceed the quota are cut
       in proportion.
    2. Demands of the highest priority, each up to ``min(demand, ceiling)``, are met from what the
       floors of the others leave; then those of the next priority from the rest.
    3. If all demands fit, the spare is given on top, by weight and not by priority, to all
       brokers below their ceilings; what no broker may take stays unallocated. So without ceilings
       the limits always add up to the quota, and a broker that becomes busy has a limit to use.

    Conserving, in floating point too: in any order of addition, the limits never exceed
    the quota. The error of each limit is below 1e-9 of the quota, for weights from 1e-9 to 1e9; at
    most ``2 * Segments.slack`` of the quota is left over.

    Source: max-min fairness by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2).

    >>> from quotaplane.laws import one_group
    >>> max_min(one_group(120, demand=[8, 32, 38, 44])).limits
    array([ 8., 32., 38., 42.])
    >>> max_min(one_group(100, demand=[500, 500, 500], floor=[60, 0, 0])).limits
    array([60., 20., 20.])
    >>> max_min(one_group(120, demand=[10, 20])).limits  # 90 to spare
    array([55., 65.])
    >>> max_min(one_group(120, demand=[10, 20, 90], ceiling=[12, np.inf, 40])).limits
    array([12., 68., 40.])
    >>> max_min(one_group(100, demand=[70, 50, 50], priority=[1, 0, 0])).limits
    array([70., 15., 15.])
    """
    rows = Segments(problem.starts)
    limited = np.isfinite(problem.quota)
    quota = problem.quota if limited.all() else np.where(limited, problem.quota, 0.0)
    vessels, level, slope = _fill(problem, rows, quota)
    limits = filled(vessels, level)
    total = rows.total(limits)
    over = overshooting(rows, limits, total, quota)
    if over.any():
        # Brokers at the level absorb rounding errors, not those whose demand is met.
        margin = np.where(over, quota * (1.0 - rows.safe_part), 0.0)
        margin = np.divide(margin, slope, out=np.zeros(rows.groups), where=slope > 0)
        level = np.maximum(level - margin, 0.0)
        limits = filled(vessels, level)
        total = rows.total(limits)
    # That fails if it moves a broker off its bound that weighs far more than those at the level, or
    # if bounds fix all of them. These few groups are solved again for a slightly smaller quota.
    off = over & (total > quota * (1.0 - rows.slack / 2))
    off |= (total < quota * (1.0 - rows.slack)) & np.isfinite(level) & (rows.counts > 0)
    if off.any():
        limits = _for_less(problem, rows, quota, limits, off)
    reasons = _reasons(problem, vessels, limits)
    if not quota.all():
        reasons[rows.spread(quota == 0)] = Reason.NO_QUOTA
    if not limited.all():
        unlimited = ~rows.spread(limited)
        limits[unlimited] = np.inf
        reasons[unlimited] = Reason.UNLIMITED
    return Allocation(limits, reasons)


def _fill(
    problem: Problem, rows: Segments, quota: FloatArray
) -> tuple[Vessels, FloatArray, FloatArray]:
    """The vessels, and each group's level and units per unit of level, both (g,).

    Limits at these levels add up to the quota, except for rounding.
    """
    weight = None if (problem.weight == 1.0).all() else problem.weight
    ceiling = problem.ceiling
    if ceiling is not None and np.isinf(ceiling).all():
        ceiling = None
    # Bound demands at twice the quota: they are never met, and finite numbers are easier to add. At
    # the quota itself they would count as met if one broker gets all of it.
    high = np.minimum(problem.demand, rows.spread(2.0 * quota))
    if ceiling is not None:
        np.minimum(high, ceiling, out=high)
    low, full, cut = None, None, None
    if problem.floor.any():
        floor = problem.floor if ceiling is None else np.minimum(problem.floor, ceiling)
        low, full, cut = _fitting_floors(rows, floor, quota)
        high = np.maximum(high, low)

    want = rows.total(high)
    fits = want <= quota * (1.0 - rows.slack)
    slope = rows.counts.astype(np.float64) if weight is None else rows.total(weight)
    level = np.divide(quota - want, slope, out=np.zeros(rows.groups), where=slope > 0)
    vessels = Vessels(rows, fits, weight, low, high, ceiling, cut)
    if ceiling is not None:
        spare_level(vessels, quota - want, level, slope)
    tight = ~fits
    if full is not None:
        tight &= ~full
        level[full], slope[full] = 0.0, 0.0
    if tight.any():
        available = _safe_quota(rows, high, want, quota, tight & (want <= quota))
        _level_of_tight(vessels, tight, problem.priority, available, level, slope)
    return vessels, level, slope


def _for_less(
    problem: Problem, rows: Segments, quota: FloatArray, limits: FloatArray, groups: BoolArray
) -> FloatArray:
    """The limits, with those of the chosen groups solved again for a slightly smaller quota."""
    some, at = rows.keep(groups)
    starts = np.concatenate([[0], np.cumsum(some.counts)])
    part, part_quota = problem.part(starts, groups, at), quota[groups]
    vessels, level, _ = _fill(part, some, part_quota * (1.0 - some.slack))
    new_limits = filled(vessels, level)
    over = some.total(new_limits) > part_quota * (1.0 - some.slack / 2)
    limits[at] = scale_down(some, new_limits, part_quota, over) if over.any() else new_limits
    return limits


def _fitting_floors(
    rows: Segments, floor: FloatArray, quota: FloatArray
) -> tuple[FloatArray, BoolArray | None, BoolArray | None]:
    """Floors cut to fit, which groups' quotas they fill (g,), and which had to be cut (g,)."""
    total = rows.total(floor)
    full = total > quota * (1.0 - rows.slack)
    if not full.any():
        return floor, None, None
    factor = np.ones(rows.groups)
    np.divide(quota, total, out=factor, where=total > quota)
    low = floor * rows.spread(factor)
    safe = _safe_quota(rows, low, rows.total(low), quota, full)
    low *= rows.spread(np.divide(safe, quota, out=factor, where=quota > 0))
    # A group in a tree may get its floors less a rounding error: that does not count as cut.
    return low, full, total > quota * (1.0 + 1e-9)


def _safe_quota(
    rows: Segments, limits: FloatArray, total: FloatArray, quota: FloatArray, groups: BoolArray
) -> FloatArray:
    """(g,) the quotas, reduced by a rounding error in chosen groups whose limits need it."""
    if not groups.any():
        return quota
    some, at = rows.keep(groups)
    part = np.ones(rows.groups)
    over = overshooting(some, limits[at], total[groups], quota[groups])
    part[groups] = np.where(over, some.safe_part, 1.0)
    return quota * part


def _level_of_tight(
    vessels: Vessels,
    tight: BoolArray,
    priority: IntArray | None,
    available: FloatArray,
    level: FloatArray,
    slope: FloatArray,
) -> None:
    """Set level and slope of the groups whose demands don't fit into ``available``."""
    rows, weight, low, high = vessels.rows, vessels.weight, vessels.low, vessels.high
    if priority is not None and (priority != priority[0]).any():
        available, rising = by_priority(vessels, priority, available)
        level[tight], slope[tight] = 0.0, 0.0
        rising &= rows.spread(tight)
        tight = tight & (rows.total(rising) > 0)
        some, at = rows.pick(rising, tight)
    elif tight.all():
        level[:], slope[:] = water_level(rows, available, weight, low, high)
        return
    else:
        some, at = rows.keep(tight)
    level[tight], slope[tight] = water_level(
        some,
        available[tight],
        None if weight is None else weight[at],
        None if low is None else low[at],
        high[at],
    )


def _reasons(problem: Problem, vessels: Vessels, limits: FloatArray) -> ReasonArray:
    rows, low, ceiling, demand = vessels.rows, vessels.low, vessels.ceiling, problem.demand
    satisfied = limits >= demand * (1.0 - 1e-12)  # tolerate rounding errors
    table = np.array([Reason.FAIR_SHARE, Reason.DEMAND, Reason.FAIR_SHARE, Reason.HEADROOM])
    fits = rows.spread(vessels.fits)
    reasons: ReasonArray = table.astype(np.uint8).take(fits * np.uint8(2) + satisfied)
    if vessels.waiting is not None:
        reasons[vessels.waiting & ~satisfied] = Reason.PRIORITY
    if low is not None:
        at_floor = (low > 0) & ((limits <= low) | (low > demand))
        reasons[at_floor] = Reason.FLOOR
    if ceiling is not None:
        reasons[(limits >= ceiling) & (fits | (demand > ceiling))] = Reason.CEILING
    if vessels.cut is not None:
        reasons[rows.spread(vessels.cut)] = Reason.FLOORS_CUT
    return reasons
