"""Laws without memory or estimates: the naive even split, and what stock Pulsar computes."""

from __future__ import annotations

import numpy as np

from quotaplane.laws.blocks import in_blocks
from quotaplane.laws.problem import Allocation, Problem
from quotaplane.laws.reason import Reason
from quotaplane.laws.segments import Segments, overshooting, scale_down


@in_blocks
def static(problem: Problem) -> Allocation:
    """The quota divided evenly (by weight), whatever anybody uses or wants.

    ``limit = quota * weight / sum(weight)``. The naive baseline of the discussion of PIP-82:
    nobody starves and nothing has to be measured, but a busy broker can't use what an idle one
    leaves. Floors are not looked at. Conserving.

    >>> from quotaplane.laws import one_group
    >>> static(one_group(100, usage=[80, 20, 0, 0])).limits
    array([25., 25., 25., 25.])
    """
    rows = Segments(problem.starts)
    limited = np.isfinite(problem.quota)
    quota = np.where(limited, problem.quota, 0.0)
    weights = rows.total(problem.weight)
    level = np.divide(quota, weights, out=np.zeros(rows.groups), where=weights > 0)
    limits = problem.weight * rows.spread(level)
    over = overshooting(rows, limits, quota)
    if over.any():
        limits = scale_down(rows, limits, quota, over)
    reasons = np.full(len(limits), Reason.EVEN, dtype=np.uint8)
    reasons[rows.spread(quota == 0)] = Reason.NO_QUOTA
    unlimited = rows.spread(~limited)
    limits[unlimited] = np.inf
    reasons[unlimited] = Reason.UNLIMITED
    return Allocation(limits, reasons)


@in_blocks
def proportional(problem: Problem) -> Allocation:
    """What stock Pulsar computes (``ResourceQuotaCalculatorImpl``), for comparison.

    ``limit = max(floor(quota * usage / sum(usage)), 1)``; the whole quota for each when nobody
    uses anything. Any split is a fixed point: whoever was given little uses little and stays
    there. (Stock rounds by way of 32-bit floats; here the division is exact.)

    Not conserving: n brokers get at most ``n * quota`` when all are idle, else at most
    ``max(quota, 1) + n`` because of the minimum of 1, which they have even of a quota of 0.
    Weights, floors and demand are not looked at.

    >>> from quotaplane.laws import one_group
    >>> proportional(one_group(100, usage=[40, 20])).limits
    array([66., 33.])
    >>> proportional(one_group(100, usage=[50, 0])).limits
    array([100.,   1.])
    """
    rows = Segments(problem.starts)
    limited = np.isfinite(problem.quota)
    quota = rows.spread(np.where(limited, problem.quota, 0.0))
    total = rows.spread(rows.total(problem.usage))
    used = total > 0
    share = np.divide(quota * problem.usage, total, out=quota.copy(), where=used)
    # Idle groups keep their quota as it is; stock's are whole numbers anyway.
    limits = np.where(used, np.maximum(np.floor(share), 1.0), share)
    reasons = np.where(used, Reason.PROPORTIONAL, Reason.NO_USAGE).astype(np.uint8)
    reasons[used & (share < 1)] = Reason.MINIMUM
    unlimited = rows.spread(~limited)
    limits[unlimited] = np.inf
    reasons[unlimited] = Reason.UNLIMITED
    return Allocation(limits, reasons)
