"""The demo's simulated cluster: a thread beside the job that sends reports and applies limits.

A director plays the scenario: it carries out the events on the world and the table of groups.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from quotaplane.demo.record import DemoRecord
from quotaplane.demo.scenarios import Event, Scenario, Story
from quotaplane.errors import QuotaplaneError
from quotaplane.model import DIMENSIONS, BoolArray, FloatArray
from quotaplane.sim.demand_schedule import build_schedule
from quotaplane.sim.world import World
from quotaplane.transport.base import BrokerLink

_INTERVAL_S = 1.0
_POLLS_PER_INTERVAL = 4
_PATIENCE_S = 180.0
_BEFORE_START_S = 1e6
"""The clock starts at minus this: before any time of the scenario."""
_INTERVALS_BEFORE_START = 4
"""How many intervals before the start the record keeps."""


class SimulatedCluster(threading.Thread):
    """Sends each interval's reports and applies limits, until the scenario is over.

    The scenario's time starts when all brokers have their first limits, so that it does not depend
    on how long the job takes to start.
    """

    def __init__(
        self,
        director: Director,
        record: DemoRecord,
        link: BrokerLink,
        *,
        duration_s: float,
    ) -> None:
        super().__init__(name="simulated cluster", daemon=True)
        self.failure: BaseException | None = None
        self.reports = 0
        """Reports sent."""
        self.limits = 0
        """Limits messages received."""
        self._director, self._record, self._link = director, record, link
        self._duration_s = duration_s
        self._stopping = threading.Event()

    def run(self) -> None:
        """The thread's body; a failure is kept for ``raise_if_failed``."""
        try:
            self._play()
        except BaseException as error:
            self.failure = error
        finally:
            self._link.close()

    def stop(self) -> None:
        """Stop the thread and wait for it."""
        self._stopping.set()
        self.join()

    def raise_if_failed(self) -> None:
        """Raise the failure that ended the thread, if any."""
        if self.failure is not None:
            raise self.failure

    def _play(self) -> None:
        began = time.monotonic()
        t_s, tick = -_BEFORE_START_S, 0
        while t_s <= self._duration_s:
            if not self._pause_until(began + tick * _INTERVAL_S):
                return
            now_ms = time.time_ns() // 1_000_000
            if t_s < 0 and self._director.limited(now_ms) and tick:
                t_s = 0.0
                self._rebase()
            if t_s < 0 and tick * _INTERVAL_S > _PATIENCE_S:
                raise QuotaplaneError(
                    f"demo: no limits within {_PATIENCE_S:.0f} s of the first report"
                )
            self._director.advance(max(t_s, 0.0), now_ms)
            interval = self._director.world.interval(t_s, now_ms)
            self._link.send_reports(interval.reports)
            self.reports += len(interval.reports)
            self._record.add(interval, self._director.quota)
            t_s, tick = t_s + _INTERVAL_S, tick + 1

    def _pause_until(self, moment: float) -> bool:
        """Receive limits until ``moment``; False: the thread was stopped."""
        while True:
            messages = self._link.poll_limits().messages
            self.limits += len(messages)
            self._director.world.receive(message.value for message in messages)
            left = moment - time.monotonic()
            if self._stopping.wait(max(min(left, _INTERVAL_S / _POLLS_PER_INTERVAL), 0.0)):
                return False
            if left <= _INTERVAL_S / _POLLS_PER_INTERVAL:
                return True

    def _rebase(self) -> None:
        """Keep only the latest intervals, and give them times that end before 0."""
        record = self._record
        latest = record.intervals[-_INTERVALS_BEFORE_START:]
        record.quotas[:] = record.quotas[-_INTERVALS_BEFORE_START:]
        record.intervals[:] = [
            replace(interval, t_s=(place - len(latest)) * _INTERVAL_S)
            for place, interval in enumerate(latest)
        ]


Put = Callable[[Sequence[str], FloatArray], None]
"""Sets the quotas (n, dimensions) of n groups; inf = unlimited."""

Delete = Callable[[Sequence[str]], None]
"""Deletes groups."""

GRACE_S = 2.0
"""A new group is put this long before brokers report it, and deleted this long after they stop."""


class Director:
    """Plays a scenario; ``quota`` (groups, dimensions) are the quotas set now."""

    def __init__(
        self, scenario: Scenario, record: DemoRecord, put: Put, delete: Delete, *, seed: int = 0
    ) -> None:
        self._record, self._put, self._delete = record, put, delete
        self._scenario = scenario
        names = tuple(spec.name for spec in scenario.brokers)
        changes = [change for story in scenario.stories for change in story.demand]
        self.world = World(
            scenario.brokers,
            scenario.groups,
            build_schedule(names, scenario.groups, changes),
            poisson=[story.group for story in scenario.stories if story.poisson],
            seed=seed,
        )
        self.quota: FloatArray = np.full((len(scenario.groups), len(DIMENSIONS)), np.inf)
        self._later: list[tuple[float, Callable[[], None]]] = []
        for story in scenario.stories:
            self.world.attach(story.group, self._takes_part(story) & (story.from_s <= 0))
            for event in story.events:
                self._plan(event, story)
        for event in scenario.events:
            self._plan(event, None)

    def open(self) -> None:
        """Set the quotas of the groups that exist from the start."""
        first = [story for story in self._scenario.stories if story.from_s <= 0]
        self._set({story.group: story.quota for story in first})

    def advance(self, t_s: float, now_ms: int) -> None:
        """Carry out the events that are due; call it with increasing times."""
        self._now_ms = now_ms
        due = [action for at_s, action in self._later if at_s <= t_s]
        self._later = [(at_s, action) for at_s, action in self._later if at_s > t_s]
        for action in due:
            action()

    def limited(self, now_ms: int) -> bool:
        """Whether every live broker has a limit for each of its groups with a quota."""
        brokers = self.world.brokers
        needed = (brokers.alive[:, None] & brokers.attached)[..., None] & np.isfinite(self.quota)
        return bool(np.isfinite(brokers.limits(now_ms))[needed].all())

    def _plan(self, event: Event, story: Story | None) -> None:
        group = story.group if story else ""

        def happen() -> None:
            if event.action == "put" and event.quota is not None:
                self._set({group: event.quota})
            elif event.action == "delete":
                self.world.detach(group)
            elif event.action == "die":
                self.world.brokers.die(event.broker)
            elif event.action == "join":
                self.world.brokers.join(event.broker, self._now_ms)
            if event.at_s > 0:
                self._record.note(event.at_s, "event", group, event.text)

        self._later.append((event.at_s, happen))
        if story and event.action == "delete":
            self._later.append((event.at_s + GRACE_S, lambda: self._drop(group)))
        elif story and event.at_s == story.from_s > 0:
            mask = self._takes_part(story)
            self._later.append((event.at_s + GRACE_S, lambda: self.world.attach(group, mask)))
        self._later.sort(key=lambda planned: planned[0])

    def _set(self, quotas: Mapping[str, Mapping[str, float]]) -> None:
        names = list(quotas)
        rows = [[quotas[name].get(d, np.inf) for d in DIMENSIONS] for name in names]
        self._put(names, np.array(rows))
        self.quota[self._places(names)] = rows

    def _drop(self, group: str) -> None:
        self._delete([group])
        self.quota[self._places([group])] = np.inf

    def _places(self, groups: Sequence[str]) -> list[int]:
        return [self._scenario.groups.index(group) for group in groups]

    def _takes_part(self, story: Story) -> BoolArray:
        taking_part = {change.broker for change in story.demand}
        return np.array([spec.name in taking_part for spec in self._scenario.brokers])
