"""The enforcer of a Pulsar cluster: reads limits, writes rates of topics, until it is stopped."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import numpy as np

from quotaplane.cluster.pace import Pace
from quotaplane.cluster.rest import Rest
from quotaplane.enforce.in_force import InForce
from quotaplane.enforce.ledger import Ledger
from quotaplane.enforce.listener import Listener
from quotaplane.enforce.plan import Moves, Rates, plan
from quotaplane.enforce.scene import Scene
from quotaplane.enforce.subdivide import Division, divide
from quotaplane.enforce.takeover import Lost, TakeOver
from quotaplane.enforce.trouble import Say, Trouble
from quotaplane.enforce.writer import Writer
from quotaplane.model import BASIC
from quotaplane.settings import Settings
from quotaplane.transport import BrokerLink

_BROKERS_EVERY_S: Final = 1.0
_TOPICS_EVERY_S: Final = 2.0
_TAKE_OVER_EVERY_S: Final = 2.0
_TAKE_OVER_SHARE: Final = 0.25
"""Of the reads: to see which groups have a quota in the cluster."""
_SLOW_STATS_S: Final = 10.0
_LEAVE_WITHIN_S: Final = 20.0
_HAND_BACK_WITHIN_S: Final = 12.0
_NAMED: Final = 5
_PATIENCE_S: Final = 2.0
_SOON_S: Final = 0.02
_CANCELLED_AGAIN_S: Final = 0.2
_STILL_TICKS: Final = 3


class Enforcer:
    """One cluster's enforcer.

    ``say`` is given lines that somebody should read; ``now_ms`` is the wall clock, by which leases
    go.
    """

    def __init__(
        self,
        settings: Settings,
        rest: Rest,
        link: BrokerLink,
        say: Say,
        *,
        now_ms: Callable[[], float] = lambda: time.time() * 1000.0,
    ) -> None:
        enforce = settings.enforce
        self._enforce, self._say, self._now_ms = enforce, say, now_ms
        self._trouble = Trouble(say)
        reads = Pace(enforce.max_reads_per_s)
        self._listener = Listener(link, self._trouble, say, now_ms)
        self._ledger = Ledger()
        self._scene = Scene(rest, reads, self._trouble)
        most = math.ceil(_TAKE_OVER_SHARE * enforce.max_reads_per_s * _TAKE_OVER_EVERY_S)
        self._take_over = TakeOver(rest, settings.history, reads, self._trouble, most)
        self._lost = Lost(say)
        self._writer = Writer(rest, self._ledger, reads, enforce, self._trouble, self._gone)
        self._ticks_still = 0
        self._waiting = 0
        self._in_force = InForce()

    def _gone(self, topic: str) -> None:
        self._scene.placement.forget_topic(topic)

    async def start(self) -> None:
        """Look whether the cluster lets us in.

        Raises:
            ClusterError: it does not, or can't be reached.
        """
        await self._scene.start()
        live, interval_s = self._scene.told
        if not live and interval_s > _SLOW_STATS_S and self._enforce.divide != "even":
            self._say(
                f"cluster {self._scene.cluster}: its brokers say what topics use every "
                f"{interval_s:g} s only; a topic that wakes waits as long for its share: set "
                "exposeTopicLevelMetricsInPrometheus=true, or statsUpdateFrequencyInSecs=5"
            )

    async def run(self, stop: asyncio.Event) -> None:
        """Enforce until ``stop`` is set, then leave as ``on_exit`` says."""
        await self._until(stop)
        if self._enforce.on_exit != "keep":
            if self._scene.ready and self._listener.caught_up:
                await self._leave()
            else:
                self._say(f"on_exit: {self._enforce.on_exit}: not done, nothing was known yet")
        await self._writer.idle(_PATIENCE_S)

    async def run_dry(self, stop: asyncio.Event) -> None:
        """Go on until there is nothing left to write, and leave everything as it is."""
        self._writer.hurry()
        running = asyncio.create_task(self._until(stop))
        while not (stop.is_set() or self._ticks_still >= _STILL_TICKS):
            await _within(self._enforce.interval_s, stop.wait())
        stop.set()
        await running

    async def _until(self, stop: asyncio.Event) -> None:
        scene, interval_s = self._scene, self._enforce.interval_s
        parts: list[tuple[str, float, Callable[[], Awaitable[None]]]] = [
            ("limits", interval_s, self._listener.listen),
            ("brokers", _BROKERS_EVERY_S, scene.look_at_brokers),
            ("topics", _TOPICS_EVERY_S, scene.look_at_topics),
            ("use of topics", scene.look_every_s, scene.look_at_usage),
            ("division", interval_s, self._tick),
        ]
        if self._enforce.take_over:
            parts.append(("take over", _TAKE_OVER_EVERY_S, self._take))
        tasks = {asyncio.create_task(self._again(*part, stop)) for part in parts}
        await stop.wait()
        while tasks:
            # Again and again: Python before 3.12 may lose a cancellation that comes with an answer.
            for task in tasks:
                task.cancel()
            _, tasks = await asyncio.wait(tasks, timeout=_CANCELLED_AGAIN_S)

    async def _again(
        self, part: str, every_s: float, work: Callable[[], Awaitable[None]], stop: asyncio.Event
    ) -> None:
        """Work again and again, never twice at once; what fails is told, and tried again."""
        loop = asyncio.get_running_loop()
        while not stop.is_set():
            begun_s = loop.time()
            failed: Exception | None = None
            try:
                await work()
            except Exception as error:
                # Even a mistake of ours must not end what keeps limits.
                failed = error
            self._trouble("enforcer", part, failed)
            await _within(max(begun_s + every_s - loop.time(), _SOON_S), stop.wait())

    async def _tick(self) -> None:
        if not (self._listener.caught_up and self._scene.ready):
            return
        now_s = asyncio.get_running_loop().time()
        self._refresh(now_s)
        moves, division = self._planned(self._now_ms(), self._ledger.rates(now_s))
        self._waiting = self._writer.begin(moves, now_s)
        self._writer.read_unknown(moves, self._scene.usage.odd())
        self._writer.check(now_s)
        still = self._writer.at_rest and not (len(moves.topic) or moves.unread.any())
        self._ticks_still = self._ticks_still + 1 if still else 0
        if self._enforce.take_over:
            layout, told_ms = self._ledger.layout, self._listener.book.told_ms
            rates = self._ledger.rates(now_s)
            self._in_force.note(layout, division.rates, rates, moves, told_ms(layout.groups))

    def _refresh(self, now_s: float) -> None:
        layout = self._scene.changed()
        if layout is not None:
            self._ledger.carry(layout)
            self._writer.forget_gone()
            self._listener.forget_gone(layout.brokers)
        self._scene.usage.under(self._ledger.in_force, now_s)

    def _planned(
        self, now_ms: float, rates: Rates, significant_change: float | None = None
    ) -> tuple[Moves, Division]:
        layout, usage = self._ledger.layout, self._scene.usage
        pairs = layout.pairs
        limits = self._listener.book.in_force(
            layout.brokers,
            layout.groups,
            pairs.broker,
            pairs.group,
            now_ms,
            keep_removed=self._enforce.take_over,
        )
        division = divide(
            layout,
            limits,
            usage.usage,
            usage.saturated,
            law=self._enforce.divide,
            floor_share=self._enforce.floor_share,
        )
        if significant_change is None:
            significant_change = self._enforce.significant_change
        return plan(
            layout, limits, division, rates, significant_change=significant_change
        ), division

    async def _take(self) -> None:
        layout = self._ledger.layout
        self._lost.tell(self._listener.book.removed(layout.brokers, layout.groups))
        await self._take_over.take(self._in_force.groups())

    async def _leave(self) -> None:
        """As ``on_exit`` says; what of it could not be done is told."""
        within_s, on_exit = _LEAVE_WITHIN_S, self._enforce.on_exit
        await self._writer.idle(_PATIENCE_S)
        moves_of: Callable[[Rates], Moves]
        if on_exit == "safe":
            moves_of = self._safe
        else:
            # First back to the brokers' own calculator: nobody is without a limit in between.
            begun_s = asyncio.get_running_loop().time()
            kept = await self._take_over.hand_back(
                self._ledger.layout.groups,
                _HAND_BACK_WITHIN_S,
                taking_over=self._enforce.take_over,
            )
            within_s -= asyncio.get_running_loop().time() - begun_s
            if kept:
                self._say(
                    f"on_exit: remove: the publish quotas of {_some(kept)} could not be handed "
                    "back to the cluster: their rates stay"
                )
            moves_of = partial(self._removal, kept)
        await _within(within_s, self._write_all(moves_of))
        await self._writer.idle(_PATIENCE_S)
        left = self._left(moves_of)
        if left:
            self._say(f"on_exit: {left} rates were not written in time")

    def _safe(self, rates: Rates) -> Moves:
        """The safe limits, as after the end of every lease."""
        return self._planned(np.inf, rates, 0.0)[0]

    def _removal(self, kept: set[str], in_force: Rates) -> Moves:
        """All rates off but those of some groups; what is not known is read before."""
        layout = self._ledger.layout
        limits, rates, shares = (
            np.full((len(things), BASIC), np.inf)
            for things in (layout.pairs.broker, layout.topics, layout.parts)
        )
        stays = np.array([group in kept for group in layout.groups], np.bool_)[layout.group]
        rates[stays] = np.nan
        shares[stays[layout.topic]] = np.nan
        unlimited = Division(rates, shares, rates)
        return plan(layout, limits, unlimited, in_force, significant_change=0.0)

    async def _write_all(self, moves_of: Callable[[Rates], Moves]) -> None:
        """Write until nothing is left; there is no budget for this any more."""
        loop = asyncio.get_running_loop()
        self._writer.hurry()
        self._ledger.at_once()
        while True:
            now_s = loop.time()
            self._refresh(now_s)
            moves = moves_of(self._ledger.rates(now_s))
            if not len(moves.topic) and self._writer.at_rest and not self._left(moves_of):
                return
            self._writer.begin(moves, now_s)
            self._writer.read_unknown(moves)
            await asyncio.sleep(_SOON_S)

    def _left(self, moves_of: Callable[[Rates], Moves]) -> int:
        """How many rates are not as they should be, or nobody knows; also where something failed
        lately.
        """
        rates = self._ledger.rates(0.0)
        moves = moves_of(rates._replace(free=np.ones_like(rates.free)))
        left = moves.unread.copy()
        left[moves.topic, moves.kind] = True
        return int(left.sum()) + len(self._ledger.leaving)

    def status(self) -> dict[str, Any]:
        """Figures since the start, and how it stands."""
        layout = self._ledger.layout
        age_s = round(self._listener.age_ms() / 1000.0, 1)
        return {
            "brokers": len(layout.brokers),
            "groups": len(layout.groups),
            "topics": len(layout.topics),
            "limited": int(np.isfinite(self._ledger.in_force).any(axis=1).sum()),
            "waiting": self._waiting,
            **self._writer.counts(),
            "taken_over": self._take_over.taken,
            "handed_back": self._take_over.handed_back,
            "errors": self._trouble.errors,
            "newest_limits_s": age_s if self._listener.book.issued_at_ms else None,
        }


def _some(names: set[str]) -> str:
    """So many that a line can be read."""
    first = sorted(names)[:_NAMED]
    more = len(names) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")


async def _within(seconds: float, work: Awaitable[Any]) -> None:
    try:
        await asyncio.wait_for(work, seconds)
    except asyncio.TimeoutError:
        return
