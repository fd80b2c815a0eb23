"""Faults of the enforcer's world; only those that the seed enables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.simulation.random_faults import RandomFaults
from tests.unit.pulsar_admin.cluster_cases import Answer

if TYPE_CHECKING:
    from tests.simulation.enforcer_world import EnforcerProcess, EnforcerWorld

FAULTS: Final = {
    "enforcer_killed": (0.02, 0.1),
    "enforcer_frozen": (0.02, 0.1),
    "enforcer_stopped": (0.01, 0.05),
    "election_cut_off": (0.02, 0.1),
    "limits_cut_off": (0.02, 0.05),
    "cluster_slow": (0.02, 0.05),
    "cluster_fails": (0.02, 0.1),
    "requests_lost": (0.02, 0.1),
    "job_killed": (0.02, 0.1),
    "job_gone": (0.005, 0.02),
    "table_deleted": (0.01, 0.04),
    "log_deleted": (0.01, 0.05),
    "checkpoint_deleted": (0.01, 0.05),
    "all_deleted": (0.01, 0.04),
    "quota_change": (0.02, 0.1),
    "new_topic": (0.02, 0.2),
    "bundle_moves": (0.02, 0.1),
    "use_changes": (0.1, 0.5),
}
"""Faults, and how often they happen at least and at most, per second."""

LATER_FAULTS: Final = {
    "leader_cut_off": (0.02, 0.06),
    "outage": (0.005, 0.03),
    "administrator": (0.02, 0.1),
}
"""Faults that were added later. Another generator chooses them, so that seeds without them stay as
they were."""


class EnforcerFaults(RandomFaults):
    """See the module."""

    def __init__(self, world: EnforcerWorld) -> None:
        super().__init__(world.scenario.faults, world.timeline, world.rng)
        self.world = world
        self.ended_ms: int | None = None
        """When the last fault was mended."""
        self._slow_until_ms = self._fails_until_ms = self._loses_until_ms = 0

    def end(self) -> None:
        """No fault from now on; everything that is broken is mended."""
        world = self.world
        self.over, self.ended_ms = True, world.timeline.now_ms
        world.trace.fault("faults end")
        self._slow_until_ms = self._fails_until_ms = self._loses_until_ms = 0
        for place, process in enumerate(world.enforcers):
            if process is None or process.stop.is_set():
                self._replace(place)
            else:
                process.loop.frozen_until_ms = 0
                process.seat.is_cut_off = process.link.is_cut_off = False
        world.start_job()

    def delays(self) -> tuple[int | None, int | None]:
        """Milliseconds that a request takes to the cluster, and its answer back; None: for ever."""
        now_ms = self.world.timeline.now_ms
        if now_ms < self._loses_until_ms and self.rng.random() < 0.3:
            return self.rng.choice([(None, None), (5, None)])
        most_ms = 6000 if now_ms < self._slow_until_ms else 20
        return self.rng.randint(1, most_ms), self.rng.randint(1, 20)

    def answer(self) -> Answer | None:
        """The cluster's answer if it fails now."""
        failing = self.world.timeline.now_ms < self._fails_until_ms
        if failing and self.rng.random() < 0.5:
            return Answer(500, {"reason": "internal error"})
        return None

    def _pause_ms(self) -> int:
        return self.rng.choice([1500, 6000, 12_000, 25_000])

    # --- enforcers --------------------------------------------------------------------------------

    def _place(self) -> int:
        return self.rng.randrange(len(self.world.enforcers))

    def _replace(self, place: int) -> None:
        self.world.kill_enforcer(place)
        self.world.start_enforcer(place)

    def _enforcer_killed(self) -> None:
        place = self._place()
        self.world.trace.fault("enforcer killed", place)
        self.world.kill_enforcer(place)
        wait_ms = self.rng.choice([500, 5000, 20_000])
        self.world.timeline.after(wait_ms, lambda: self.world.start_enforcer(place))

    def _enforcer_frozen(self) -> None:
        process, pause_ms = self.world.enforcers[self._place()], self._pause_ms()
        if process is not None:
            self.world.trace.fault("enforcer frozen", process.name, "for", pause_ms)
            process.loop.frozen_until_ms = self.world.timeline.now_ms + pause_ms

    def _enforcer_stopped(self) -> None:
        """A clean stop, and a start later."""
        place = self._place()
        process = self.world.enforcers[place]
        if process is not None and not process.stop.is_set():
            self.world.trace.fault("enforcer stopped", process.name)
            process.stop.set()
            wait_ms = 30_000 + self._pause_ms()
            self.world.timeline.after(wait_ms, lambda: self._start_again(place))

    def _start_again(self, place: int) -> None:
        process = self.world.enforcers[place]
        if process is None or process.stop.is_set():
            self._replace(place)

    def _election_cut_off(self) -> None:
        process, pause_ms = self.world.enforcers[self._place()], self._pause_ms()
        if process is not None:
            self._cut_off(process, pause_ms)

    def _leader_cut_off(self) -> None:
        """Only the leader's own connection to the topic of the election is broken."""
        owner = self.world.room.owner
        for process in self.world.enforcers:
            if process is not None and process.seat is owner:
                self._cut_off(process, 25_000)

    def _cut_off(self, process: EnforcerProcess, pause_ms: int) -> None:
        self.world.trace.fault("election cut off", process.name, "for", pause_ms)
        seat = process.seat
        seat.is_cut_off = True
        # The cluster closes a connection that is silent.
        self.world.timeline.after(
            self.rng.choice([1000, 20_000]), lambda: seat.is_cut_off and self.world.room.left(seat)
        )
        self.world.timeline.after(pause_ms, lambda: setattr(seat, "is_cut_off", False))

    def _limits_cut_off(self) -> None:
        process, pause_ms = self.world.enforcers[self._place()], self._pause_ms()
        if process is not None:
            self.world.trace.fault("limits cut off", process.name, "for", pause_ms)
            link = process.link
            link.is_cut_off = True
            self.world.timeline.after(pause_ms, lambda: setattr(link, "is_cut_off", False))

    # --- the cluster ------------------------------------------------------------------------------

    def _cluster_slow(self) -> None:
        self._slow_until_ms = self.world.timeline.now_ms + self._pause_ms()
        self.world.trace.fault("cluster slow until", self._slow_until_ms)

    def _cluster_fails(self) -> None:
        self._fails_until_ms = self.world.timeline.now_ms + self._pause_ms()
        self.world.trace.fault("cluster fails until", self._fails_until_ms)

    def _requests_lost(self) -> None:
        self._loses_until_ms = self.world.timeline.now_ms + self._pause_ms()
        self.world.trace.fault("requests lost until", self._loses_until_ms)

    def _quota_change(self) -> None:
        group = self.rng.choice(self.world.scenario.groups)
        self.world.set_quota(group)
        self.world.trace.fault("quota", group, self.world.cluster.quota_of(group))

    def _new_topic(self) -> None:
        self.world.add_topic(self.rng.choice(self.world.scenario.groups))
        self.world.trace.fault("new topic")

    def _bundle_moves(self) -> None:
        group, broker = (
            self.rng.choice(self.world.scenario.groups),
            self.rng.randrange(self.world.scenario.brokers),
        )
        self.world.trace.fault("bundle of", group, "goes to", broker)
        self.world.cluster.move(self.world.namespaces[group], broker)

    def _use_changes(self) -> None:
        topic = self.rng.choice(sorted(self.world.cluster.used))
        self.world.cluster.used[topic] = self.rng.choice([0.0, 5.0, 50.0, 400.0])

    def _administrator(self) -> None:
        """Somebody sets a topic's rate by hand, or removes what is there."""
        topic = self.rng.choice(sorted(self.world.cluster.topics))
        rate = self.rng.choice([None, 3, 20, 80, 5000])
        self.world.trace.fault("administrator's rate", topic, rate)
        self.world.knowledge.set_by_hand(topic, rate)

    # --- the job and what it keeps ----------------------------------------------------------------

    def _job_down(self, wait_ms: int, *, new_epoch: bool = False) -> None:
        self.world.kill_job()
        self.world.timeline.after(wait_ms, lambda: self.world.start_job(new_epoch=new_epoch))

    def _job_killed(self) -> None:
        self.world.trace.fault("job killed")
        self._job_down(self.rng.choice([500, 3000, 15_000]))

    def _job_gone(self) -> None:
        self.world.trace.fault("job gone for a minute")
        self._job_down(60_000)

    def _outage(self) -> None:
        """The job is gone for a minute, and the cluster is slow or fails when that is noticed."""
        self.world.trace.fault("outage: the job is gone for a minute")
        self._job_down(60_000)
        ill = self.rng.choice([self._cluster_slow, self._cluster_fails])
        self.world.timeline.after(28_000, lambda: None if self.over else ill())

    def _table_deleted(self) -> None:
        self.world.trace.fault("table deleted")
        self.world.table.lose()
        self._job_down(self.rng.choice([500, 5000, 20_000]))

    def _log_deleted(self) -> None:
        self.world.trace.fault("log of the table deleted")
        self.world.table.lose_log()

    def _checkpoint_deleted(self) -> None:
        self.world.trace.fault("checkpoint deleted")
        self._job_down(self.rng.choice([500, 5000]), new_epoch=True)

    def _all_deleted(self) -> None:
        self.world.trace.fault("table, history and checkpoint deleted")
        self.world.table.lose()
        self.world.table.epoch = 0
        self._job_down(self.rng.choice([500, 5000, 20_000]), new_epoch=True)
