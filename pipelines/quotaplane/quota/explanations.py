"""The explanation of a changed limit: the demand and quota that the law was given, and numbers.

``laws.explain.reason_text`` makes a text of them when somebody asks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from quotaplane.laws import Allocation, Reason
from quotaplane.laws.reason import ReasonArray
from quotaplane.laws.reason_numbers import Ragged, reason_numbers
from quotaplane.laws.segments import Segments
from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.quota.division import Division, Solved


@dataclass(frozen=True)
class Explanation:
    """The explanations of c changed limits in one dimension."""

    demand: FloatArray
    """(c,) per second, as the law was given it; inf: saturated; NaN: the law was not asked."""
    quota: FloatArray
    """(c,) per second, that the law divided; NaN: the law was not asked."""
    numbers: pa.ListArray
    """(c,) the numbers of the reason; null: the law was not asked."""


def explanation(division: Division, changed: BoolArray, adopted: BoolArray) -> Explanation:
    """Explain the ``changed`` (n,) limits of a division; ``adopted`` (n,) ones are no law's."""
    lease_index = np.flatnonzero(changed)
    count = len(lease_index)
    demand, quota = np.full(count, np.nan), np.full(count, np.nan)
    row: IntArray = np.full(len(changed), -1)
    if division.solved is not None:
        row[division.solved.at] = np.arange(len(division.solved.answer.limits))
    row = row[lease_index]
    known = (row >= 0) & ~adopted[lease_index]
    if division.solved is None or not known.any():
        nothing = Ragged(np.zeros(count + 1, np.int64), np.zeros(0))
        return Explanation(demand, quota, _lists(nothing, known))
    numbers = _numbers(division.solved, division.reasons[lease_index], np.where(known, row, -1))
    demand[known] = division.solved.problem.demand[row[known]]
    of_row = Segments(division.solved.problem.starts).spread(division.solved.problem.quota)
    quota[known] = of_row[row[known]]
    return Explanation(demand, quota, _lists(numbers, known))


def _numbers(solved: Solved, codes: ReasonArray, row: IntArray) -> Ragged:
    """The numbers of c limits: ``row`` (c,) of the problem, -1 = none; ``codes`` (c,) as issued."""
    segments = Segments(solved.problem.starts)
    chosen = np.zeros(len(solved.answer.limits), bool)
    chosen[row[row >= 0]] = True
    # Only groups in which a limit changed are explained.
    explained = segments.total(chosen) > 0
    kept, index = segments.keep(explained)
    starts = np.concatenate([[0], np.cumsum(kept.counts)])
    part = solved.problem.part(starts, explained, index)
    limits, reasons = solved.answer.limits[index], solved.answer.reasons[index]
    # A limit that is still on its way has a code that says what delays it; the law's own reason
    # follows.
    delayed = (row >= 0) & np.isin(codes, (Reason.WAITING, Reason.STEP))
    place = np.full(len(chosen), -1)
    place[index] = np.arange(len(index))
    where = np.where(row < 0, -1, place[row])
    return reason_numbers(part, Allocation(limits, reasons), where, delayed)


def _lists(numbers: Ragged, known: BoolArray) -> pa.ListArray:
    offsets = pa.array(numbers.offsets.astype(np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(numbers.values), mask=pa.array(~known))
