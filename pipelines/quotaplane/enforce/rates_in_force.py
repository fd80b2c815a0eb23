"""What rates are in force as far as is known, and what is under way; over changes of the layout."""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.enforce.rate_writes import Moves, Rates
from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray
from quotaplane.topic_layout import KINDS, SIDES, Layout, moved, nothing

FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 30.0
"""After a failure a topic is left alone for so long, at first and at most."""


class RatesInForce:
    """Rates of the topics of a layout, and of those that left it and still have ours.

    Answers come when the layout may be another one already, so topics are called by name here.
    """

    def __init__(self) -> None:
        self.layout = nothing()
        self.leaving: dict[tuple[str, int], float] = {}
        """(topic, kind) that is to lose its rate: the topic left its group. And not before when."""
        self._make(0)

    def _make(self, topics: int) -> None:
        self.in_force: FloatArray = np.full((topics, BASIC), np.nan)
        self._going: FloatArray = np.full((topics, BASIC), np.nan)
        self._busy: BoolArray = np.zeros((topics, len(KINDS)), np.bool_)
        self._ours: BoolArray = np.zeros((topics, len(KINDS)), np.bool_)
        self._failures = np.zeros((topics, len(KINDS)), np.int64)
        self._write_failed: BoolArray = np.zeros((topics, len(KINDS)), np.bool_)
        self._unsure: BoolArray = np.zeros((topics, len(KINDS)), np.bool_)
        self._again_s: FloatArray = np.full((topics, len(KINDS)), -np.inf)
        self._since_s: FloatArray = np.full((topics, len(KINDS)), np.inf)

    def carry(self, layout: Layout) -> None:
        """Go on with another layout: what is known of topics that stay is kept."""
        came_from = moved(self.layout.place, layout.topics)
        stays = came_from >= 0
        names = (
            *("in_force", "_going", "_busy", "_ours"),
            *("_failures", "_write_failed", "_unsure", "_again_s", "_since_s"),
        )
        before = {name: getattr(self, name) for name in names}
        stayed = np.zeros(len(self.layout.topics), np.bool_)
        stayed[came_from[stays]] = True
        # Of what is under way it is seen when that ends.
        left = self._ours & ~self._busy & ~stayed[:, None]
        for at, kind in np.argwhere(left).tolist():
            self.leaving[self.layout.topics[at], kind] = -np.inf
        self._make(len(layout.topics))
        for name in names:
            getattr(self, name)[stays] = before[name][came_from[stays]]
        # What failed where a topic was says nothing of where it is now.
        self._again_s[_relocated(self.layout, layout)] = -np.inf
        self.layout = layout
        if self.leaving:
            # Back again: what is in force is read anew.
            for key in [key for key in self.leaving if key[0] in layout.place]:
                del self.leaving[key]

    def rates(self, now_s: float) -> Rates:
        """What ``plan`` is given."""
        waited_s = np.maximum(now_s - self._since_s, 0.0)
        free = ~self._busy & (self._again_s <= now_s)
        failing = self._failures > 0
        return Rates(self.in_force, self._going, free, self._unsure, failing, waited_s)

    def start(self, moves: Moves, count: int, now_s: float) -> None:
        """The first so many of the moves are under way now, the others wait."""
        waiting = np.zeros(self._since_s.shape, np.bool_)
        waiting[moves.topic[count:], moves.kind[count:]] = True
        self._since_s = np.where(waiting, np.minimum(self._since_s, now_s), np.inf)
        for topic, kind, rates in zip(
            moves.topic[:count], moves.kind[:count], moves.rates[:count], strict=True
        ):
            side = SIDES[kind]
            self._busy[topic, kind] = self._ours[topic, kind] = True
            self.in_force[topic, side] = np.maximum(self.in_force[topic, side], rates)
            self._going[topic, side] = rates

    def reading(self, topic: str, kind: int) -> bool:
        """The topic's rate is read now; False if that is in vain, or something is under way."""
        at = self.layout.place.get(topic)
        if at is None or self._busy[at, kind]:
            return False
        # Only what has limits is read: a rate that nobody could read yet may be one of ours.
        self._busy[at, kind] = self._ours[at, kind] = True
        return True

    def is_known(self, topic: int, kind: int) -> bool:
        """Whether a topic's rate is known, and nothing is under way."""
        unknown = np.isnan(self.in_force[topic, SIDES[kind]]).any()
        return not (unknown or self._busy[topic, kind])

    def is_owned(self, topic: int) -> bool:
        """Whether brokers have all of a topic's parts."""
        return bool(self.layout.owned[topic])

    def unknown(self, topic: str, kind: int) -> None:
        """Whatever was known of the topic's rate, it may be another one now."""
        at = self.layout.place.get(topic)
        if at is not None:
            self.in_force[at, SIDES[kind]] = self._going[at, SIDES[kind]] = np.nan

    def gone(self, topic: str, kind: int) -> None:
        """The topic does not exist, nor does its rate."""
        self.unknown(topic, kind)
        self.leaving.pop((topic, kind), None)
        at = self.layout.place.get(topic)
        if at is not None:
            self._ours[at, kind] = False

    def at_once(self) -> None:
        """Try everything that failed again, without waiting."""
        self._again_s[:] = -np.inf
        self._failures[:] = 0
        for key, at_s in self.leaving.items():
            self.leaving[key] = at_s if at_s == np.inf else -np.inf

    def settled(self, topic: str, kind: int, rates: FloatArray, *, wrote: bool) -> None:
        """These (2,) are in force: written, or read."""
        at = self.layout.place.get(topic)
        if at is None:
            # It left while this was under way.
            if np.isfinite(rates).any():
                self.leaving[topic, kind] = -np.inf
            return
        self.in_force[at, SIDES[kind]] = self._going[at, SIDES[kind]] = rates
        self._ours[at, kind] = np.isfinite(rates).any()
        self._busy[at, kind] = self._unsure[at, kind] = False
        # That it can be read does not say that it can be written.
        if wrote or not self._write_failed[at, kind]:
            self._failures[at, kind] = 0
            self._write_failed[at, kind] = False

    def failed(self, topic: str, kind: int, now_s: float, *, wrote: bool) -> None:
        """A write or a read failed: nothing more is tried for a while.

        What is in force after a write that failed nobody knows, until it is read: the higher of the
        two at most.
        """
        at = self.layout.place.get(topic)
        if at is None:
            # It left while this was under way, and has a rate for all that is known.
            self.leaving[topic, kind] = -np.inf
            return
        if wrote:
            self._going[at, SIDES[kind]] = self.in_force[at, SIDES[kind]]
            self._write_failed[at, kind] = self._unsure[at, kind] = True
        self._busy[at, kind] = False
        wait_s = FIRST_WAIT_S * 2.0 ** min(int(self._failures[at, kind]), 10)
        self._failures[at, kind] += 1
        self._again_s[at, kind] = now_s + min(wait_s, LONGEST_WAIT_S)


def _relocated(old: Layout, new: Layout) -> IntArray:
    """Topics of which a part has another broker now."""
    came_from = moved(old.part_place, new.parts)
    at = np.flatnonzero(came_from >= 0)
    had, has = (
        np.array([*layout.brokers, ""])[layout.broker[parts]]
        for layout, parts in ((old, came_from[at]), (new, at))
    )
    topics: IntArray = new.topic[at[had != has]]
    return topics
