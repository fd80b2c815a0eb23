"""Reads and writes rates of topics: several at once, none twice, within a budget."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any, Final

import numpy as np

from quotaplane.agents.failures import FailureLog
from quotaplane.agents.pace import Bucket, Pace, start
from quotaplane.enforce.rate_writes import Moves, in_turn
from quotaplane.enforce.rates_in_force import RatesInForce
from quotaplane.model import FloatArray
from quotaplane.pulsar_admin.rest import RefusedError, Rest
from quotaplane.pulsar_admin.topic_rates import read_rate, write_rate
from quotaplane.settings import Enforce
from quotaplane.topic_layout import KINDS

_WRITES: Final = "writing rates"
_READS: Final = "reading rates"
_CHECKED_SHARE: Final = 0.1
"""Of the reads: for rates that are known already."""
_CHECKED_EVERY_S: Final = 60.0
"""Not more often: who asks for a topic while it moves has some broker take it at once."""
_LEAVING_AGAIN_S: Final = 5.0
_HURRIED_AT_ONCE: Final = 1000
_NONE: Final = np.full(2, np.inf)


class RateWriter:
    """Brings moves into force, and keeps the ledger; ``gone`` is told of topics that vanished."""

    def __init__(
        self,
        rest: Rest,
        ledger: RatesInForce,
        reads: Pace,
        enforce: Enforce,
        failure_log: FailureLog,
        gone: Callable[[str], None],
    ) -> None:
        self._rest, self._ledger, self._reads = rest, ledger, reads
        self.budget = Bucket(enforce.max_writes_per_s)
        """Of writes, whoever makes them."""
        self._concurrency = enforce.concurrency
        # As many as the budget allows: how many requests are under way, ``rest`` bounds.
        self._at_once = max(enforce.concurrency, math.ceil(enforce.max_writes_per_s))
        self._reads_at_once = math.ceil(enforce.max_reads_per_s * enforce.interval_s)
        self._to_read: dict[tuple[str, int], None] = {}
        self._checks_per_s = enforce.max_reads_per_s * _CHECKED_SHARE
        self._checked, self._due, self._checked_s = 0, 0.0, np.inf
        self._failure_log, self._gone = failure_log, gone
        self._writing: set[asyncio.Task[None]] = set()
        self._reading: set[asyncio.Task[None]] = set()
        self._written = self._removed = self._read = self._vanished = 0

    def counts(self) -> dict[str, int]:
        """How often what was done."""
        return {
            "written": self._written,
            "removed": self._removed,
            "read": self._read,
            "vanished": self._vanished,
        }

    @property
    def at_rest(self) -> bool:
        """Whether nothing is under way or to come."""
        return not (self._writing or self._reading or self._to_read or self._ledger.leaving)

    def forget_gone(self) -> None:
        """Whatever failed on topics that are not there any more is no trouble now."""
        place, leaving = self._ledger.layout.place, self._ledger.leaving
        named = {_named(*key) for key in leaving}
        for part in (_WRITES, _READS):
            self._failure_log.retain(
                part, lambda of: of.rpartition(" (")[0] in place or of in named
            )

    def hurry(self) -> None:
        """From now on only ``concurrency`` bounds the writes, and nothing known is read again."""
        self.budget = Bucket(1e9)
        self._at_once = _HURRIED_AT_ONCE
        self._checks_per_s = 0.0

    def begin(self, moves: Moves, now_s: float) -> int:
        """Start what the budget allows; returns how many writes must wait."""
        ledger = self._ledger
        room = max(min(self.budget.room(now_s), self._at_once - len(self._writing)), 0)
        count = min(room, len(moves.topic))
        ledger.start(moves, count, now_s)
        for topic, kind, rates in zip(
            moves.topic[:count].tolist(), moves.kind[:count].tolist(), moves.rates, strict=False
        ):
            start(self._writing, self._write(ledger.layout.topics[topic], kind, rates))
        leaving = [key for key, at_s in ledger.leaving.items() if at_s <= now_s]
        for topic, kind in leaving[: room - count]:
            ledger.leaving[topic, kind] = np.inf
            start(self._writing, self._remove(topic, kind))
        begun = count + min(len(leaving), room - count)
        self.budget.take(begun)
        return len(moves.topic) + len(leaving) - begun

    def read_unknown(self, moves: Moves, odd: Collection[str] = ()) -> None:
        """Read what is in force where that is not known, and of topics where it seems odd."""
        place = self._ledger.layout.place
        for topic in odd:
            if topic in place:
                self._check(place[topic], range(len(KINDS)))
        layout = self._ledger.layout
        unread = np.argwhere(moves.unread)
        unread = unread[in_turn(layout.group[unread[:, 0]])]
        for at, kind in unread[: self._reads_at_once].tolist():
            self._queue(layout.topics[at], kind)
        self._start_reading()

    def check(self, now_s: float) -> None:
        """Read some of what is known, in turn: somebody else may have changed it."""
        every = len(KINDS) * len(self._ledger.layout.topics)
        passed_s = max(now_s - self._checked_s, 0.0)
        self._checked_s = now_s
        self._due += passed_s * min(self._checks_per_s, every / _CHECKED_EVERY_S)
        count = min(int(self._due), self._reads_at_once)
        self._due -= int(self._due)
        for _ in range(count):
            self._checked = (self._checked + 1) % every
            topic, kind = divmod(self._checked, len(KINDS))
            self._check(topic, [kind])
        self._start_reading()

    def _check(self, topic: int, kinds: Iterable[int]) -> None:
        ledger = self._ledger
        for kind in kinds:
            # What nobody has now is left alone.
            if ledger.is_known(topic, kind) and ledger.is_owned(topic):
                self._queue(ledger.layout.topics[topic], kind)

    def _queue(self, topic: str, kind: int) -> None:
        """To be read when its turn comes; beyond what can be soon it is let be for now."""
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
            # Not before its turn: what waits can still be written, and may have left by now.
            topic, kind = next(iter(self._to_read))
            del self._to_read[topic, kind]
            if self._ledger.reading(topic, kind):
                await self._look(topic, kind)

    async def _write(self, topic: str, kind: int, rates: FloatArray) -> None:
        work = write_rate(self._rest, topic, kind, rates)
        if await self._tried(topic, kind, work, wrote=True):
            self._ledger.settled(topic, kind, rates, wrote=True)
            if np.isfinite(rates).any():
                self._written += 1
            else:
                self._removed += 1

    async def _look(self, topic: str, kind: int) -> None:
        found: list[FloatArray] = []

        async def look() -> None:
            found.append(await read_rate(self._rest, topic, kind))

        if await self._tried(topic, kind, look(), wrote=False):
            self._ledger.settled(topic, kind, found[0], wrote=False)
            self._read += 1

    async def _tried(
        self, topic: str, kind: int, work: Coroutine[Any, Any, None], *, wrote: bool
    ) -> bool:
        """Whether it was done; if not, that was told."""
        part, of = _WRITES if wrote else _READS, _named(topic, kind)
        try:
            await work
        except asyncio.CancelledError:
            self._ledger.failed(topic, kind, -np.inf, wrote=wrote)
            raise
        except Exception as error:
            # Also a mistake of ours: the topic would be under way for ever.
            now_s = asyncio.get_running_loop().time()
            self._ledger.failed(topic, kind, now_s, wrote=wrote)
            if _is_gone(error):
                # Deleted a moment ago: nothing is wrong with that.
                self._vanished += 1
                self._ledger.gone(topic, kind)
                self._gone(topic)
            # Of a topic that left, taking its rate off is what may fail from now on.
            left = topic not in self._ledger.layout.place
            self._failure_log.note(part, of, None if left or _is_gone(error) else error)
            return False
        self._failure_log.note(part, of, None)
        return True

    async def _remove(self, topic: str, kind: int) -> None:
        """Take our rate off a topic that left its group."""
        leaving = self._ledger.leaving
        of = _named(topic, kind)
        try:
            await write_rate(self._rest, topic, kind, _NONE)
        except Exception as error:
            if not _is_gone(error):
                self._failure_log.note(_WRITES, of, error)
                if (topic, kind) in leaving:
                    now_s = asyncio.get_running_loop().time()
                    leaving[topic, kind] = now_s + _LEAVING_AGAIN_S
                return
        else:
            self._removed += 1
        self._failure_log.note(_WRITES, of, None)
        leaving.pop((topic, kind), None)
        # It may be in a group again by now, and then this was one too many.
        self._ledger.unknown(topic, kind)

    async def idle(self, patience_s: float) -> None:
        """Wait for what is under way; what takes longer is given up."""
        self._to_read.clear()
        tasks = self._writing | self._reading
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=patience_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


def _named(topic: str, kind: int) -> str:
    return f"{topic} ({KINDS[kind]})"


def _is_gone(error: Exception) -> bool:
    return isinstance(error, RefusedError) and error.status == 404
