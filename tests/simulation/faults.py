"""Faults of the job's world: what breaks, and how it is mended; only those of the seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from tests.simulation.job_process import JobProcess, KilledError
from tests.simulation.random_faults import RandomFaults
from tests.simulation.scenario import INTERVAL_MS, STALE_MS

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess
    from tests.simulation.world import World

_LARGE_STEP_MS: Final = 3_600_000
_MOST_AHEAD_MS: Final = 30_000
"""``reports.max_clock_skew_s``."""
_SMALL_STEP_MS: Final = STALE_MS // 2 - 1
"""Clocks of the job and of brokers are each within this of true time, so they differ by less than
``brokers.stale_after_intervals`` intervals, as strict requires."""


class Faults(RandomFaults):
    """See the module."""

    def __init__(self, world: World) -> None:
        super().__init__(world.scenario.faults, world.timeline, world.rng)
        self.world = world
        self._points_to: dict[str, int] = {}
        """After so many labelled points the process that is at one is killed, frozen, ..."""

    def begin(self) -> None:
        """Let the enabled faults happen from now on; no job is under fast for long."""
        super().begin()
        if self.world.scenario.after_fast:
            early_ms = self.world.scenario.chaos_rounds * INTERVAL_MS // 4
            self.world.timeline.after(early_ms, self._lost_state)

    def end(self) -> None:
        """No fault from now on; everything that is broken is mended."""
        world = self.world
        self.over = True
        self._points_to.clear()
        world.trace.fault("faults end")
        world.job_clock.offset_ms = 0
        for broker in world.brokers:
            broker.cut_off_until_ms = broker.deaf_until_ms = broker.mute_until_ms = 0
            broker.slow_until_ms = 0
            broker.clock.offset_ms = 0
            # The runbook's advice on a broker whose clock was ahead when it started.
            started_ahead = broker.started_at_ms > world.timeline.now_ms + _MOST_AHEAD_MS
            if not broker.alive or started_ahead:
                broker.restart()
            if broker.frozen:
                broker.thaw()
        if not world.jobs:
            world.start_job()
        world.invariants.check_strict()

    def _broker(self) -> BrokerProcess:
        return self.rng.choice(self.world.brokers)

    # --- the job ----------------------------------------------------------------------------------

    def at_point(self, process: JobProcess, label: str) -> None:
        """Kill or freeze the process that is at a labelled point, if it is time."""
        for name, strike in (
            ("kill", self._killed),
            ("freeze", self._frozen),
            ("power loss", self._lose_power),
        ):
            if name in self._points_to:
                self._points_to[name] -= 1
                if self._points_to[name] < 0:
                    del self._points_to[name]
                    strike(process, label)

    def _lose_power(self, process: JobProcess, label: str) -> None:
        """All processes on this checkpoint end; the frozen ones when they would go on."""
        process.checkpoint.power_lost(with_commit=self.rng.random() < 0.5)
        jobs = self.world.jobs
        self.world.jobs = [each for each in jobs if each.checkpoint is not process.checkpoint]
        self._killed(process, f"a power loss, {label}")

    def _killed(self, process: JobProcess, label: str) -> None:
        self.world.trace.fault("job killed", process.name, "at", label)
        if process in self.world.jobs:
            self.world.jobs.remove(process)
        wait_ms = self.rng.choice([100, 500, 3000, 15_000])
        self.world.timeline.after(wait_ms, self.world.start_if_none)
        raise KilledError

    def _frozen(self, process: JobProcess, label: str) -> None:
        pause_ms = self.rng.choice([1500, 5000, 20_000])
        self.world.trace.fault("job frozen", process.name, "at", label, "for", pause_ms)
        if self.rng.random() < 0.7:  # somebody starts another one meanwhile
            self.world.timeline.after(pause_ms // 3, self.world.start_job)
        losses = process.checkpoint.power_losses
        self.world.timeline.run_until(self.world.timeline.now_ms + pause_ms)
        if process.checkpoint.power_losses != losses:
            self.world.trace.note("is gone", process.name)
            raise KilledError
        self.world.trace.note("thaws", process.name)

    def _job_crash(self) -> None:
        self._points_to["kill"] = self.rng.randrange(30)

    def _job_frozen(self) -> None:
        self._points_to["freeze"] = self.rng.randrange(30)

    def _power_loss(self) -> None:
        """As a kill, and what Spark logged but nobody synced is lost."""
        self._points_to["power loss"] = self.rng.randrange(30)

    def _second_job(self) -> None:
        self.world.trace.fault("second job")
        if self.rng.random() < 0.3:
            self.world.checkpoint = self.world.new_checkpoint()
            self._begin_of_topic()
        self.world.start_job()

    def _lost_state(self) -> None:
        world = self.world
        world.trace.fault("state lost")
        world.jobs.clear()
        world.checkpoint = world.new_checkpoint()
        self._begin_of_topic()
        world.timeline.after(self.rng.choice([100, 3000, 10_000]), world.start_if_none)

    def _state_lost_unheard(self) -> None:
        """The state is lost while a broker gets no limits, and soon a quota is lowered."""
        world, broker = self.world, self._broker()
        broker.deaf_until_ms = world.timeline.now_ms + 15_000
        world.trace.fault("gets no limits", broker.name, "for", 15_000)
        self._lost_state()
        group = self.rng.choice(world.scenario.groups)
        world.timeline.after(
            self.rng.choice([2500, 5000]), lambda: None if self.over else world.lower(group)
        )

    def _old_checkpoint(self) -> None:
        """Somebody starts an earlier checkpoint, perhaps when a new one has just been started."""
        world = self.world
        if self.rng.random() < 0.5:
            world.checkpoint = world.new_checkpoint()
            self._begin_of_topic()
            self._points_to["kill"] = self.rng.randrange(4)
            world.start_job()
        earlier = [each for each in world.checkpoints[:-1] if each.epoch >= 0]
        if earlier:
            old = self.rng.choice(earlier)
            world.trace.fault("an earlier checkpoint is started", old.name)
            world.start_job(old)

    def _two_starts(self) -> None:
        """Two processes start at the same time, each with a new checkpoint."""
        for _ in range(2):
            self.world.checkpoint = self.world.new_checkpoint()
            self._begin_of_topic()
            self.world.trace.fault("a new checkpoint is started", self.world.checkpoint.name)
            self.world.start_job()

    def _begin_of_topic(self) -> None:
        """A new checkpoint begins with new reports, or with the oldest that the topic has."""
        begin = self.rng.choice([0, len(self.world.reports)])
        checkpoint = self.world.checkpoint
        checkpoint.begin = checkpoint.begin._replace(reports=begin)

    def _lost_history(self) -> None:
        history = self.world.history
        self.world.trace.fault("history loses its newest epoch")
        if len(history.rounds) > 1:
            del history.rounds[max(history.rounds)]

    # --- brokers ----------------------------------------------------------------------------------

    def _broker_crash(self) -> None:
        broker = self._broker()
        if not broker.alive:
            return
        self.world.trace.fault("broker dies", broker.name)
        broker.alive = False
        wait_ms = self.rng.choice([0, 200, 3000, 20_000])
        self.world.timeline.after(wait_ms, lambda: self._restart(broker))

    def _restart(self, broker: BrokerProcess) -> None:
        if not broker.alive:
            self.world.trace.note("broker starts", broker.name)
            broker.restart()
            broker.frozen = False

    def _broker_frozen(self) -> None:
        broker = self._broker()
        self.world.trace.fault("broker frozen", broker.name)
        broker.frozen = True
        wait_ms = self.rng.choice([2000, 8000, 25_000])
        self.world.timeline.after(wait_ms, lambda: broker.frozen and broker.thaw())

    def _partition(self) -> None:
        self._silence("cut off", "cut_off_until_ms")

    def _deaf(self) -> None:
        self._silence("gets no limits", "deaf_until_ms")

    def _mute(self) -> None:
        self._silence("sends no reports", "mute_until_ms")

    def _silence(self, what: str, until_ms: str) -> None:
        broker, wait_ms = self._broker(), self.rng.choice([1500, 6000, 25_000])
        self.world.trace.fault(what, broker.name, "for", wait_ms)
        setattr(broker, until_ms, self.world.timeline.now_ms + wait_ms)

    def _slow_limits(self) -> None:
        """A broker reads limits late, in their order: it is behind in the topic."""
        broker, wait_ms = self._broker(), self.rng.choice([6000, 25_000])
        broker.slow_by_ms = self.rng.choice([1500, 3000, 6000])
        broker.slow_until_ms = self.world.timeline.now_ms + wait_ms
        self.world.trace.fault("limits", broker.slow_by_ms, "late", broker.name, "for", wait_ms)

    # --- clocks -----------------------------------------------------------------------------------

    def _clock_small(self) -> None:
        ends = -_SMALL_STEP_MS, _SMALL_STEP_MS
        self._set_a_clock(lambda: self.rng.choice([*ends, self.rng.randint(*ends)]))
        self.world.invariants.check_strict()

    def _clock_large(self) -> None:
        self._set_a_clock(lambda: self.rng.choice([-_LARGE_STEP_MS, 0, _LARGE_STEP_MS]))
        self.world.invariants.clocks_wrong = True

    def _set_a_clock(self, offset_ms: Callable[[], int]) -> None:
        clocks = [self.world.job_clock, *(broker.clock for broker in self.world.brokers)]
        number = self.rng.randrange(len(clocks))
        clocks[number].offset_ms = offset_ms()
        self.world.trace.fault("clock", number, "differs by", clocks[number].offset_ms)

    # --- groups and demand ------------------------------------------------------------------------

    def _quota_change(self) -> None:
        group = self.rng.choice(self.world.scenario.groups)
        for _ in range(self.rng.choice([1, 1, 2])):
            self.world.put(group)
            self.world.trace.fault("quota", group, self.world.groups.quotas[group])

    def _group_gone(self) -> None:
        group = self.rng.choice(self.world.scenario.groups)
        if group not in self.world.groups.quotas:
            self.world.put(group)
            self.world.trace.fault("quota", group, self.world.groups.quotas[group])
            return
        self.world.trace.fault("group deleted", group)
        self.world.groups.delete(group)
        self.world.invariants.quota_changed(group)

    def _deletion_missed(self) -> None:
        """A group below another one is deleted, of which some broker hears later; it comes back."""
        world = self.world
        below = [each for each in sorted(world.groups.quotas) if world.above[each][1:]]
        if not below:
            return
        group, broker = self.rng.choice(below), self._broker()
        world.trace.fault("group deleted", group, "unheard by", broker.name)
        broker.deaf_until_ms = world.timeline.now_ms + self.rng.choice([3000, 8000])
        world.groups.delete(group)
        world.invariants.quota_changed(group)
        world.timeline.after(
            self.rng.choice([2000, 15_000]),
            lambda: None if self.over or group in world.groups.quotas else world.put(group),
        )

    def _topics_move(self) -> None:
        broker, group = self._broker(), self.rng.randrange(len(self.world.scenario.groups))
        here = not broker.attached[group]
        self.world.trace.fault("topics", "come to" if here else "leave", broker.name, group)
        broker.attach(group, here)

    def _demand(self) -> None:
        self.new_demand()

    def new_demand(self) -> None:
        """Some broker wants something else; at first every one does."""
        brokers = [self._broker()] if self.world.timeline.now_ms > 0 and self.world.rounds else []
        for broker in brokers or self.world.brokers:
            shape = broker.demand.shape
            rates = [self.rng.choice([0.0, 3.0, 20.0, 80.0, 300.0]) for _ in range(shape[0])]
            broker.demand = np.tile(np.array(rates)[:, None], (1, shape[1]))
            self.world.trace.note("demand", broker.name, rates)
