"""Records the rates in force on topics and the requests in flight, across changes of the layout."""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.enforce.rate_writes import Moves, Rates
from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray
from quotaplane.topics.topic_layout import KINDS, SIDES, Layout, empty_layout, moved

FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 30.0
"""Pause of a topic after a failure: the first one, doubled each time, and the longest."""


class RatesInForce:
    """Rates of the topics of a layout, and of topics that left it and still have a rate of ours.

    Methods take topics by name: the layout may have changed while a request was in flight.
    """

    def __init__(self) -> None:
        self.layout = empty_layout()
        self.to_remove: dict[tuple[str, int], float] = {}
        """Rates still to be removed because the topic left its group, by (topic, kind); value:
        earliest time (s) of the next try, inf = in flight."""
        self._layouts = 0
        self.born: IntArray = np.zeros(0, np.int64)
        """(u,) the number of the layout that each topic came with: of newer topics it is higher."""
        self._make(0)

    def _make(self, topics: int) -> None:
        self.in_force: FloatArray = np.full((topics, BASIC), np.nan)
        """(u, 4) the rate, or the higher one of a write in flight; inf = none, NaN = not known."""
        self._after_writes: FloatArray = np.full((topics, BASIC), np.nan)
        """(u, 4) the rate once the writes in flight are confirmed."""
        self._busy: BoolArray = np.zeros((topics, len(KINDS)), np.bool_)
        """(u, 2) a read or write is in flight."""
        self._ours: BoolArray = np.zeros((topics, len(KINDS)), np.bool_)
        """(u, 2) the topic has, or may have, a rate that we wrote."""
        self.administrators: BoolArray = np.zeros((topics, len(KINDS)), np.bool_)
        """(u, 2) the rate in force is an administrator's."""
        self.recorded: BoolArray = np.zeros((topics, len(KINDS)), np.bool_)
        """(u, 2) an administrator's rate of the topic is recorded, so ours may be in its place."""
        self.ceiling: FloatArray = np.full((topics, BASIC), np.inf)
        """(u, 4) the topic's own administrator's rate, in force or recorded; inf = none."""
        self._failures = np.zeros((topics, len(KINDS)), np.int64)
        """(u, 2) failures in a row."""
        self._write_failed: BoolArray = np.zeros((topics, len(KINDS)), np.bool_)
        """(u, 2) the last write failed."""
        self._uncertain: BoolArray = np.zeros((topics, len(KINDS)), np.bool_)
        """(u, 2) a write failed and the rate was not read since."""
        self._retry_at_s: FloatArray = np.full((topics, len(KINDS)), -np.inf)
        """(u, 2) no request before this time."""
        self._since_s: FloatArray = np.full((topics, len(KINDS)), np.inf)
        """(u, 2) since when a write waits for budget; inf = none waits."""
        self._above_since_s: FloatArray = np.full((topics, BASIC), np.inf)
        """(u, 4) since when the rate is above the wanted one; inf = it is not."""

    def forget(self) -> None:
        """Begin anew with the same layout: no rate is known, and none is to be removed."""
        self._make(len(self.layout.topics))
        self.to_remove.clear()

    def carry(self, layout: Layout) -> None:
        """Continue with another layout; topics in both keep their state."""
        came_from = moved(self.layout.topic_index, layout.topics)
        stays = came_from >= 0
        names = (
            *("in_force", "_after_writes", "_busy", "_ours"),
            *("administrators", "recorded", "ceiling"),
            *("_failures", "_write_failed", "_uncertain", "_retry_at_s", "_since_s"),
            *("_above_since_s", "born"),
        )
        previous = {name: getattr(self, name) for name in names}
        stayed = np.zeros(len(self.layout.topics), np.bool_)
        stayed[came_from[stays]] = True
        # Requests in flight are handled when they complete.
        left = self._ours & ~self._busy & ~stayed[:, None]
        for at, kind in np.argwhere(left).tolist():
            self.to_remove[self.layout.topics[at], kind] = -np.inf
        self._make(len(layout.topics))
        self._layouts += 1
        self.born = np.full(len(layout.topics), self._layouts)
        for name in names:
            getattr(self, name)[stays] = previous[name][came_from[stays]]
        # A failure on the old broker says nothing about the new one, so retry now.
        self._retry_at_s[_relocated(self.layout, layout)] = -np.inf
        self.layout = layout
        if self.to_remove:
            # A topic that came back: its rate is unknown and will be read.
            for key in [key for key in self.to_remove if key[0] in layout.topic_index]:
                del self.to_remove[key]

    def rates(self, now_s: float) -> Rates:
        """The input of ``plan``."""
        return Rates(
            in_force=self.in_force,
            after_writes=self._after_writes,
            idle=~self._busy & (self._retry_at_s <= now_s),
            uncertain=self._uncertain,
            failing=self._failures > 0,
            waited_s=np.maximum(now_s - self._since_s, 0.0),
            above_s=np.maximum(now_s - self._above_since_s, 0.0),
            administrators=self.administrators,
            recorded=self.recorded,
        )

    def note_wanted(self, wanted: FloatArray, now_s: float) -> None:
        """Record which rates are above the ones ``wanted`` (u, 4) now."""
        since_s = np.minimum(self._above_since_s, now_s)
        self._above_since_s = np.where(self._after_writes > wanted, since_s, np.inf)

    def start(self, moves: Moves, count: int, now_s: float) -> None:
        """Record that the first ``count`` moves are in flight and the others wait for budget."""
        waiting = np.zeros(self._since_s.shape, np.bool_)
        waiting[moves.topic[count:], moves.kind[count:]] = True
        self._since_s = np.where(waiting, np.minimum(self._since_s, now_s), np.inf)
        for topic, kind, rates in zip(
            moves.topic[:count], moves.kind[:count], moves.rates[:count], strict=True
        ):
            side = SIDES[kind]
            self._busy[topic, kind] = self._ours[topic, kind] = True
            self.in_force[topic, side] = np.maximum(self.in_force[topic, side], rates)
            self._after_writes[topic, side] = rates

    def begin_read(self, topic: str, kind: int) -> bool:
        """Record that a read starts; False: the topic left, or a request is in flight already."""
        at = self.layout.topic_index.get(topic)
        if at is None or self._busy[at, kind]:
            return False
        # Only limited topics are read, so an unread rate may be one that an earlier run wrote.
        self._busy[at, kind] = self._ours[at, kind] = True
        return True

    def is_known(self, topic: int, kind: int) -> bool:
        """Whether a topic's rate is known and no request is in flight."""
        unknown = np.isnan(self.in_force[topic, SIDES[kind]]).any()
        return not (unknown or self._busy[topic, kind])

    def is_owned(self, topic: int) -> bool:
        """Whether all parts of a topic have a broker."""
        return bool(self.layout.owned[topic])

    def mark_unknown(self, topic: str, kind: int) -> None:
        """The topic's rate may have changed: forget it."""
        at = self.layout.topic_index.get(topic)
        if at is not None:
            self.in_force[at, SIDES[kind]] = self._after_writes[at, SIDES[kind]] = np.nan

    def mark_deleted(self, topic: str, kind: int) -> None:
        """The topic does not exist any more, so neither does its rate."""
        self.mark_unknown(topic, kind)
        self.to_remove.pop((topic, kind), None)
        at = self.layout.topic_index.get(topic)
        if at is not None:
            self._ours[at, kind] = False

    def retry_now(self) -> None:
        """End all pauses after failures."""
        self._retry_at_s[:] = -np.inf
        self._failures[:] = 0
        for key, at_s in self.to_remove.items():
            self.to_remove[key] = at_s if at_s == np.inf else -np.inf

    @property
    def held(self) -> BoolArray:
        """(u, 2) an administrator's rate that is not recorded yet: it must not be overwritten."""
        return self.administrators & ~self.recorded

    def read(
        self,
        topic: str,
        kind: int,
        rates: FloatArray,
        ceiling: FloatArray,
        *,
        administrators: bool,
        recorded: bool,
    ) -> None:
        """A read succeeded: these rates (2,) are in force.

        ``ceiling`` (2,): the administrator's rate of the topic, which may be the one in force.
        """
        at = self.layout.topic_index.get(topic)
        if at is not None:
            self.ceiling[at, SIDES[kind]] = ceiling
            self.recorded[at, kind] = recorded
        self.confirmed(topic, kind, rates, wrote=False, administrators=administrators)

    def note_recorded(self, topic: str, kind: int) -> None:
        """The administrator's rate in force is recorded now."""
        at = self.layout.topic_index.get(topic)
        if at is not None:
            self.recorded[at, kind] = self.administrators[at, kind]

    def forget_held(self) -> None:
        """Read rates again that may be ours in place of administrators' ones."""
        self.in_force[np.repeat(self.held & ~self._busy, 2, axis=1)] = np.nan

    def confirmed(
        self, topic: str, kind: int, rates: FloatArray, *, wrote: bool, administrators: bool = False
    ) -> None:
        """A write or a read succeeded: these rates (2,) are in force."""
        at = self.layout.topic_index.get(topic)
        ours = bool(np.isfinite(rates).any()) and not administrators
        if at is None:
            # The topic left its group while the request was in flight.
            if ours:
                self.to_remove[topic, kind] = -np.inf
            return
        self.in_force[at, SIDES[kind]] = self._after_writes[at, SIDES[kind]] = rates
        self._ours[at, kind], self.administrators[at, kind] = ours, administrators
        self._busy[at, kind] = self._uncertain[at, kind] = False
        # A successful read does not end the backoff of failed writes.
        if wrote or not self._write_failed[at, kind]:
            self._failures[at, kind] = 0
            self._write_failed[at, kind] = False

    def failed(self, topic: str, kind: int, now_s: float, *, wrote: bool) -> None:
        """A write or a read failed: pause requests for this topic, longer each time.

        After a failed write either rate may be in force until it is read; ``in_force`` keeps the
        higher one.
        """
        at = self.layout.topic_index.get(topic)
        if at is None:
            # The topic left its group while the request was in flight, and may have a rate.
            self.to_remove[topic, kind] = -np.inf
            return
        if wrote:
            self._after_writes[at, SIDES[kind]] = self.in_force[at, SIDES[kind]]
            self._write_failed[at, kind] = self._uncertain[at, kind] = True
        self._busy[at, kind] = False
        wait_s = FIRST_WAIT_S * 2.0 ** min(int(self._failures[at, kind]), 10)
        self._failures[at, kind] += 1
        self._retry_at_s[at, kind] = now_s + min(wait_s, LONGEST_WAIT_S)


def _relocated(old: Layout, new: Layout) -> IntArray:
    """Topics with a part that moved to another broker."""
    came_from = moved(old.part_index, new.parts)
    at = np.flatnonzero(came_from >= 0)
    broker_before, broker_now = (
        np.array([*layout.brokers, ""])[layout.broker[parts]]
        for layout, parts in ((old, came_from[at]), (new, at))
    )
    topics: IntArray = new.topic[at[broker_before != broker_now]]
    return topics
