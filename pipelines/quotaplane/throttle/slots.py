"""Recent use of entities in time slots aligned with the clock: 0, W, 2 W, ...

Rows are ordered by age, the current slot first; a request in a later slot moves all rows down.
ZooKeeper's sliding window and KIP-599's amended rate use such slots.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from quotaplane.model import BoolArray, FloatArray
from quotaplane.throttle.types import Quotas


class Slots(NamedTuple):
    """The slots of e entities."""

    last_ms: FloatArray
    """(e,) time of the last request."""
    used: FloatArray
    """(s, e) units used in each slot, as of ``last_ms``."""


class SlotTerms(NamedTuple):
    """The terms of e entities, (e,) each."""

    rate_per_s: FloatArray
    samples: FloatArray
    window_ms: FloatArray
    hard: BoolArray
    whole: FloatArray
    """Units that the quota allows in all slots together."""


def begin(quotas: Quotas) -> Slots:
    """Empty slots."""
    entities = len(quotas.rate_per_s)
    return Slots(np.zeros(entities), np.zeros((int(quotas.samples.max(initial=1)), entities)))


def terms(quotas: Quotas) -> SlotTerms:
    """The terms from quotas."""
    span_ms = (quotas.samples * quotas.window_ms).astype(np.float64)
    return SlotTerms(
        quotas.rate_per_s,
        quotas.samples.astype(np.float64),
        quotas.window_ms.astype(np.float64),
        quotas.hard,
        quotas.rate_per_s * span_ms / 1000.0,
    )


def slot_of(at_ms: FloatArray, window_ms: FloatArray) -> FloatArray:
    """The number of the slot that contains a time."""
    number: FloatArray = np.floor(at_ms / window_ms)
    return number


def used_at(state: Slots, terms: SlotTerms, at_ms: FloatArray) -> FloatArray:
    """The rows (s, e) at a time: moved down, and 0 where too old. Read only.

    >>> state = Slots(np.array([1500.0]), np.array([[3.0], [2.0], [1.0]]))
    >>> of = terms(Quotas.of([5.0], samples=3))
    >>> used_at(state, of, np.array([1999.0])).T.tolist()
    [[3.0, 2.0, 1.0]]
    >>> used_at(state, of, np.array([2000.0])).T.tolist()
    [[0.0, 3.0, 2.0]]
    """
    moved = slot_of(at_ms, terms.window_ms) - slot_of(state.last_ms, terms.window_ms)
    if not moved.any():
        return state.used
    row = np.arange(len(state.used))[:, None]
    source = row - moved
    used = np.take_along_axis(state.used, np.maximum(source, 0).astype(np.int64), axis=0)
    # An entity may have fewer slots than there are rows.
    used[(source < 0) | (row >= terms.samples)] = 0.0
    return used


def added(used: FloatArray) -> FloatArray:
    """The sum of the rows, (e,), added one after the other as in a loop.

    ``used.sum(axis=0)`` adds in pairs if a column is contiguous in memory, as a single entity's is,
    and the last bits would differ.

    >>> column = np.array([[1.0]] + [[1e-16]] * 15)
    >>> (added(column) - 1).tolist(), (column.sum(axis=0) - 1 > 0).tolist()
    ([0.0], [True])
    """
    total: FloatArray = used[0].copy()
    for row in used[1:]:
        total += row
    return total


def summed(used: list[float]) -> float:
    """As ``added``, for one entity's rows; ``sum`` is more exact from Python 3.12 on."""
    total = 0.0
    for units in used:
        total += units
    return total


def move(used: list[float], by: float, samples: float) -> None:
    """As ``used_at``, for one entity's rows, in place."""
    if by:
        remaining = used[: max(int(samples - by), 0)]
        used[:] = [0.0] * int(min(by, samples)) + remaining + [0.0] * (len(used) - int(samples))
