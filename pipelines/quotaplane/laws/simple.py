"""Laws without state or estimates: the even split, and stock Pulsar's calculation."""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.laws.blocks import in_blocks
from quotaplane.laws.problem import Allocation, Problem
from quotaplane.laws.reason import Reason
from quotaplane.laws.segments import Segments, overshooting, scale_down


@in_blocks
def static(problem: Problem) -> Allocation:
    """Divide the quota evenly (by weight), independent of usage and demand.

    ``limit = quota * weight / sum(weight)``. The naive baseline in the discussion of PIP-82: no
    broker starves and nothing must be measured, but a busy broker can't use what idle ones leave.
    Floors, ceilings and priorities are ignored. Conserving.

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
    over = overshooting(rows, limits, rows.total(limits), quota)
    if over.any():
        limits = scale_down(rows, limits, quota, over)
    reasons = np.full(len(limits), Reason.EVEN, dtype=np.uint8)
    reasons[rows.spread(quota == 0)] = Reason.NO_QUOTA
    unlimited = rows.spread(~limited)
    limits[unlimited] = np.inf
    reasons[unlimited] = Reason.UNLIMITED
    return Allocation(limits, reasons)


_LONG_MAX: Final = 2.0**63
"""Maximum of a Java ``long``, as a float: the largest number in stock Pulsar."""


@in_blocks
def proportional(problem: Problem) -> Allocation:
    """Compute stock Pulsar's limits (``ResourceQuotaCalculatorImpl``), bit for bit, to compare.

    ``limit = max(usage + (quota - sum(usage)) * (usage / sum(usage)), 1)``, in 32-bit floats and
    with the fraction of the result cut off; the whole quota for each broker if there is no usage.
    Except for rounding that is ``quota * usage / sum(usage)``. Any split is a fixed point: a broker
    with a low limit uses little, and keeps it.

    Stock's quota and usage are whole numbers (Java's ``long``); for whole numbers up to 2^53 the
    result is exactly stock's. Other numbers are not truncated first but go through the same
    arithmetic, and so does a quota without usage. Numbers above a ``long`` count as 2^63.

    Not conserving: n brokers get at most ``n * quota`` if all are idle, else at most
    ``max(quota, 1) + n``, because each has at least 1, even with a quota of 0; and rounding to 32
    bits may add 4e-7 of quota and usage for each. Weights, floors, ceilings, priorities and demand
    are ignored.

    >>> from quotaplane.laws import one_group
    >>> proportional(one_group(100, usage=[40, 20])).limits
    array([66., 33.])
    >>> proportional(one_group(100, usage=[50, 0])).limits
    array([100.,   1.])
    """
    rows = Segments(problem.starts)
    limited = np.isfinite(problem.quota)
    quota = np.minimum(np.where(limited, problem.quota, 0.0), _LONG_MAX)
    usage = np.minimum(problem.usage, _LONG_MAX)
    total = np.minimum(rows.total(usage), _LONG_MAX)
    # long to float as Java rounds; the subtraction comes first.
    residual = rows.spread((quota - total).astype(np.float32))
    mine, whole = usage.astype(np.float32), rows.spread(total.astype(np.float32))
    used = whole > 0
    fraction = np.divide(mine, whole, out=np.zeros_like(mine), where=used)
    share = mine + residual * fraction
    limits = np.where(used, np.floor(np.maximum(share, np.float32(1.0))), rows.spread(quota))
    reasons = np.where(used, Reason.PROPORTIONAL, Reason.NO_USAGE).astype(np.uint8)
    reasons[used & (share < 1)] = Reason.MINIMUM
    unlimited = rows.spread(~limited)
    limits[unlimited] = np.inf
    reasons[unlimited] = Reason.UNLIMITED
    return Allocation(limits, reasons)
