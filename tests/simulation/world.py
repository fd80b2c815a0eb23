"""A run: brokers, topics, the job's processes and its faults, by one random generator."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from tempfile import TemporaryDirectory

import numpy as np

from quotaplane.errors import QuotaplaneError
from quotaplane.groups.hierarchy import ancestors
from quotaplane.groups.ids import ids_of
from quotaplane.model import Round
from quotaplane.transport.base import Message, Polled
from tests.simulation.broker_process import BrokerProcess
from tests.simulation.faults import Faults
from tests.simulation.invariants import Invariants, ViolationError
from tests.simulation.job_process import JobProcess, KilledError
from tests.simulation.scenario import INTERVAL_MS, Scenario, scenario_of
from tests.simulation.served import Served
from tests.simulation.storage import (
    GroupTable,
    History,
    LeaderTable,
    StoredCheckpoint,
    StoredReport,
)
from tests.simulation.virtual_time import START_MS, Clock, Timeline, Trace

_LOOKS = 6
"""Most looks at the end, two rounds apart."""


class World:
    """Everything of one seed."""

    def __init__(self, seed: int, *, chaos_rounds: int | None = None) -> None:
        self.rng = Random(seed)
        self.scenario: Scenario = scenario_of(seed, self.rng, chaos_rounds=chaos_rounds)
        groups = self.scenario.groups
        self.group_ids = ids_of(groups)
        self.name_of_id = dict(zip(self.group_ids.tolist(), groups, strict=True))
        self.place = {group: at for at, group in enumerate(groups)}
        self.above = {
            group: (group, *(each for each in ancestors(group) if each in self.place))
            for group in groups
        }
        self.families = {
            group: [at for at, each in enumerate(groups) if group in self.above[each]]
            for group in groups
        }
        """By group: the places of it and of all groups below it."""
        self.timeline = Timeline()
        self.trace = Trace(self.timeline)
        self.rounds = 0
        """Batches that were run, also those that were cut off."""
        self.reports: list[StoredReport] = []
        self.groups, self.history, self.leaders = GroupTable(), History(), LeaderTable()
        self.history.lease_ms = self.scenario.lease_ms
        self.checkpoints: list[StoredCheckpoint] = []
        self._folder = TemporaryDirectory(prefix="simulation-")
        self.checkpoint = self.new_checkpoint()
        self.checkpoint.fast = self.scenario.after_fast
        self.job_clock = Clock(self.timeline)
        self.jobs: list[JobProcess] = []
        self.starts = 0
        self.invariants = Invariants(self)
        self.brokers = [
            BrokerProcess(self, f"b{at}", Clock(self.timeline), self.rng.randrange(INTERVAL_MS))
            for at in range(self.scenario.brokers)
        ]
        self.faults = Faults(self)
        for group in groups:
            self.put(group)
        self.faults.new_demand()

    # --- what the administrator does --------------------------------------------------------------

    def put(self, group: str) -> None:
        """Set a group's quota to a random one."""
        rates = (10.0, 40.0, 100.0, 100.0, 250.0)
        self.groups.put(group, {d: self.rng.choice(rates) for d in self.scenario.dimensions})
        self.invariants.quota_changed(group)

    def lower(self, group: str) -> None:
        """Set a group's quota to a quarter, if it has one."""
        quota = self.groups.quotas.get(group)
        if quota is not None:
            self.groups.put(group, {d: rate / 4 for d, rate in quota.items()})
            self.trace.fault("quota", group, self.groups.quotas[group])
            self.invariants.quota_changed(group)

    def children(self, group: str) -> list[str]:
        """The groups right below a group."""
        return [each for each, above in self.above.items() if above[1:2] == (group,)]

    def new_checkpoint(self) -> StoredCheckpoint:
        """A new checkpoint folder."""
        new = StoredCheckpoint(f"checkpoint-{len(self.checkpoints) + 1}")
        new.spool = f"{self._folder.name}/{new.name}"
        self.checkpoints.append(new)
        return new

    # --- the job ----------------------------------------------------------------------------------

    @property
    def leader(self) -> JobProcess | None:
        """The process that was started last, if it runs."""
        return self.jobs[-1] if self.jobs else None

    def start_job(self, checkpoint: StoredCheckpoint | None = None) -> None:
        """Start a process on a checkpoint; None: the newest one."""
        self.starts += 1
        used = checkpoint or self.checkpoint
        process = JobProcess(self, used, self.job_clock, f"job-{self.starts}")
        self.trace.note("start", process.name, used.name)
        try:
            process.start()
        except KilledError:
            return
        except QuotaplaneError as error:
            self.trace.note("does not start", process.name, str(error))
            self._ended(process)
            return
        self.jobs.append(process)
        self._run_batches(process)

    def _run_batches(self, process: JobProcess) -> None:
        if process not in self.jobs:
            return
        self.rounds += 1
        try:
            process.run_batch()
        except KilledError:
            self._ended(process)
            return
        except QuotaplaneError as error:
            self.trace.note("ends", process.name, str(error))
            self._ended(process)
            return
        self.timeline.after(INTERVAL_MS, lambda: self._run_batches(process))

    def _ended(self, process: JobProcess) -> None:
        self.jobs = [each for each in self.jobs if each is not process]
        self.timeline.after(INTERVAL_MS, self.start_if_none)

    def start_if_none(self) -> None:
        """Start the job if it does not run, as a supervisor does."""
        if not self.jobs:
            self.start_job()

    def at_point(self, process: JobProcess, label: str) -> None:
        """A process is at a labelled point."""
        self.trace.note(label, process.name)
        self.faults.at_point(process, label)

    # --- the network ------------------------------------------------------------------------------

    def _travel(self) -> Iterator[int]:
        """The delays of the copies of a message that arrive."""
        network = self.scenario.network
        if self.faults.over:
            yield self.rng.randint(1, 50) + network.least_delay_ms
            return
        if self.rng.random() < network.loss:
            return
        yield self._delay_ms()
        if self.rng.random() < network.twice:
            yield self._delay_ms()

    def _delay_ms(self) -> int:
        network = self.scenario.network
        late = self.rng.random() < network.late
        return network.least_delay_ms + self.rng.randint(1, network.most_delay_ms if late else 50)

    def send_report(self, broker: BrokerProcess, value: bytes, published_at_ms: int) -> None:
        """A report leaves a broker for the reports topic."""
        self.trace.note("report", broker.name, value)
        if not broker.reached_by_now() or self.timeline.now_ms < broker.mute_until_ms:
            return
        stored = StoredReport(value, published_at_ms)
        for wait_ms in self._travel():
            self.timeline.after(wait_ms, lambda: self.reports.append(stored))

    def publish(self, process: JobProcess, stamp: Round, message: Message) -> None:
        """A limits message is accepted by the limits topic."""
        self.trace.note("limits", process.name, stamp.seq, message.key, message.value)
        decoded = self.invariants.published(process, stamp, message)
        broker = next(each for each in self.brokers if each.name == message.key)
        polled = Polled(message.key, message.value, f"limits@{stamp.seq}")
        for wait_ms in self._travel():
            self.timeline.after(
                wait_ms + broker.limits_late_ms(), lambda: broker.deliver(polled, decoded)
            )

    # --- the run ----------------------------------------------------------------------------------

    def run(self, *, settles: bool = True) -> None:
        """Faults for some rounds, then none until everybody must be served.

        ``settles``: false leaves out the second part.

        Raises:
            ViolationError: an invariant did not hold.
        """
        with self._folder:
            self._run(settles=settles)

    def _run(self, *, settles: bool) -> None:
        self.timeline.at(START_MS, self.start_job)
        self.timeline.after(INTERVAL_MS // 2, self._check)
        self.faults.begin()
        self.timeline.run_until(START_MS + self.scenario.chaos_rounds * INTERVAL_MS)
        if settles:
            self.faults.end()
            self.timeline.run_until(self.timeline.now_ms + self.scenario.settled_after_ms)
            self.invariants.check_strict()
            self._check_served()
        self.trace.note("end", self._summary())

    def _check_served(self) -> None:
        """Look until all is well, or for the last time.

        Where use differs from report to report, a broker that reaches its limit by chance counts as
        saturated, and for some rounds has a share that it does not use.
        """
        served = Served(self, self.invariants.fail)
        for _ in range(_LOOKS - 1 if self.scenario.demand_noise else 0):
            with suppress(ViolationError):
                served.check()
                return
            self.timeline.run_until(self.timeline.now_ms + 2 * INTERVAL_MS)
        served.check()

    def _check(self) -> None:
        self.invariants.check_strict()
        self.timeline.after(INTERVAL_MS // 2, self._check)

    def _summary(self) -> str:
        limits = np.stack([broker.in_force() for broker in self.brokers])
        return hashlib.blake2b(limits.tobytes(), digest_size=8).hexdigest()
