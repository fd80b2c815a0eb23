"""Elects one of several enforcers: it leads and writes rates, the others wait.

The leader has exclusive access to a topic of the cluster, and sends a beat to it every second. It
may write for ``HOLD_S`` after the start of its last accepted beat. A waiting enforcer takes the
access when it is free, or by force when there was no beat for ``SILENCE_S``, and then waits for
``HOLD_S`` before it writes: by then the earlier leader has stopped, also one that was frozen or cut
off. So two never write at once, and another one leads within 10 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

from quotaplane.agents.clock_steps import boot_clock
from quotaplane.agents.conditions import Conditions, Say
from quotaplane.agents.known_conditions import ENFORCER
from quotaplane.agents.periodic import waited
from quotaplane.errors import ClusterError, TransportError
from quotaplane.pulsar.leader_topic import Beat, LeaderTopic
from quotaplane.pulsar_admin.rest import RefusedError, Rest
from quotaplane.settings import PulsarConnection

BEAT_EVERY_S: Final = 1.0
SILENCE_S: Final = 4.0
"""Without a beat for so long, the leader counts as gone."""
LATE_S: Final = 2.0
"""Without a beat for so long, a waiting enforcer tries whether the access is free."""
HOLD_S: Final = 4.0
"""Time after the start of an accepted beat in which its sender may write."""
_PART: Final = "leader"


class ElectionTopic(Protocol):
    """See ``pulsar.leader_topic.LeaderTopic``."""

    def received(self) -> Beat | None:
        """The newest beat since the last call."""

    def acquire(self, *, fence: bool) -> bool:
        """Get the exclusive access."""

    def beat(self, *, leaves: bool = False) -> bool:
        """Show that this program has it."""

    def close(self) -> None:
        """Give it up."""


@contextlib.asynccontextmanager
async def taking_part(election: LeaderElection | None) -> AsyncIterator[None]:
    """A context in which an enforcer takes part in the election, if there is one."""
    over = asyncio.Event()
    task = None if election is None else asyncio.create_task(election.run(over))
    try:
        yield
    finally:
        over.set()
        if task is not None:
            await task


class LeaderElection:
    """One enforcer's part in the election.

    Args:
        topic: its methods are called in threads, one at a time.
        conditions: of the topic.
        say: prints a line when the leader changes.
        clock: seconds, which must pass also while the process is frozen.
    """

    def __init__(
        self,
        topic: ElectionTopic,
        conditions: Conditions,
        say: Say,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self._topic, self._conditions, self._say, self._clock = topic, conditions, say, clock
        self._has_access = False
        self._writes_from_s = math.inf
        self._writes_until_s = -math.inf
        self._beat_at_s = clock()
        """When another enforcer's last beat was received."""
        self._may_follow_at_once = True
        """No enforcer led before, or it said that it leaves."""
        self._follows = ""
        self._waited = False

    def leads(self) -> bool:
        """Whether this enforcer may write now."""
        return self._writes_from_s <= self._clock() < self._writes_until_s

    async def run(self, stop: asyncio.Event) -> None:
        """Take part until ``stop`` is set, then leave."""
        while not stop.is_set():
            try:
                await self.step()
                self._conditions.note(ENFORCER, _PART, None)
            except TransportError as error:
                self._conditions.note(ENFORCER, _PART, error)
            await waited(stop, BEAT_EVERY_S)
        await self.leave()

    async def step(self) -> None:
        """Send a beat, or look whether the access can be had.

        Raises:
            TransportError: the topic can't be used.
        """
        if self._has_access:
            await self._beat()
        else:
            await self._try_to_lead()

    async def leave(self) -> None:
        """Say to the others that this enforcer writes nothing any more."""
        self._writes_until_s = -math.inf
        if self._has_access:
            self._has_access = False
            try:
                await asyncio.to_thread(self._topic.beat, leaves=True)
            except TransportError as error:
                self._conditions.note(ENFORCER, _PART, error)
        await asyncio.to_thread(self._topic.close)

    async def _beat(self) -> None:
        begun_s = self._clock()
        if await asyncio.to_thread(self._topic.beat):
            self._writes_until_s = begun_s + HOLD_S
            if self._waited and self.leads():
                self._waited = False
                self._say("enforcer: this one leads now, and writes rates")
            return
        self._has_access = self._may_follow_at_once = False
        self._writes_from_s, self._writes_until_s = math.inf, -math.inf
        self._beat_at_s, self._follows, self._waited = self._clock(), "", True
        self._say("enforcer: another one has taken the lead; this one writes nothing, and waits")

    async def _try_to_lead(self) -> None:
        try:
            beat = await asyncio.to_thread(self._topic.received)
        except TransportError:
            self._beat_at_s = self._clock()  # the silence may be that of our own connection
            raise
        if beat is not None:
            self._note(beat)
        quiet_s = self._clock() - self._beat_at_s
        if not self._may_follow_at_once and quiet_s < LATE_S:
            return
        if not await asyncio.to_thread(self._topic.acquire, fence=quiet_s >= SILENCE_S):
            return
        now_s = self._clock()
        self._has_access = True
        self._writes_from_s = now_s if self._may_follow_at_once else now_s + HOLD_S
        await self._beat()

    def _note(self, beat: Beat) -> None:
        self._beat_at_s = self._clock()
        self._may_follow_at_once = beat.leaves
        if not beat.leaves and beat.program != self._follows:
            self._follows, self._waited = beat.program, True
            self._say(f"enforcer: {beat.program} leads; this one waits, and writes nothing")


class LeaderRest(Rest):
    """Makes requests that change something only while this enforcer leads."""

    election: LeaderElection | None = None

    def check_may_send(self, method: str, path: str) -> None:
        """Refuse what would change something once the lead is lost, also while it was waiting.

        Raises:
            ClusterError: this enforcer does not lead, and the request would change something.
        """
        if method != "GET" and self.election is not None and not self.election.leads():
            raise ClusterError(f"{method} {path}: not sent, as another enforcer may lead")


async def make_topic(rest: Rest, topic: str) -> None:
    """Create the topic of the election, if it does not exist.

    Raises:
        ClusterError: the cluster refuses, or can't be reached.
    """
    try:
        await rest.ask("PUT", rest.path("persistent", topic.removeprefix("persistent://")))
    except RefusedError as error:
        if error.status != 409:
            raise


async def take_part(
    rest: LeaderRest, place: PulsarConnection, topic: str, say: Say
) -> LeaderElection:
    """This process's part in the election by a topic; from now on ``rest`` heeds its result.

    Raises:
        ClusterError: the topic can't be created.
        ConfigError: a file in ``place.security`` can't be read.
    """
    await make_topic(rest, topic)
    process = f"process {os.getpid()} on host {socket.gethostname()}"
    opened = await asyncio.to_thread(LeaderTopic, place, topic, process)
    rest.election = LeaderElection(opened, rest.conditions, say)
    return rest.election
