"""The laws of PIP-82, as the proposal describes them."""

from __future__ import annotations

from typing import Literal

import numpy as np

from quotaplane.laws.blocks import in_blocks
from quotaplane.laws.problem import Allocation, Problem
from quotaplane.laws.reason import Reason
from quotaplane.laws.segments import Segments
from quotaplane.laws.water import water_level
from quotaplane.model import BoolArray, FloatArray

Residual = Literal["each", "proportional"]
Reduction = Literal["proportional", "dominant"]


@in_blocks
def pip82(problem: Problem, residual: Residual, reduction: Reduction, steal: bool) -> Allocation:
    """PIP-82's quota adjustment: residual, reduction, and stealing.

    - Under the quota the residual ``quota - sum(usage)`` is split. ``each``: every broker adds all
      of it to its usage ("each adding the remaining 10 units"). ``proportional``: by usage, that
      is ``usage * quota / sum(usage)``; without any usage it is split evenly.
    - Over the quota usage is reduced to it. ``proportional``: every broker by the same fraction
      ("the corresponding fractional amount"), ``usage * quota / sum(usage)``. ``dominant``: the
      highest usage is reduced first ("trigger broker-1 to reduce its limit to 70"),
      ``min(usage, level)`` with the level at which they add up to the quota.
    - ``steal``: of the brokers that may be unfairly throttled (their demand exceeds their current
      limit), the one with the lowest limit steals from the one with the highest usage of all, the
      second lowest from the second highest, and so on. It goes half-way,
      ``own + (other - own) / 2``, both after reduction, unless it has more than that already. The
      dominant broker keeps its limit until the other's usage is reported. Brokers with equal limit
      and usage share the sum of what their ranks give.

    Not conserving, by design ("in the short term, this will lead to passing the set quota").
    At most ``1.5 * quota`` for residual ``proportional`` (``quota`` without stealing, but for
    rounding), ``n * quota`` for ``each`` (with n >= 2 brokers; ``max(sum(usage) + n * residual)``).
    Weights, floors, ceilings and priorities are not in the proposal and are ignored.

    Source: PIP-82, "Communications between brokers".

    >>> from quotaplane.laws import get_law, one_group
    >>> usage = one_group(100, usage=[10, 50, 30])
    >>> get_law("pip82", {"residual": "each"})(usage).limits
    array([20., 60., 40.])
    >>> get_law("pip82", {"residual": "proportional"})(usage).limits.round(2)
    array([11.11, 55.56, 33.33])
    >>> get_law("pip82")(one_group(100, usage=[80, 20], limit=[80, 20])).limits
    array([80., 50.])
    >>> get_law("pip82", {"reduction": "dominant"})(one_group(100, usage=[80, 30])).limits
    array([70., 30.])
    """
    rows = Segments(problem.starts)
    limited = np.isfinite(problem.quota)
    quota = np.where(limited, problem.quota, 0.0)
    usage = problem.usage
    total = rows.total(usage)
    over = total > quota
    over_rows = rows.spread(over)
    total_of_row = rows.spread(total)
    share = np.divide(usage, total_of_row, out=np.zeros(len(usage)), where=total_of_row > 0)
    in_proportion = share * rows.spread(quota)
    settled = np.where(over_rows, in_proportion, usage)
    if reduction == "dominant" and over.any():
        some, at = rows.keep(over)
        level, _ = water_level(some, quota[over], None, None, usage[at])
        settled[at] = np.minimum(usage[at], some.spread(level))
    rest = np.maximum(quota - total, 0.0)
    if residual == "each":
        limits = settled + rows.spread(rest)
    else:
        idle = np.divide(rest, rows.counts, out=np.zeros(rows.groups), where=rows.counts > 0)
        under = in_proportion + rows.spread(np.where(total > 0, 0.0, idle))
        limits = np.where(over_rows, settled, under)
    reasons = np.where(over_rows, Reason.REDUCED, Reason.RESIDUAL).astype(np.uint8)
    if steal:
        throttled = (problem.demand > problem.limit) | (usage >= problem.limit)
        half_way = settled + _stolen(rows, problem, settled, throttled)
        stealing = throttled & (half_way > limits)
        limits = np.where(stealing, half_way, limits)
        reasons[stealing] = Reason.STEALING
    reasons[rows.spread(quota == 0)] = Reason.NO_QUOTA
    unlimited = rows.spread(~limited)
    limits[unlimited] = np.inf
    reasons[unlimited] = Reason.UNLIMITED
    return Allocation(limits, reasons)


def _stolen(
    rows: Segments, problem: Problem, settled: FloatArray, throttled: BoolArray
) -> FloatArray:
    """(n,): half of what a throttled row has less than the row it steals from; else 0."""
    usage, limit = problem.usage, problem.limit
    thieves = np.lexsort((usage, limit, ~throttled, rows.of_row))
    dominant = np.lexsort((-usage, rows.of_row))
    gain = np.maximum(settled[dominant] - settled[thieves], 0.0) / 2
    gain[~throttled[thieves]] = 0.0
    # Equal brokers get equal limits; otherwise the result would depend on the input's order.
    keys = (rows.of_row[thieves], throttled[thieves], limit[thieves], usage[thieves])
    new = np.ones(len(usage), dtype=np.bool_)
    new[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    run = np.cumsum(new) - 1
    mean = np.bincount(run, weights=gain) / np.bincount(run) if len(run) else gain
    stolen: FloatArray = np.empty_like(gain)
    stolen[thieves] = mean[run]
    return stolen
