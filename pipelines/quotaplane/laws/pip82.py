"""The laws of PIP-82, as the proposal words them."""

from __future__ import annotations

from typing import Literal

import numpy as np

from quotaplane.laws.blocks import in_blocks
from quotaplane.laws.problem import Allocation, Problem
from quotaplane.laws.reason import Reason
from quotaplane.laws.segments import Segments
from quotaplane.model import BoolArray, FloatArray

Residual = Literal["each", "proportional"]


@in_blocks
def pip82(problem: Problem, residual: Residual, steal: bool) -> Allocation:
    """PIP-82's quota adjustment: residual, reduction, and stealing.

    - Under the quota the residual ``quota - sum(usage)`` is split. ``each``: every broker adds all
      of it to its usage ("each adding the remaining 10 units"). ``proportional``: by usage, that
      is ``usage * quota / sum(usage)``; when nobody uses anything there is no proportion, and it
      is split evenly.
    - Over the quota every broker is reduced by the same fraction: ``usage * quota / sum(usage)``.
    - ``steal``: the brokers of a group are paired, lowest usage with highest, second lowest with
      second highest, and so on. The lower one of a pair, if it may be unfairly throttled (it wants
      more than the limit it has), goes half-way: ``low + (high - low) / 2``, both after reduction,
      unless it has more than that already. The dominant one keeps its own until the usage of the
      other shows. Brokers with equal usage share what their places in the order bring them.

    Not conserving, by design ("in the short term, this will lead to passing the set quota").
    At most ``1.5 * quota`` for ``proportional`` (``quota`` without stealing, but for rounding),
    ``n * quota`` for ``each`` (with n >= 2 brokers; ``max(sum(usage) + n * residual)``). Weights
    and floors are not in the proposal and not looked at.

    >>> from quotaplane.laws import one_group
    >>> usage = one_group(100, usage=[10, 50, 30])
    >>> pip82(usage, "each", steal=True).limits
    array([20., 60., 40.])
    >>> pip82(usage, "proportional", steal=True).limits.round(2)
    array([11.11, 55.56, 33.33])
    >>> pip82(one_group(100, usage=[80, 20], limit=[80, 20]), "each", steal=True).limits
    array([80., 50.])
    """
    rows = Segments(problem.starts)
    limited = np.isfinite(problem.quota)
    quota = np.where(limited, problem.quota, 0.0)
    usage = problem.usage
    total = rows.total(usage)
    over = total > quota
    total_of_row = rows.spread(total)
    share = np.divide(usage, total_of_row, out=np.zeros(len(usage)), where=total_of_row > 0)
    in_proportion = share * rows.spread(quota)
    settled = np.where(rows.spread(over), in_proportion, usage)
    rest = np.maximum(quota - total, 0.0)
    if residual == "each":
        limits = settled + rows.spread(rest)
    else:
        idle = np.divide(rest, rows.counts, out=np.zeros(rows.groups), where=rows.counts > 0)
        limits = in_proportion + rows.spread(np.where(total > 0, 0.0, idle))
    reasons = np.where(rows.spread(over), Reason.REDUCED, Reason.RESIDUAL).astype(np.uint8)
    if steal:
        throttled = (problem.demand > problem.limit) | (usage >= problem.limit)
        half_way = settled + _stolen(rows, usage, settled, throttled)
        stealing = throttled & (half_way > limits)
        limits = np.where(stealing, half_way, limits)
        reasons[stealing] = Reason.STEALING
    reasons[rows.spread(quota == 0)] = Reason.NO_QUOTA
    unlimited = rows.spread(~limited)
    limits[unlimited] = np.inf
    reasons[unlimited] = Reason.UNLIMITED
    return Allocation(limits, reasons)


def _stolen(
    rows: Segments, usage: FloatArray, settled: FloatArray, throttled: BoolArray
) -> FloatArray:
    """(n,): how far below half-way each row is, if it is the lower one of its pair; else 0."""
    # Of equals, those that are throttled come first: the lower places are the ones that gain.
    order = np.lexsort((~throttled, usage, rows.of_row))
    place = np.arange(len(usage))
    ends = np.cumsum(rows.counts)
    starts = rows.spread(ends - rows.counts)
    mirrored = starts + rows.spread(ends) - 1 - place
    after = settled[order]
    gain = np.maximum(after[mirrored] - after, 0.0) / 2
    gain[mirrored <= place] = 0.0
    # Equals get equal answers, or the answer would depend on the order of the input.
    ranked, ranked_throttled = usage[order], throttled[order]
    new = np.ones(len(usage), dtype=np.bool_)
    new[1:] = (
        (ranked[1:] != ranked[:-1])
        | (ranked_throttled[1:] != ranked_throttled[:-1])
        | (rows.of_row[1:] != rows.of_row[:-1])
    )
    run = np.cumsum(new) - 1
    mean = np.bincount(run, weights=gain) / np.bincount(run) if len(run) else gain
    stolen: FloatArray = np.empty_like(gain)
    stolen[order] = mean[run]
    return stolen
