"""Laws without memory or estimates: the naive even split, and what stock Pulsar computes."""

from __future__ import annotations

from typing import Final

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
    leaves. Floors, ceilings and priorities are not looked at. Conserving.

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
"""What a Java ``long`` holds, as a float: the most that stock can be told of or answer."""


@in_blocks
def proportional(problem: Problem) -> Allocation:
    """What stock Pulsar computes (``ResourceQuotaCalculatorImpl``), for comparison, bit for bit.

    ``limit = max(usage + (quota - sum(usage)) * (usage / sum(usage)), 1)``, in 32-bit floats and
    with the fraction of the result cut off; the whole quota for each when nobody uses anything.
    But for rounding that is ``quota * usage / sum(usage)``. Any split is a fixed point: whoever
    was given little uses little and stays there.

    Stock's quota and usage are whole numbers (Java's ``long``); whole numbers get stock's answer
    exactly, up to 2^53. Others are not cut first but go through the same arithmetic as they are,
    and so does a quota that nobody uses. More than a ``long`` holds counts as 2^63.

    Not conserving: n brokers get at most ``n * quota`` when all are idle, else at most
    ``max(quota, 1) + n`` because of the minimum of 1, which they have even of a quota of 0; and
    the rounding to 32 bits may add 4e-7 of quota and usage for each. Weights, floors, ceilings,
    priorities and demand are not looked at.

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
    # long to float, as Java rounds it; the subtraction comes before that.
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
