"""What entities used lately, in slots of time that begin with the clock's: 0, W, 2 W, ...

The rows are in the order of age, the slot of now first; a request in a later slot moves all rows
down. Both ZooKeeper's sliding window and KIP-599's amended rate count in such slots.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from quotaplane.model import BoolArray, FloatArray
from quotaplane.throttle.types import Quotas


class Slots(NamedTuple):
    """Of e entities: ``last_ms`` (e,), and ``held`` (s, e), the units in each slot as of then."""

    last_ms: FloatArray
    held: FloatArray


class SlotTerms(NamedTuple):
    """Each (e,); ``whole``: the units that the quota allows in all slots together."""

    rate_per_s: FloatArray
    samples: FloatArray
    window_ms: FloatArray
    hard: BoolArray
    whole: FloatArray


def begin(quotas: Quotas) -> Slots:
    """Nothing used yet."""
    entities = len(quotas.rate_per_s)
    return Slots(np.zeros(entities), np.zeros((int(quotas.samples.max(initial=1)), entities)))


def terms(quotas: Quotas) -> SlotTerms:
    """The quota, its slots and mode."""
    span_ms = (quotas.samples * quotas.window_ms).astype(np.float64)
    return SlotTerms(
        quotas.rate_per_s,
        quotas.samples.astype(np.float64),
        quotas.window_ms.astype(np.float64),
        quotas.hard,
        quotas.rate_per_s * span_ms / 1000.0,
    )


def slot_of(at_ms: FloatArray, window_ms: FloatArray) -> FloatArray:
    """The number of the slot that a time is in."""
    number: FloatArray = np.floor(at_ms / window_ms)
    return number


def held_at(state: Slots, terms: SlotTerms, at_ms: FloatArray) -> FloatArray:
    """The rows at a time, (s, e): moved down, and empty where too old. Not to be written to.

    >>> state = Slots(np.array([1500.0]), np.array([[3.0], [2.0], [1.0]]))
    >>> of = terms(Quotas.of([5.0], samples=3))
    >>> held_at(state, of, np.array([1999.0])).T.tolist()
    [[3.0, 2.0, 1.0]]
    >>> held_at(state, of, np.array([2000.0])).T.tolist()
    [[0.0, 3.0, 2.0]]
    """
    moved = slot_of(at_ms, terms.window_ms) - slot_of(state.last_ms, terms.window_ms)
    if not moved.any():
        return state.held
    row = np.arange(len(state.held))[:, None]
    source = row - moved
    held = np.take_along_axis(state.held, np.maximum(source, 0).astype(np.int64), axis=0)
    # An entity may have fewer slots than there are rows.
    held[(source < 0) | (row >= terms.samples)] = 0.0
    return held


def added(held: FloatArray) -> FloatArray:
    """The sum of the rows, (e,), one after the other as a loop adds.

    ``held.sum(axis=0)`` would add in pairs where a column lies together in memory, as that of a
    single entity does, and the last bits would be others.

    >>> column = np.array([[1.0]] + [[1e-16]] * 15)
    >>> (added(column) - 1).tolist(), (column.sum(axis=0) - 1 > 0).tolist()
    ([0.0], [True])
    """
    total: FloatArray = held[0].copy()
    for row in held[1:]:
        total += row
    return total


def summed(held: list[float]) -> float:
    """The same for one entity's rows; ``sum`` is more exact from Python 3.12 on."""
    total = 0.0
    for units in held:
        total += units
    return total


def move(held: list[float], by: float, samples: float) -> None:
    """The same for one entity's rows, in place."""
    if by:
        kept = held[: max(int(samples - by), 0)]
        held[:] = [0.0] * int(min(by, samples)) + kept + [0.0] * (len(held) - int(samples))
