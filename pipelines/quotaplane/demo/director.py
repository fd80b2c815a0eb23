"""Plays a scenario: carries out its events on the simulated world and the table of groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from quotaplane.demo.record import DemoRecord
from quotaplane.demo.scenarios import Event, Scenario, Story
from quotaplane.model import DIMENSIONS, BoolArray, FloatArray
from quotaplane.sim.demand_schedule import build_schedule
from quotaplane.sim.world import World

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
