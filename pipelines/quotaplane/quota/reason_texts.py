"""Reasons of limits in words with their numbers, where there are few enough to put into words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from quotaplane.laws import REASON_TEXTS, Allocation
from quotaplane.laws.explain import explain
from quotaplane.laws.segments import Segments
from quotaplane.model import BoolArray
from quotaplane.quota.division import Division

MOST_ROWS: Final = 2_000
"""Limits that change in one round of a shard and still get words of their own, which take some 20
microseconds a dimension. Where more change, as at PIP-82's scale, each has its reason's text."""


def words(divisions: Sequence[Division], changed: BoolArray) -> list[list[str]] | None:
    """For each dimension the words of the ``changed`` (n,) rows, in order; None: too many."""
    if not 0 < np.count_nonzero(changed) <= MOST_ROWS:
        return None
    return [_of_one(division, changed) for division in divisions]


def _of_one(division: Division, changed: BoolArray) -> list[str]:
    codes = division.reasons
    texts = np.array(REASON_TEXTS, dtype=object)[codes]
    if division.solved is not None:
        problem, answer = division.solved.problem, division.solved.answer
        rows = Segments(problem.starts)
        at = np.arange(len(changed))[division.solved.at]
        moved = rows.total(changed[at]) > 0
        chosen, index = rows.keep(moved)
        starts = np.concatenate([[0], np.cumsum(chosen.counts)])
        part = problem.part(starts, moved, index)
        by_law = np.array(
            explain(part, Allocation(answer.limits[index], answer.reasons[index])), dtype=object
        )
        row = at[index]
        # On its way there: the code says what holds it up, the law's words where it is going.
        late = codes[row] != answer.reasons[index]
        texts[row] = np.where(late, texts[row] + "; then: " + by_law, by_law)
    picked: list[str] = texts[changed].tolist()
    return picked
