"""Records a simulated cluster interval by interval, and evaluates each story of the scenario."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from quotaplane.demo.scenarios import Event, Scenario, Story
from quotaplane.model import DIMENSIONS, FloatArray
from quotaplane.sim.figures import CLOSE, fair_shares, from_fair
from quotaplane.sim.world import Interval

_ROUNDING: Final = 1e-9


class Note(NamedTuple):
    """A line for the audience."""

    t_s: float
    kind: str
    """``event`` (an event was carried out) or ``limits`` (limits changed)."""
    group: str
    text: str


class Settling(NamedTuple):
    """The outcome of an event."""

    story: Story
    event: Event
    settled_s: float | None
    """Seconds until every broker had its fair share, and kept it; None = never."""
    shares: tuple[tuple[str, float], ...]
    """(broker, usage) at the end, before the group's next event."""


@dataclass
class DemoRecord:
    """The intervals of a run.

    One thread writes it while another reads it, so lists are only appended to.
    """

    scenario: Scenario
    intervals: list[Interval] = field(default_factory=list)
    quotas: list[FloatArray] = field(default_factory=list)
    """Quotas (groups, dimensions) in each interval."""
    notes: list[Note] = field(default_factory=list)

    def add(self, interval: Interval, quota: FloatArray) -> None:
        """Add an interval, and a note for each group whose limits changed in it."""
        if self.intervals:
            self._note_moves(self.intervals[-1], interval)
        self.quotas.append(quota.copy())
        self.intervals.append(interval)

    def note(self, t_s: float, kind: str, group: str, text: str) -> None:
        """Add a note."""
        self.notes.append(Note(t_s, kind, group, text))

    def _note_moves(self, before: Interval, now: Interval) -> None:
        for place, story in enumerate(self.scenario.stories):
            dimension = DIMENSIONS.index(story.shows[0])
            old, new = before.limit[:, place, dimension], now.limit[:, place, dimension]
            # Ignore idle brokers: a change of their limit has no effect.
            uses = now.wanted[:, place, dimension] > 0
            with np.errstate(invalid="ignore"):
                moved = uses & np.isfinite(new) & ~(np.abs(new - old) <= CLOSE * old)
            if moved.any() and now.t_s >= 0 and not story.poisson:
                parts = [
                    f"{self.scenario.brokers[b].name} {rate(old[b])}→{rate(new[b])}"
                    for b in np.flatnonzero(moved)
                ]
                self.note(now.t_s, "limits", story.group, ", ".join(parts))

    def times(self) -> FloatArray:
        """Time of each interval in seconds, (intervals,); negative = before the first limits."""
        return np.array([interval.t_s for interval in self.intervals])

    def series(self, what: str, story: Story, dimension: str) -> FloatArray:
        """``wanted``, ``demand``, ``usage`` or ``limit`` of a group, (intervals, brokers)."""
        at = (slice(None), self.scenario.groups.index(story.group), DIMENSIONS.index(dimension))
        return np.array([getattr(interval, what)[at] for interval in self.intervals])

    def quota(self, story: Story, dimension: str) -> FloatArray:
        """The group's quota over time, (intervals,); inf = unlimited."""
        at = self.scenario.groups.index(story.group), DIMENSIONS.index(dimension)
        return np.array([quota[at] for quota in self.quotas])

    def distance(self, story: Story) -> FloatArray:
        """How far the group's worst-off broker is from its fair share, (intervals,)."""
        by_dimension = [
            from_fair(
                np.minimum(self.series("wanted", story, d), self.series("limit", story, d)),
                fair_shares(self.series("wanted", story, d), self.quota(story, d)),
            )
            for d in story.shows
        ]
        worst: FloatArray = np.max(by_dimension, axis=0)
        return worst

    def utilisation(self, story: Story) -> float:
        """The used fraction of what could have been used, from the first limits on."""
        from_start = self.times() >= 0
        used = possible = 0.0
        for dimension in story.shows:
            quota = self.quota(story, dimension)
            limited = from_start & np.isfinite(quota)
            usage = self.series("usage", story, dimension).sum(axis=1)
            demand = self.series("demand", story, dimension).sum(axis=1)
            scale = max(float(quota[limited].max(initial=0.0)), 1.0)  # messages beside bytes
            used += float((np.minimum(usage, quota)[limited] / scale).sum())
            possible += float((np.minimum(demand, quota)[limited] / scale).sum())
        return used / possible if possible else 1.0

    def outcomes(self) -> list[Settling]:
        """The outcome of each event that concerned a group, ordered by time."""
        outcomes = [
            self._outcome(story, event, until)
            for story in self.scenario.stories
            for event, until in self._events_of(story)
            if self._wanted(story, event.at_s, until)
        ]
        return sorted(outcomes, key=lambda outcome: outcome.event.at_s)

    def marks(self, story: Story) -> list[tuple[str, Event]]:
        """The events of the group and of its brokers, each with a short mark."""
        last = float(self.times()[-1]) if self.intervals else 0.0
        taking_part = {change.broker for change in story.demand}
        of_brokers = [e for e in self.scenario.events if e.broker in taking_part and e.at_s > 0]
        events = [e for e in (*story.events, *of_brokers) if e.at_s <= min(last, story.until_s)]
        events.sort(key=lambda event: event.at_s)
        return [(str(number), event) for number, event in enumerate(events, start=1)]

    def _events_of(self, story: Story) -> list[tuple[Event, float]]:
        """Events that can make the group unfair, each with the time of the next event."""
        events = [event for _, event in self.marks(story) if event.action != "delete"]
        until = min(float(self.times()[-1]) + 1.0, story.until_s) if self.intervals else 0.0
        ends = [*(event.at_s for event in events[1:]), until]
        return [(e, end) for e, end in zip(events, ends, strict=False) if e.at_s < until]

    def _wanted(self, story: Story, from_s: float, until_s: float) -> bool:
        """Whether any broker has demand for the group in this time."""
        span = (self.times() >= from_s) & (self.times() < until_s)
        return any(bool(self.series("wanted", story, d)[span].any()) for d in story.shows)

    def _outcome(self, story: Story, event: Event, until_s: float) -> Settling:
        times = self.times()
        span = np.flatnonzero((times >= event.at_s) & (times < until_s))
        unfair = span[self.distance(story)[span] > CLOSE + _ROUNDING]
        settled: float | None = 0.0
        if len(unfair):
            after = span[span > unfair[-1]]
            settled = float(times[after[0]] - event.at_s) if len(after) else None
        usage = self.series("usage", story, story.shows[0])
        at_end = usage[span[-1]] if len(span) else usage[-1]
        shares = tuple(
            (self.scenario.brokers[b].name, float(at_end[b])) for b in np.flatnonzero(at_end > 0)
        )
        return Settling(story, event, settled, shares)


def rate(value: float) -> str:
    """A rate in at most five characters.

    >>> [rate(value) for value in (0.0, 7.25, 33.4, 1200.0, 2.4e6, float("inf"))]
    ['0', '7.2', '33', '1.2k', '2.4M', '∞']
    """
    if np.isinf(value):
        return "∞"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size * 0.9995:
            return _short(value / size) + unit
    return _short(value)


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")
