"""Answers requests in waves: the first request of every entity, then the second, and so on.

An answer depends only on earlier requests of the same entity. So a wave is one operation on arrays
for any number of entities, and n requests need as many operations as the busiest entity has
requests. The arithmetic of each request is that of a plain loop, in the same order: answers are
equal to the last bit, and a batch may be split anywhere. Once waves are narrow, a plain loop does
the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np

from quotaplane.errors import InputError
from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.throttle.types import Answers, Quotas, Requests

_NARROW: Final = 24
"""Entities in a wave below which array operations cost more than a loop."""

_CACHED: Final = 1 << 17
"""Numbers of state that fit into a processor's cache; entities are processed in blocks of this
size."""

_DIGIT: Final = 1 << 16
"""numpy sorts 16-bit numbers by radix, in a sixth of the time for wider ones."""


class WaveOutcome(NamedTuple):
    """The results of one request of each of m entities."""

    refused: BoolArray
    """(m,)"""
    over_ms: FloatArray
    """(m,) time until the quota is no longer exceeded, not rounded; 0 or less, or NaN: it is
    not."""
    balance: FloatArray
    """(m,) units left."""


class WaveOutcomes(NamedTuple):
    """As ``WaveOutcome``, for the requests of one entity."""

    refused: list[bool]
    over_ms: list[float]
    balance: list[float]


State = TypeVar("State", bound=tuple[Any, ...])
Terms = TypeVar("Terms", bound=tuple[Any, ...])
Fields = TypeVar("Fields", bound=tuple[Any, ...])


class Form(Protocol[State, Terms]):
    """The interface of a law.

    State and terms are named tuples of arrays with the entities on the last axis. A state's first
    field is ``last_ms`` (e,), the time of the last request. Milliseconds are floats here: whole
    numbers, so exact.
    """

    def begin(self, quotas: Quotas) -> State:
        """The state of unused entities."""

    def terms(self, quotas: Quotas) -> Terms:
        """The terms from quotas."""

    def wave(self, state: State, terms: Terms, at_ms: FloatArray, units: FloatArray) -> WaveOutcome:
        """Answer one request of each entity; changes ``state`` in place, except ``last_ms``."""

    def sequence(
        self, state: list[Any], terms: tuple[Any, ...], at_ms: list[float], units: list[float]
    ) -> WaveOutcomes:
        """Answer requests of one entity, one after the other; changes ``state`` in place."""

    def balance(self, state: State, terms: Terms, at_ms: FloatArray) -> FloatArray:
        """The units that each entity has left at a time, not before its last request."""


def answer(
    form: Form[State, Terms],
    state: State,
    quotas: Quotas,
    requests: Requests,
    narrow: int = _NARROW,
) -> tuple[State, Answers]:
    """Answer n requests; returns the new state, ``state`` is not modified.

    A plain loop answers waves of fewer than ``narrow`` entities.

    Raises:
        InputError: a request is earlier than a previous one of its entity, its units are invalid,
            or there is no such entity; the message has its index.
    """
    n, entities = len(requests.entity), len(quotas.rate_per_s)
    check_entities(requests.entity, entities)
    _check_units(requests.units)
    answers = Answers(np.ones(n, np.bool_), np.zeros(n), np.zeros(n))
    after: State = type(state)(*(field.copy() for field in state))
    counts = np.bincount(requests.entity, minlength=entities)
    order = _by_entity(requests.entity, entities)
    edges = np.concatenate([[0], np.cumsum(counts)])
    terms, at_ms = form.terms(quotas), requests.at_ms.astype(np.float64)
    rows = sum(field[..., :1].size for field in after)
    size = max(_CACHED // max(rows, 1), 1)
    for begin in range(0, entities, size):
        block = slice(begin, begin + size)
        source = order[edges[begin] : edges[min(begin + size, entities)]]
        if not len(source):
            continue
        now = at_ms.take(source)
        own, units = take(after, block), requests.units.take(source)
        _check_order(source, now, counts[block], own[0])
        outcome = _block(form, own, take(terms, block), counts[block], now, units, narrow)
        _write(answers, source, outcome, np.repeat(quotas.hard[block], counts[block]))
    return after, answers


def check_entities(entity: IntArray, entities: int) -> None:
    """Raise if a request's entity does not exist; numpy would accept negative indexes."""
    bad = np.flatnonzero((entity < 0) | (entity >= entities))
    if len(bad):
        raise InputError(
            f"request {bad[0]}: there is no entity {entity[bad[0]]}, only 0 to {entities - 1}"
        )


def _check_units(units: FloatArray) -> None:
    bad = np.flatnonzero(~((units >= 0) & (units < np.inf)))
    if len(bad):
        raise InputError(f"request {bad[0]}: units must be a number from 0, not {units[bad[0]]:g}")


def _check_order(
    source: IntArray, at_ms: FloatArray, counts: IntArray, last_ms: FloatArray
) -> None:
    """Raise if a request precedes the previous one; ``source`` and ``at_ms`` (n,) are by entity."""
    before = np.empty_like(at_ms)
    before[1:] = at_ms[:-1]
    requested = np.flatnonzero(counts)
    before[(np.cumsum(counts) - counts)[requested]] = last_ms[requested]
    late = np.flatnonzero(at_ms < before)
    if len(late):
        first = late[source[late].argmin()]
        raise InputError(
            f"request {source[first]}: is at {at_ms[first]:.0f} ms, "
            f"before the last one at {before[first]:.0f} ms"
        )


def _block(
    form: Form[State, Terms],
    state: State,
    terms: Terms,
    counts: IntArray,
    at_ms: FloatArray,
    units: FloatArray,
    narrow: int,
) -> WaveOutcome:
    """Answer the requests of a block of entities, by entity; changes ``state`` in place."""
    busy = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    first = (np.cumsum(counts) - counts)[busy]
    counts = counts[busy]
    part, part_terms = take(state, busy), take(terms, busy)
    n = len(at_ms)
    answers = WaveOutcome(np.zeros(n, np.bool_), np.empty(n), np.empty(n))
    for rank, width in _waves(counts):
        if width < narrow:
            for busy_one in range(width):
                rest = slice(first[busy_one] + rank, first[busy_one] + counts[busy_one])
                outcome = _one_entity(form, part, part_terms, busy_one, at_ms[rest], units[rest])
                for whole, values in zip(answers, outcome, strict=True):
                    whole[rest] = values
            break
        at = first[:width] + rank
        front, now = take(part, slice(width)), at_ms.take(at)
        outcome = form.wave(front, take(part_terms, slice(width)), now, units.take(at))
        front[0][:] = now
        answers.over_ms[at] = outcome.over_ms
        answers.balance[at] = outcome.balance
        if outcome.refused.any():
            answers.refused[at] = outcome.refused
    for whole, values in zip(state, part, strict=True):
        whole[..., busy] = values
    return answers


def take(fields: Fields, entities: IntArray | slice) -> Fields:
    """Select entities of a named tuple of arrays with the entities on the last axis."""
    if isinstance(entities, slice):
        return type(fields)(*(field[..., entities] for field in fields))
    # Indexing would make the entities of a row non-contiguous in memory.
    return type(fields)(*(field.take(entities, axis=-1) for field in fields))


def _waves(counts: IntArray) -> Iterator[tuple[int, int]]:
    """Rank and number of entities of each wave; ``counts`` are sorted, the busiest first."""
    for rank, done in zip(count(), np.bincount(counts).cumsum().tolist(), strict=False):
        if done < len(counts):
            yield rank, len(counts) - done


def _by_entity(entity: IntArray, entities: int) -> IntArray:
    """Indexes of the requests sorted by entity; those of one entity keep their order.

    >>> _by_entity(np.array([70_000, 1, 70_000, 0]), 70_001).tolist()
    [3, 1, 0, 2]
    """
    low = entity.astype(np.uint16)
    if entities <= _DIGIT:
        return np.argsort(low, kind="stable")
    high = entity >> 16
    if entities > 16 * _DIGIT:
        order = np.argsort(low, kind="stable")
        return order[np.argsort(high[order], kind="stable")]
    parts = [np.flatnonzero(high == number) for number in range((entities - 1 >> 16) + 1)]
    return np.concatenate([part[np.argsort(low[part], kind="stable")] for part in parts])


def _one_entity(
    form: Form[State, Terms],
    state: State,
    terms: Terms,
    one: int,
    at_ms: FloatArray,
    units: FloatArray,
) -> WaveOutcome:
    """Answer requests of one entity; changes its column of the state in place."""
    own = [field[..., one].tolist() for field in state]
    own_terms = tuple(field[..., one].tolist() for field in terms)
    outcomes = form.sequence(own, own_terms, at_ms.tolist(), units.tolist())
    for field, new in zip(state, own, strict=True):
        field[..., one] = new
    return WaveOutcome(*map(np.array, outcomes))


def _write(answers: Answers, at: IntArray, outcome: WaveOutcome, hard: BoolArray) -> None:
    answers.balance[at] = outcome.balance
    waits = np.flatnonzero((outcome.over_ms > 0) & (outcome.refused | ~hard))
    answers.throttle_ms[at[waits]] = rounded(outcome.over_ms[waits])
    answers.admitted[at[outcome.refused]] = False


def rounded(values: FloatArray) -> FloatArray:
    """To whole numbers as Java's ``Math.round`` does: halves up.

    >>> rounded(np.array([0.5, 2.5, 0.49999999999999994, np.inf])).tolist()
    [1.0, 3.0, 0.0, inf]
    """
    below = np.floor(values)
    with np.errstate(invalid="ignore"):
        below += values - below >= 0.5
    return below
