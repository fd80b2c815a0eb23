"""A run of the enforcer: two of them, the sync of groups, a Pulsar cluster, and their faults.

Real: the whole enforcer with its election, its custody of quotas, the sync of groups, the client
of the REST API. The quota job is a plain one: it divides each quota of the table at random.
"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Final

import numpy as np

from quotaplane.agents.conditions import Conditions
from quotaplane.enforce.agent.enforcer import Enforcer
from quotaplane.enforce.agent.enforcer_parts import EnforcerParts
from quotaplane.enforce.agent.leader_election import LeaderElection, LeaderRest
from quotaplane.errors import ClusterError, QuotaplaneError
from quotaplane.group_sync.sync import GroupSync
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.transport.base import Polled
from quotaplane.wire.limits import encode_limits
from tests.simulation.enforcer_faults import EnforcerFaults
from tests.simulation.enforcer_invariants import EnforcerInvariants
from tests.simulation.enforcer_knowledge import EnforcerKnowledge
from tests.simulation.enforcer_scenario import LEASE_MS, ROUND_MS, enforcer_scenario_of
from tests.simulation.invariants import ViolationError
from tests.simulation.memory_table import MemoryTable, in_memory
from tests.simulation.process_loop import Machines, ProcessLoop
from tests.simulation.pulsar_cluster import LimitsReader, SimulatedPulsar, SimulatedWire
from tests.simulation.virtual_time import START_MS, Timeline, Trace
from tests.unit.enforce.election_cases import ElectionRoom, ElectionSeat
from tests.unit.enforce.enforce_cluster import full
from tests.unit.pulsar_admin.cluster_cases import Answer

ENFORCERS: Final = 2
_SYNC_S: Final = 2.0
SETTLED_MS: Final = 75_000


class EnforcerProcess:
    """One start of an enforcer."""

    def __init__(self, world: EnforcerWorld, name: str) -> None:
        self.name, settings = name, world.scenario.settings
        self.loop = world.machines.start(name)
        self.seat = ElectionSeat(world.room, name)
        self.link = LimitsReader(world.messages)
        self.stop = asyncio.Event()
        say = partial(world.trace.note, "says", name)
        conditions = Conditions(say, clock=self.loop.time)
        self._rest = LeaderRest(
            settings.transport,  # type: ignore[arg-type]
            concurrency=world.scenario.requests_at_once,
            conditions=conditions,
            wire=SimulatedWire(world, self.loop),
        )
        election = LeaderElection(self.seat, conditions, say, self.loop.time)
        self._rest.election = election
        self.parts = EnforcerParts(
            settings, self._rest, self.link, say, election, now_ms=lambda: world.timeline.now_ms
        )
        self.enforcer = Enforcer(self.parts)
        self.loop.begin(self._run())

    async def _run(self) -> None:
        while True:
            try:
                await self.parts.start()
                break
            except ClusterError:
                await asyncio.sleep(1.0)  # a supervisor starts it again
        await self.enforcer.run(self.stop)


class EnforcerWorld:
    """Everything of one seed."""

    def __init__(self, seed: int, *, chaos_rounds: int | None = None) -> None:
        self.rng = Random(seed)
        self.scenario = enforcer_scenario_of(seed, self.rng)
        if chaos_rounds is not None:
            self.scenario = self.scenario._replace(chaos_s=chaos_rounds)
        self.timeline = Timeline()
        self.trace = Trace(self.timeline)
        self.machines = Machines(self.timeline)
        self.table = MemoryTable(self.timeline)
        self.room = ElectionRoom()
        self.messages: list[Polled] = []
        self.rounds = 0
        """Rounds of the plain quota job."""
        self.namespaces = {group: f"acme/of-{group}" for group in self.scenario.groups}
        of_group = {namespace: group for group, namespace in self.namespaces.items()}
        self.cluster = SimulatedPulsar(of_group, self.scenario.brokers)
        self.invariants = EnforcerInvariants(self)
        self.knowledge = EnforcerKnowledge(self)
        self.faults = EnforcerFaults(self)
        self.enforcers: list[EnforcerProcess | None] = [None] * ENFORCERS
        self.starts = 0
        self.job: ProcessLoop | None = None
        self.topics = 0
        for group in self.scenario.groups:
            self.set_quota(group)
            for _ in range(self.rng.randint(1, 4)):
                self.add_topic(group)

    # --- what administrators and clients do -------------------------------------------------------

    def set_quota(self, group: str) -> None:
        """Somebody sets a group's quota in the cluster."""
        quota = self.rng.choice([100, 200, 500, 1000])
        self.cluster.put(group, publishRateInMsgs=quota)
        self.invariants.quota_set(group, float(quota))

    def add_topic(self, group: str) -> None:
        """A client makes a topic."""
        self.topics += 1
        topic = full(f"t{self.topics}", self.namespaces[group])
        self.cluster.topics.add(topic)
        self.cluster.used[topic] = self.rng.choice([0.0, 5.0, 50.0, 400.0])

    # --- processes --------------------------------------------------------------------------------

    def start_enforcer(self, place: int) -> None:
        """Start one of the enforcers, if it does not run."""
        if self.enforcers[place] is None:
            self.starts += 1
            self.trace.note("enforcer starts", place, self.starts)
            self.enforcers[place] = EnforcerProcess(self, f"enforcer-{place}.{self.starts}")

    def kill_enforcer(self, place: int) -> None:
        """End one of the enforcers at once; its connection to the topic is noticed later."""
        process = self.enforcers[place]
        if process is None:
            return
        self.enforcers[place] = None
        self.machines.kill(process.loop)
        wait_ms = self.rng.choice([100, 3000, 15_000])
        self.timeline.after(wait_ms, lambda: self.room.left(process.seat))

    def start_job(self, *, new_epoch: bool = False) -> None:
        """Start the sync of groups and the plain quota job, if they don't run."""
        if self.job is not None:
            return
        self.starts += 1
        self.table.is_missing = False
        if new_epoch or self.table.epoch == 0:
            now_s = self.timeline.now_ms // 1000
            self.table.epoch = max(now_s, self.table.epoch + 1)
        self.job = self.machines.start(f"job-{self.starts}")
        self.trace.note("job starts", self.job.name, self.table.epoch)
        self.job.begin(self._run_job(self.job))

    def kill_job(self) -> None:
        """End it at once."""
        if self.job is not None:
            self.machines.kill(self.job)
            self.job = None

    async def _run_job(self, loop: ProcessLoop) -> None:
        settings = self.scenario.settings
        rest = Rest(settings.transport, wire=SimulatedWire(self, loop))  # type: ignore[arg-type]
        assert settings.cluster is not None
        say = partial(self.trace.note, "sync says")
        sync = GroupSync(settings.cluster, settings, "sync:blue", Conditions(say, clock=loop.time))
        publishing = loop.create_task(self._publish())
        while not publishing.done():
            try:
                await sync.sync(rest)
            except QuotaplaneError as error:
                self.trace.note("sync fails", str(error))
            await asyncio.sleep(_SYNC_S)
        publishing.result()

    async def _publish(self) -> None:
        seq = self.rounds
        while True:
            self.rounds += 1
            seq += 1
            if not self.table.is_missing:
                self._publish_round(seq)
            await asyncio.sleep(ROUND_MS / 1000)

    def _publish_round(self, seq: int) -> None:
        rows = self.table.rows
        groups = [g for g in sorted(rows) if rows[g].get("publish_messages_per_s") is not None]
        if not groups:
            return
        names = [f"pulsar://b{at}" for at in range(self.scenario.brokers)]
        quotas = np.array([rows[group]["publish_messages_per_s"] for group in groups])
        turn = Random(self.scenario.seed * 1000 + seq // 4)
        weights = np.array([[turn.random() + 0.1 for _ in names] for _ in groups])
        shares = quotas[:, None] * weights / weights.sum(axis=1, keepdims=True)
        for at, name in enumerate(names):
            limits = np.full((len(groups), 4), np.inf)
            limits[:, 0] = shares[:, at]
            safe = np.full((len(groups), 4), np.inf)
            safe[:, 0] = quotas / len(names)
            value = encode_limits(
                broker=name,
                shard=0,
                epoch=self.table.epoch,
                seq=seq,
                issued_at_ms=self.timeline.now_ms,
                lease_ms=LEASE_MS,
                groups=groups,
                limits=limits,
                safe_limits=safe,
            )
            self.messages.append(Polled(name, value, f"limits@{len(self.messages)}"))
        now_ms = self.timeline.now_ms
        pairs = zip(groups, quotas.tolist(), strict=True)
        self.knowledge.published_ms |= dict.fromkeys(pairs, now_ms)

    # --- the network ------------------------------------------------------------------------------

    def requested(
        self, loop: ProcessLoop, method: str, path: str, body: str
    ) -> asyncio.Future[Answer]:
        """A request leaves a process; the answer comes later, or never."""
        self.trace.note(method, loop.name, path, body)
        future: asyncio.Future[Answer] = loop.create_future()
        of_enforcer = loop is not self.job
        with suppress(ViolationError):  # it ends the run after this step
            if method != "GET":
                self.invariants.wrote(loop, method, path)
            if of_enforcer:
                self.knowledge.sent(loop, method, path, body)
        there_ms, back_ms = self.faults.delays()

        def arrive() -> None:
            answer = self.faults.answer() or self.cluster.handle(method, path, body)
            if of_enforcer:
                self.knowledge.arrived(method, path)
            if method != "GET":
                self.invariants.check_open()
            if back_ms is not None:
                self.timeline.after(back_ms, lambda: reach(answer))

        def reach(answer: Answer) -> None:
            if not loop.is_closed() and not future.done():
                if of_enforcer:
                    self.knowledge.answered(loop, method, path, answer)
                future.set_result(answer)

        if there_ms is not None:
            self.timeline.after(there_ms, arrive)
        return future

    # --- the run ----------------------------------------------------------------------------------

    def run(self, *, settles: bool = True) -> None:
        """Faults for some time, then none until everything must be in order.

        Raises:
            ViolationError: an invariant did not hold.
        """
        with in_memory(self.table):
            try:
                self.start_job()
                for place in range(ENFORCERS):
                    self.start_enforcer(place)
                self.timeline.after(500, self._check)
                self.faults.begin()
                self.machines.run_until(START_MS + self.scenario.chaos_s * 1000)
                if settles:
                    self.faults.end()
                    self.machines.run_until(self.timeline.now_ms + SETTLED_MS)
                    self.invariants.check_end()
                self.trace.note("end", self._summary())
            finally:
                self.trace.is_over = True
                self.machines.end()

    def _check(self) -> None:
        self.invariants.check_open()
        self.knowledge.check_rates()
        self.knowledge.check_by_hand()
        self.timeline.after(500, self._check)

    def _summary(self) -> str:
        state: Any = sorted((*key, *body.items()) for key, body in self.cluster.rates.items())
        return hashlib.blake2b(repr(state).encode(), digest_size=8).hexdigest()
