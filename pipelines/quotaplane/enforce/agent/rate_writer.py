"""Reads and writes the rates of topics: concurrently, one request per rate, within budgets.

A topic may have a rate of an administrator. It counts as the topic's ceiling, is recorded before
ours takes its place (``AdministratorRates``), and comes back when ours goes.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import READING_RATES, WRITING_RATES
from quotaplane.agents.pace import Bucket, Pace, ended, start
from quotaplane.enforce.agent.administrator_rates import AdministratorRates
from quotaplane.enforce.rate_writes import Moves, in_turn
from quotaplane.enforce.rates_in_force import RatesInForce
from quotaplane.errors import HistoryError
from quotaplane.model import BoolArray, FloatArray
from quotaplane.pulsar_admin.rest import NotFoundError, Rest
from quotaplane.pulsar_admin.topic_rates import (
    NO_RATE,
    OwnRate,
    give_back,
    own_rate,
    read_rate,
    write_rate,
)
from quotaplane.settings import Enforce
from quotaplane.topics.rate_marks import Mark
from quotaplane.topics.topic_layout import KINDS, SIDES

_CHECKED_SHARE: Final = 0.1
"""Part of the read budget for checks of rates that are known already: half of it for all in turn,
half for those that are about to be written."""
_CHECKED_EVERY_S: Final = 60.0
"""A known rate is checked at most this often: a lookup of a topic that is being moved makes Pulsar
assign it to some broker at once."""
_NO_POLICY: Final = "the administrator's rate can't be read from the history"
_REMOVAL_RETRY_S: Final = 5.0
_HURRIED_AT_ONCE: Final = 1000
Result: TypeAlias = Literal["written", "removed", "given_back", "read", "vanished", "failed"]


class RateWriter:
    """Makes the planned writes and records their results; calls ``gone`` for deleted topics."""

    def __init__(
        self,
        rest: Rest,
        topic_rates: RatesInForce,
        administrators: AdministratorRates,
        reads: Pace,
        enforce: Enforce,
        conditions: Conditions,
        gone: Callable[[str], None],
    ) -> None:
        self._rest, self._topic_rates, self._reads = rest, topic_rates, reads
        self._administrators = administrators
        self.budget = Bucket(enforce.max_writes_per_s)
        """Write budget, shared with ``NamespaceDefaults``."""
        self._concurrency = enforce.concurrency
        # As many tasks as the budget allows, as ``rest`` bounds the requests in flight.
        self._at_once = max(enforce.concurrency, math.ceil(enforce.max_writes_per_s))
        self._reads_at_once = math.ceil(enforce.max_reads_per_s * enforce.interval_s)
        self._to_read: dict[tuple[str, int], None] = {}
        self._checks_per_s = enforce.max_reads_per_s * _CHECKED_SHARE / 2.0
        self._checks_of_writes = Bucket(self._checks_per_s)
        self._checked, self._due, self._checked_s = 0, 0.0, np.inf
        self._conditions, self._gone = conditions, gone
        self._writing: set[asyncio.Task[None]] = set()
        self._reading: set[asyncio.Task[None]] = set()
        self.counts = Counter[Result]()
        """Requests since the start, by result."""

    @property
    def at_rest(self) -> bool:
        """Whether no request is in flight or waiting."""
        return not (self._writing or self._reading or self._to_read or self._topic_rates.to_remove)

    def forget_deleted(self) -> None:
        """Drop the failures of topics that don't exist any more."""
        place = self._topic_rates.layout.topic_index
        named = {_named(*key) for key in self._topic_rates.to_remove}
        for part in (WRITING_RATES, READING_RATES):
            self._conditions.retain(
                part, lambda item: item.rpartition(" (")[0] in place or item in named
            )

    def hurry(self) -> None:
        """From now on ignore the write budget and don't check known rates."""
        self.budget = Bucket(1e9)
        self._at_once = _HURRIED_AT_ONCE
        self._checks_per_s = 0.0

    def begin(self, moves: Moves, now_s: float) -> int:
        """Start as many writes as the budget allows; returns how many must wait.

        An administrator's rate that is not recorded yet is not overwritten.
        """
        topic_rates, wanted = self._topic_rates, len(moves.topic)
        moves = moves.without(topic_rates.held)
        room = max(min(self.budget.room(now_s), self._at_once - len(self._writing)), 0)
        count = min(room, len(moves.topic))
        topic_rates.start(moves, count, now_s)
        for topic, kind, rates in zip(
            moves.topic[:count].tolist(), moves.kind[:count].tolist(), moves.rates, strict=False
        ):
            check = self._checks_of_writes.room(now_s) > 0
            self._checks_of_writes.take(check)
            in_place = bool(topic_rates.recorded[topic, kind])
            work = self._write(topic_rates.layout.topics[topic], kind, rates, in_place, check)
            start(self._writing, work)
        removals = [key for key, at_s in topic_rates.to_remove.items() if at_s <= now_s]
        for topic, kind in removals[: room - count]:
            topic_rates.to_remove[topic, kind] = np.inf
            start(self._writing, self._remove(topic, kind))
        begun = count + min(len(removals), room - count)
        self.budget.take(begun)
        return wanted + len(removals) - begun

    def read_unknown(
        self,
        moves: Moves,
        implausible: Collection[str] = (),
        limited: BoolArray | None = None,
    ) -> None:
        """Read unknown rates, and the rates of topics whose usage is implausible under them.

        Rates that will be limited come first (``limited`` (u, 2) by kind; None: all are), then the
        newest topics: an older one was limited before, or is one of too many in any case.
        """
        place = self._topic_rates.layout.topic_index
        for topic in implausible:
            if topic in place:
                self._check(place[topic], range(len(KINDS)))
        layout = self._topic_rates.layout
        unread = np.argwhere(moves.unread)
        topic, kind = unread.T
        later = np.zeros(len(topic), np.bool_) if limited is None else ~limited[topic, kind]
        unread = unread[np.lexsort((-self._topic_rates.born[topic], later))]
        unread = unread[in_turn(layout.group[unread[:, 0]])]
        first = [(layout.topics[at], kind) for at, kind in unread[: self._reads_at_once].tolist()]
        # What waits from earlier calls goes behind these, and is dropped where there is no room.
        waiting = [*dict.fromkeys([*first, *self._to_read])]
        self._to_read = dict.fromkeys(waiting[: self._reads_at_once])
        self._start_reading()

    def check(self, now_s: float) -> None:
        """Read some of the known rates, in turn: somebody else may have changed them."""
        rates = len(KINDS) * len(self._topic_rates.layout.topics)
        passed_s = max(now_s - self._checked_s, 0.0)
        self._checked_s = now_s
        self._due += passed_s * min(self._checks_per_s, rates / _CHECKED_EVERY_S)
        count = min(int(self._due), self._reads_at_once)
        self._due -= int(self._due)
        for _ in range(count):
            self._checked = (self._checked + 1) % rates
            topic, kind = divmod(self._checked, len(KINDS))
            self._check(topic, [kind])
        self._start_reading()

    def _check(self, topic: int, kinds: Iterable[int]) -> None:
        topic_rates = self._topic_rates
        for kind in kinds:
            # A lookup of a topic without a broker would make Pulsar load it.
            if topic_rates.is_known(topic, kind) and topic_rates.is_owned(topic):
                self._queue(topic_rates.layout.topics[topic], kind)

    def _queue(self, topic: str, kind: int) -> None:
        """Queue a read, unless the queue is longer than what one tick can read."""
        if len(self._to_read) < self._reads_at_once:
            self._to_read[topic, kind] = None

    def _start_reading(self) -> None:
        for _ in range(min(self._concurrency - len(self._reading), len(self._to_read))):
            start(self._reading, self._read_queued())

    async def _read_queued(self) -> None:
        while self._to_read:
            await self._reads.take()
            if not self._to_read:
                return
            # Marked as in flight only now: a queued topic can be written, and may leave.
            topic, kind = next(iter(self._to_read))
            del self._to_read[topic, kind]
            if self._topic_rates.begin_read(topic, kind):
                await self._look(topic, kind)

    async def _write(
        self, topic: str, kind: int, rates: FloatArray, in_place: bool, check: bool
    ) -> None:
        """Write a rate, or give the topic back if both numbers are unlimited.

        ``check``: read the rate first; where it is not the one that we know, nothing is written.
        """
        other: list[OwnRate] = []
        removes = not np.isfinite(rates).any()
        policy = self._administrators.policy_of(topic, kind) if removes and in_place else None

        async def work() -> None:
            if check:
                standing = await read_rate(self._rest, topic, kind)
                if not self._is_known(topic, kind, standing):
                    other.append(standing)
                    return
            if removes:
                if in_place and policy is None:
                    raise HistoryError(_NO_POLICY)
                await give_back(self._rest, topic, kind, policy)
            else:
                await write_rate(self._rest, topic, kind, rates, in_place=in_place)

        if not await self._tried(topic, kind, work(), wrote=True):
            return
        if other:
            self._take_in(topic, kind, other[0])
            self.counts["read"] += 1
        elif removes:
            given = own_rate(policy, kind)
            self._topic_rates.confirmed(
                *(topic, kind, given.rates), wrote=True, administrators=policy is not None
            )
            self._count_removal(policy)
        else:
            self._topic_rates.confirmed(topic, kind, rates, wrote=True)
            self.counts["written"] += 1

    async def _look(self, topic: str, kind: int) -> None:
        found: list[OwnRate] = []

        async def look() -> None:
            found.append(await read_rate(self._rest, topic, kind))

        if await self._tried(topic, kind, look(), wrote=False):
            self._take_in(topic, kind, found[0])
            self.counts["read"] += 1

    def _is_known(self, topic: str, kind: int, found: OwnRate) -> bool:
        """Whether a topic has a rate of the writer, administrator or enforcer, that we know."""
        topic_rates = self._topic_rates
        at = topic_rates.layout.topic_index.get(topic)
        if at is None:
            return True
        if found.policy is not None:
            known = np.array_equal(topic_rates.ceiling[at, SIDES[kind]], found.rates)
            return bool(topic_rates.administrators[at, kind]) and known
        recorded = bool(topic_rates.recorded[at, kind])
        return not recorded if found.mark is Mark.NONE else recorded or found.mark is Mark.OURS

    def _take_in(self, topic: str, kind: int, found: OwnRate) -> None:
        """Take in a rate that was read."""
        topic_rates, record = self._topic_rates, self._administrators
        at = topic_rates.layout.topic_index.get(topic)
        if at is None:
            topic_rates.confirmed(
                *(topic, kind, found.rates), wrote=False, administrators=found.policy is not None
            )
            return
        group = topic_rates.layout.groups[topic_rates.layout.group[at]]
        ceiling, recorded = NO_RATE.rates, False
        if found.mark is not Mark.NONE:
            # Also without that mark: a write that an earlier leader had sent may have come late.
            policy = record.policy_of(topic, kind)
            if policy is not None:
                ceiling, recorded = own_rate(policy, kind).rates, True
                record.found(topic, kind, group, ceiling, policy)
            elif found.mark is Mark.IN_PLACE:
                found = found.without_mark(kind)
                if record.loaded:
                    record.lost(topic, kind)
        if found.policy is not None:
            ceiling = found.rates
            # The rate there may be lower than the table's, while the table can't be read.
            if record.loaded:
                recorded = record.found(topic, kind, group, found.rates, found.policy)
        elif found.mark is Mark.NONE:
            record.gone(topic, kind)
        topic_rates.read(
            *(topic, kind, found.rates, ceiling),
            administrators=found.policy is not None,
            recorded=recorded,
        )

    async def _tried(
        self, topic: str, kind: int, work: Coroutine[Any, Any, None], *, wrote: bool
    ) -> bool:
        """Whether the request succeeded; a failure is recorded and reported."""
        part, item = WRITING_RATES if wrote else READING_RATES, _named(topic, kind)
        try:
            await work
        except asyncio.CancelledError:
            self._topic_rates.failed(topic, kind, -np.inf, wrote=wrote)
            raise
        except Exception as error:
            # Any exception: otherwise the topic would count as in flight for ever.
            now_s = asyncio.get_running_loop().time()
            self._topic_rates.failed(topic, kind, now_s, wrote=wrote)
            deleted = isinstance(error, NotFoundError)
            if deleted:  # a moment ago, which is no failure
                self.counts["vanished"] += 1
                self._topic_rates.mark_deleted(topic, kind)
                self._administrators.gone(topic, kind)
                self._gone(topic)
            elif wrote:
                self.counts["failed"] += 1
            # For a topic that left its group only the removal of its rate matters now.
            over = deleted or topic not in self._topic_rates.layout.topic_index
            self._conditions.note(part, item, None if over else error)
            return False
        self._conditions.note(part, item, None)
        return True

    async def _remove(self, topic: str, kind: int) -> None:
        """Give a topic that left its group back: remove our rate, if it still has one."""
        to_remove, record = self._topic_rates.to_remove, self._administrators
        item = _named(topic, kind)
        policy = None
        try:
            found = await read_rate(self._rest, topic, kind)
            if found.mark is not Mark.NONE:
                if found.mark is Mark.IN_PLACE and not record.loaded:
                    raise HistoryError(_NO_POLICY)
                policy = record.policy_of(topic, kind)
                if policy is None and found.mark is Mark.IN_PLACE:
                    record.lost(topic, kind)
                    policy = found.without_mark(kind).policy
                await give_back(self._rest, topic, kind, policy)
        except Exception as error:
            if not isinstance(error, NotFoundError):
                self.counts["failed"] += 1
                self._conditions.note(WRITING_RATES, item, error)
                if (topic, kind) in to_remove:
                    now_s = asyncio.get_running_loop().time()
                    to_remove[topic, kind] = now_s + _REMOVAL_RETRY_S
                return
        else:
            if found.mark is not Mark.NONE:
                self._count_removal(policy)
        self._conditions.note(WRITING_RATES, item, None)
        to_remove.pop((topic, kind), None)
        # The topic may be in a group again by now; then its rate must be written again, and a write
        # in place of the administrator's may be under way.
        if topic not in self._topic_rates.layout.topic_index:
            record.gone(topic, kind)
        self._topic_rates.mark_unknown(topic, kind)

    def _count_removal(self, policy: Mapping[str, Any] | None) -> None:
        """Count a rate of ours that is gone; ``policy``: what is there now."""
        if policy is None:
            self.counts["removed"] += 1
        else:
            self.counts["given_back"] += 1

    async def idle(self, patience_s: float) -> None:
        """Wait for requests in flight, and cancel those that take longer."""
        self._to_read.clear()
        await ended(self._writing | self._reading, patience_s)


def _named(topic: str, kind: int) -> str:
    return f"{topic} ({KINDS[kind]})"
