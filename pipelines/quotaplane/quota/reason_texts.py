"""Reasons of changed limits as texts with their numbers, if few enough limits changed."""

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
"""Most limits that may change in one round of a shard and still get texts with numbers: one takes
some 20 microseconds per dimension. If more change, as at PIP-82's scale, the history gets the
general text of each reason code."""


def reason_texts(divisions: Sequence[Division], changed: BoolArray) -> list[list[str]] | None:
    """For each dimension the texts of the ``changed`` (n,) leases, in order; None: too many."""
    if not 0 < np.count_nonzero(changed) <= MOST_ROWS:
        return None
    return [_texts(division, changed) for division in divisions]


def _texts(division: Division, changed: BoolArray) -> list[str]:
    """The texts of the changed leases in one dimension."""
    codes = division.reasons
    texts = np.array(REASON_TEXTS, dtype=object)[codes]
    if division.solved is not None:
        problem, answer = division.solved.problem, division.solved.answer
        segments = Segments(problem.starts)
        lease_index = np.arange(len(changed))[division.solved.at]
        # Only groups in which a limit changed are explained.
        explained = segments.total(changed[lease_index]) > 0
        kept, index = segments.keep(explained)
        starts = np.concatenate([[0], np.cumsum(kept.counts)])
        part = problem.part(starts, explained, index)
        law_texts = np.array(
            explain(part, Allocation(answer.limits[index], answer.reasons[index])), dtype=object
        )
        lease_index = lease_index[index]
        # A limit still on its way: its code says what delays it, the law's text where it is going.
        delayed = codes[lease_index] != answer.reasons[index]
        texts[lease_index] = np.where(
            delayed, texts[lease_index] + "; then: " + law_texts, law_texts
        )
    picked: list[str] = texts[changed].tolist()
    return picked
