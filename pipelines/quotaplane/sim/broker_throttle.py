"""Enforces limits in simulated brokers: with the throttle laws, request by request.

An entity is a group at a broker in one dimension; it has one limit. Its clients send the demanded
rate evenly, in requests that are small compared with the limit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.throttle.bank import FORMS, LAWS, begin
from quotaplane.throttle.terms import ThrottleTerms
from quotaplane.throttle.token_bucket import Buckets
from quotaplane.throttle.types import Quotas, ThrottleLaw, ThrottleMode
from quotaplane.throttle.waves import rounded, take

SLOTS_PER_S: Final = 20
"""Times per second at which requests are sent. A request is a 20th of a second's demand; if that is
more than a 20th of the limit, several smaller ones are sent at a time."""

_MOST_AT_ONCE: Final = 1e6


BY_DEFAULT: Final = ThrottleTerms(law=ThrottleLaw.TOKEN_BUCKET, mode=ThrottleMode.SOFT)
"""A soft bucket of one second, as brokers of Kafka and Pulsar have by default. They admit a request
above the limit, and then do not read from its client for a while (Kafka mutes the channel, Pulsar
stops reading from the connection); no request is refused."""


class BrokerThrottle:
    """The state of a throttle law for e entities, at first without limits.

    Each entity has its own clock, which counts its intervals.

    Soft: a client whose request is delayed sends nothing for the time of the delay. Hard: a refused
    request is lost, and the client sends the next one at its time. Requests that are lost or not
    sent are not repeated. A limit of 0 admits nothing, without a law: any bucket would admit a
    first request.

    >>> brokers = BrokerThrottle(3, BY_DEFAULT)
    >>> for _ in range(3):
    ...     brokers.use(np.full(3, 80.0), np.array([40.0, 90.0, 0.0])).tolist()
    [80.0, 80.0, 0.0]
    [40.0, 80.0, 0.0]
    [40.0, 80.0, 0.0]
    """

    def __init__(self, entities: int, terms: ThrottleTerms, *, interval_s: float = 1.0) -> None:
        self._terms, self._form = terms, FORMS[terms.law]
        self._slots = max(round(interval_s * SLOTS_PER_S), 1)
        self._interval_s = interval_s
        law = np.full(entities, LAWS.index(terms.law))
        self._bank = begin(law, self._quotas(np.full(entities, np.inf)))
        self._now_ms = np.zeros(entities)
        self._muted_until_ms = np.zeros(entities)

    def use(self, demand: FloatArray, limit: FloatArray, of: IntArray | None = None) -> FloatArray:
        """The usage in the next interval; all arrays (n,), per second.

        Args:
            demand: constant in the interval.
            limit: constant in the interval; 0 or more, inf for none.
            of: indexes of the n entities whose interval it is; None: all.
        """
        entities = np.arange(len(self._now_ms)) if of is None else of
        self._change(entities, limit)
        held = np.isfinite(limit)
        usage = np.where(held, 0.0, demand)
        asking = np.flatnonzero(held & (limit > 0.0) & (demand > 0.0))
        if len(asking):
            usage[asking] = self._admit(entities[asking], demand[asking], limit[asking])
        self._now_ms[entities] += self._interval_s * 1000.0
        return usage

    def _quotas(self, limit: FloatArray) -> Quotas:
        terms = self._terms
        hard = terms.mode is ThrottleMode.HARD
        return Quotas.of(limit, samples=terms.samples, window_ms=terms.window_ms, hard=hard)

    def forget(self, entities: BoolArray | IntArray) -> None:
        """Reset entities, as after a restart; they have no limit until the next ``use``."""
        rates = self._bank.quotas.rate_per_s.copy()
        rates[entities] = np.inf
        self._bank = replace(self._bank, quotas=self._quotas(rates))
        self._put(entities, self._form.begin(self._bank.quotas.take(entities)))
        self._muted_until_ms[entities] = 0.0

    def _put(self, entities: BoolArray | IntArray, new: tuple[Any, ...]) -> None:
        law = self._terms.law
        state = self._bank.states[law]
        after = type(state)(*(field.copy() for field in state))
        for field, column in zip(after, new, strict=True):
            field[..., entities] = column
        self._bank = replace(self._bank, states={law: after})

    def _change(self, entities: IntArray, limit: FloatArray) -> None:
        """Set new limits. A muted client's remaining mute time is shortened if its limit allows."""
        bank, now_ms = self._bank, self._now_ms
        rates = bank.quotas.rate_per_s.copy()
        moved = rates[entities] != limit
        if not moved.any():
            return
        rates[entities] = limit
        if self._terms.law is ThrottleLaw.TOKEN_BUCKET:
            # Until now tokens came in at the old rate; the bank would compute with the new one.
            made_up = Buckets(now_ms.copy(), bank.balance(now_ms))
            bank = replace(bank, states={ThrottleLaw.TOKEN_BUCKET: made_up})
        self._bank = bank.change(bank.law, self._quotas(rates))
        over = np.maximum(-self._bank.balance(now_ms), 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            within_ms = now_ms + over / rates * 1000.0  # NaN: not over a limit of 0
        muted = self._muted_until_ms
        at = entities[moved]
        muted[at] = np.fmin(muted[at], within_ms[at])

    def _admit(self, who: IntArray, demand: FloatArray, limit: FloatArray) -> FloatArray:
        """The admitted rates (n,) of an interval per second, computed slot by slot."""
        form, hard = self._form, self._terms.mode is ThrottleMode.HARD
        state = take(self._bank.states[self._terms.law], who)
        terms = form.terms(self._bank.quotas.take(who))
        muted = self._muted_until_ms[who]
        times = np.minimum(np.ceil(demand / limit), _MOST_AT_ONCE)
        units = demand * (self._interval_s / self._slots) / times
        admitted = np.zeros(len(who))
        for slot in range(self._slots):
            now = self._now_ms[who] + slot * (self._interval_s * 1000.0 / self._slots)
            sends = np.flatnonzero(muted <= now)
            sent = 0
            while len(sends):
                everybody = len(sends) == len(who)
                front = state if everybody else take(state, sends)
                own = terms if everybody else take(terms, sends)
                outcome = form.wave(front, own, now[sends], units[sends])
                front[0][:] = now[sends]  # last_ms, which a wave does not set
                if not everybody:
                    for whole, part in zip(state, front, strict=True):
                        whole[..., sends] = part
                admitted[sends] += ~outcome.refused
                sent += 1
                more = times[sends] > sent
                if hard:
                    more &= ~outcome.refused
                else:
                    wait_ms = np.where(outcome.over_ms > 0.0, rounded(outcome.over_ms), 0.0)
                    muted[sends] = now[sends] + wait_ms
                    more &= wait_ms == 0.0
                sends = sends[more]
        self._put(who, state)
        self._muted_until_ms[who] = muted
        through: FloatArray = admitted * units / self._interval_s
        return through


class BrokerThrottles:
    """As ``BrokerThrottle``, but the throttle terms may differ between entities.

    >>> brokers = BrokerThrottles(2, BY_DEFAULT)
    >>> window = ThrottleTerms(law=ThrottleLaw.SLIDING_WINDOW, mode=ThrottleMode.HARD)
    >>> brokers.put(np.array([1]), window)
    >>> brokers.use(np.full(2, 80.0), np.full(2, 40.0)).tolist()
    [80.0, 40.0]
    """

    def __init__(self, entities: int, terms: ThrottleTerms, *, interval_s: float = 1.0) -> None:
        self._own, self._interval_s = terms, interval_s
        self._by = {terms: BrokerThrottle(entities, terms, interval_s=interval_s)}
        self._code = np.zeros(entities, np.int64)

    def put(self, entities: IntArray, terms: ThrottleTerms | None) -> None:
        """Set the terms of some entities and reset these if changed; None: the initial terms."""
        terms = terms or self._own
        if terms not in self._by:
            self._by[terms] = BrokerThrottle(len(self._code), terms, interval_s=self._interval_s)
        code = list(self._by).index(terms)
        moved = entities[self._code[entities] != code]
        if len(moved):
            self._code[moved] = code
            self.forget(moved)

    def use(self, demand: FloatArray, limit: FloatArray, of: IntArray | None = None) -> FloatArray:
        """The usage in the next interval; see ``BrokerThrottle.use``."""
        entities = np.arange(len(self._code)) if of is None else of
        usage, codes = np.zeros(len(entities)), self._code[entities]
        for code, enforcer in enumerate(self._by.values()):
            mine = np.flatnonzero(codes == code)
            usage[mine] = enforcer.use(demand[mine], limit[mine], of=entities[mine])
        return usage

    def forget(self, entities: IntArray) -> None:
        """Reset entities, as after a restart."""
        for code, enforcer in enumerate(self._by.values()):
            enforcer.forget(entities[self._code[entities] == code])
