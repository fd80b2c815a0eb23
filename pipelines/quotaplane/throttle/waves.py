"""The engine under all laws: requests in waves, the first of every entity, then the second, ...

An answer depends on the one before it of the same entity, and on nobody else's. So a wave is one
operation on arrays, whoever is in it, and n requests cost as many operations as the busiest entity
has requests. Each request's arithmetic is that of a plain loop, in the same order: answers are
equal to the last bit, and a batch may be split anywhere. Waves that have become narrow are left to
such a loop.
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
"""Entities in a wave below which array operations cost more than a plain loop."""

_CACHED: Final = 1 << 17
"""Numbers of state that a processor keeps at hand: so many entities are answered at a time."""

_DIGIT: Final = 1 << 16
"""numpy sorts 16-bit numbers by radix, in a sixth of the time it needs for wider ones."""


class WaveOutcome(NamedTuple):
    """What came of a request of each of m entities, (m,) each.

    ``over_ms``: the time until the quota is kept again, not rounded; 0 or less, or NaN: it is kept.
    """

    refused: BoolArray
    over_ms: FloatArray
    balance: FloatArray


class WaveOutcomes(NamedTuple):
    """The same, of the requests of one entity."""

    refused: list[bool]
    over_ms: list[float]
    balance: list[float]


State = TypeVar("State", bound=tuple[Any, ...])
Terms = TypeVar("Terms", bound=tuple[Any, ...])
Fields = TypeVar("Fields", bound=tuple[Any, ...])


class Form(Protocol[State, Terms]):
    """A law as the engine needs it.

    State and terms are named tuples of arrays whose last axis is the entities. The first field of
    a state is ``last_ms`` (e,), when the last request was. Milliseconds are floats in them: whole
    numbers, and exact.
    """

    def begin(self, quotas: Quotas) -> State:
        """The state of entities that requested nothing yet."""

    def terms(self, quotas: Quotas) -> Terms:
        """What requests are measured against."""

    def wave(self, state: State, terms: Terms, at_ms: FloatArray, units: FloatArray) -> WaveOutcome:
        """One request of each entity; ``state`` is changed in place, but for ``last_ms``."""

    def plain(
        self, state: list[Any], terms: tuple[Any, ...], at_ms: list[float], units: list[float]
    ) -> WaveOutcomes:
        """Requests of one entity, one after the other; ``state`` is changed in place."""

    def balance(self, state: State, terms: Terms, at_ms: FloatArray) -> FloatArray:
        """What each entity has left at a time, which is not before its last request."""


def answer(
    form: Form[State, Terms], state: State, quotas: Quotas, requests: Requests
) -> tuple[State, Answers]:
    """The answers to n requests, and the state after them; ``state`` itself stays as it is.

    Raises:
        InputError: a request is earlier than one before it of the same entity, asks for what is no
            number of units, or is of no entity; names it by its index.
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
        outcome = _block(form, own, take(terms, block), counts[block], now, units)
        _write(answers, source, outcome, np.repeat(quotas.hard[block], counts[block]))
    return after, answers


def check_entities(entity: IntArray, entities: int) -> None:
    """Raise if a request is of nobody; a negative index would be that of the last entities."""
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
    """``source`` and ``at_ms`` (n,) are by entity."""
    before = np.empty_like(at_ms)
    before[1:] = at_ms[:-1]
    there = np.flatnonzero(counts)
    before[(np.cumsum(counts) - counts)[there]] = last_ms[there]
    late = np.flatnonzero(at_ms < before)
    if len(late):
        one = late[source[late].argmin()]
        raise InputError(
            f"request {source[one]}: is at {at_ms[one]:.0f} ms, "
            f"before the last one at {before[one]:.0f} ms"
        )


def _block(
    form: Form[State, Terms],
    state: State,
    terms: Terms,
    counts: IntArray,
    at_ms: FloatArray,
    units: FloatArray,
) -> WaveOutcome:
    """The requests of some entities, by entity; ``state`` is changed in place."""
    busy = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    first = (np.cumsum(counts) - counts)[busy]
    counts = counts[busy]
    part, part_terms = take(state, busy), take(terms, busy)
    n = len(at_ms)
    answers = WaveOutcome(np.zeros(n, np.bool_), np.empty(n), np.empty(n))
    for rank, width in _waves(counts):
        if width < _NARROW:
            for one in range(width):
                rest = slice(first[one] + rank, first[one] + counts[one])
                outcome = _alone(form, part, part_terms, one, at_ms[rest], units[rest])
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
    """Those of some entities, of a named tuple of arrays whose last axis is the entities."""
    if isinstance(entities, slice):
        return type(fields)(*(field[..., entities] for field in fields))
    # Indexing would put the entities of a row apart in memory.
    return type(fields)(*(field.take(entities, axis=-1) for field in fields))


def _waves(counts: IntArray) -> Iterator[tuple[int, int]]:
    """Each wave's rank and how many entities are in it; ``counts`` are of the busiest first."""
    for rank, done in zip(count(), np.bincount(counts).cumsum().tolist(), strict=False):
        if done < len(counts):
            yield rank, len(counts) - done


def _by_entity(entity: IntArray, entities: int) -> IntArray:
    """Where the requests of the first entity are, then those of the second, each in their order.

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


def _alone(
    form: Form[State, Terms],
    state: State,
    terms: Terms,
    one: int,
    at_ms: FloatArray,
    units: FloatArray,
) -> WaveOutcome:
    """Requests of one entity; its column of the state is changed in place."""
    own = [field[..., one].tolist() for field in state]
    own_terms = tuple(field[..., one].tolist() for field in terms)
    outcomes = form.plain(own, own_terms, at_ms.tolist(), units.tolist())
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
