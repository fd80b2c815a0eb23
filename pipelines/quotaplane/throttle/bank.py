"""The throttle state of many entities, each with a law of its own.

Limits may change between requests; an entity keeps what it used if its law and windows stay the
same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from quotaplane.errors import InputError
from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.throttle import amended_rate, sliding_window, token_bucket, windowed_rate
from quotaplane.throttle.types import Answers, Quotas, Requests, ThrottleLaw
from quotaplane.throttle.waves import answer, check_entities, take

FORMS: Final[Mapping[ThrottleLaw, Any]] = {
    ThrottleLaw.TOKEN_BUCKET: token_bucket,
    ThrottleLaw.WINDOWED_RATE: windowed_rate,
    ThrottleLaw.AMENDED_RATE: amended_rate,
    ThrottleLaw.SLIDING_WINDOW: sliding_window,
}
"""The implementation of each law."""

LAWS: Final = tuple(FORMS)
"""Laws by code."""


@dataclass(frozen=True)
class Bank:
    """The laws, quotas and states of e entities."""

    law: IntArray
    """(e,) indexes into ``LAWS``."""
    quotas: Quotas
    states: Mapping[ThrottleLaw, tuple[Any, ...]]
    """For each law, the state of its entities, in their order."""

    def __len__(self) -> int:
        return len(self.law)

    def answer(self, requests: Requests) -> tuple[Bank, Answers]:
        """Answer requests; returns the new bank, this one is not modified.

        Raises:
            InputError: as ``waves.answer``, but its index counts requests under the same law.
        """
        n = len(requests.entity)
        check_entities(requests.entity, len(self))
        answers = Answers(np.ones(n, np.bool_), np.zeros(n), np.zeros(n))
        states = dict(self.states)
        for law, members, place in self._laws():
            at: IntArray | slice = slice(None)
            if len(states) > 1:
                at = np.flatnonzero(members[requests.entity])
            own = Requests(place[requests.entity[at]], requests.at_ms[at], requests.units[at])
            quotas = self.quotas.take(members)
            states[law], own_answers = answer(FORMS[law], states[law], quotas, own)
            for whole, part in zip(answers, own_answers, strict=True):
                whole[at] = part
        return replace(self, states=states), answers

    def change(self, law: IntArray, quotas: Quotas) -> Bank:
        """The bank with new laws and quotas; there may be more entities, which start unused.

        An entity also starts unused if its law or windows change; except that a token bucket has no
        windows, and keeps its tokens up to the new burst.

        Raises:
            InputError: there are fewer entities than before.
        """
        before = len(self)
        if len(law) < before:
            raise InputError(f"a bank of {before} entities can't become one of {len(law)}")
        same = law[:before] == self.law
        other_windows = (quotas.samples[:before] != self.quotas.samples) | (
            quotas.window_ms[:before] != self.quotas.window_ms
        )
        same &= (law[:before] == LAWS.index(ThrottleLaw.TOKEN_BUCKET)) | ~other_windows
        keeps = np.concatenate([same, np.zeros(len(law) - before, np.bool_)])
        bank = begin(law, quotas)
        for name, members, _ in bank._laws():
            if name not in self.states:
                continue
            members_before = np.flatnonzero(self.law == LAWS.index(name))
            new = bank.states[name]
            target, source = keeps[members], same[members_before]
            for field, old in zip(new, self.states[name], strict=True):
                depth = (..., slice(None)) if old.ndim == 1 else slice(min(len(old), len(field)))
                field[depth][..., target] = old[depth][..., source]
        return bank

    def take(self, entities: IntArray) -> Bank:
        """The bank of some of the entities."""
        states = {}
        for name, members, place in self._laws():
            own = place[entities[members[entities]]]
            if len(own):
                states[name] = take(self.states[name], own)
        return Bank(self.law[entities], self.quotas.take(entities), states)

    def balance(self, at_ms: FloatArray) -> FloatArray:
        """The units that each entity has left at times (e,), not before its last request."""
        balance = np.zeros(len(self))
        for law, members, _ in self._laws():
            form = FORMS[law]
            terms = form.terms(self.quotas.take(members))
            balance[members] = form.balance(self.states[law], terms, at_ms[members])
        return balance

    def _laws(self) -> Sequence[tuple[ThrottleLaw, BoolArray, IntArray]]:
        """Each law in use, its members as a mask (e,), and their positions (e,) in its state."""
        laws = []
        for law in self.states:
            members = self.law == LAWS.index(law)
            laws.append((law, members, np.cumsum(members) - 1))
        return laws


def begin(law: IntArray, quotas: Quotas) -> Bank:
    """A bank of unused entities; ``law`` (e,): indexes into ``LAWS``.

    >>> bank = begin(np.array([0, 3]), Quotas.of([5.0, 5.0], samples=20))
    >>> requests = Requests(np.array([0, 1]), np.array([1000, 1000]), np.array([60.0, 60.0]))
    >>> bank, answers = bank.answer(requests)
    >>> answers.balance.tolist()
    [40.0, 40.0]
    >>> bank.balance(np.array([2000.0, 2000.0])).tolist()
    [45.0, 40.0]
    """
    used = [name for code, name in enumerate(LAWS) if (law == code).any()]
    states = {name: FORMS[name].begin(quotas.take(law == LAWS.index(name))) for name in used}
    return Bank(law, quotas, states)
