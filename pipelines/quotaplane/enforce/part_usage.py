"""Usage of each part of a topic, and whether its rate throttled it during the measurement."""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.groups.standing import AT_LIMIT
from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray
from quotaplane.topics.topic_layout import Layout, empty_layout, moved

_TOO_MUCH: Final = 1.5
"""A part that uses this many times its rate had a burst, or its rate is not the one we know."""


class PartUsage:
    """Usage of the parts of a layout, from samples that arrive broker by broker.

    A sample is compared with the lowest rate that was in force in its window: a part whose rate was
    raised within the window would otherwise look unsaturated. The end of a window is known only to
    ``lag_s``. Usage well above the highest rate of the window is implausible.
    """

    def __init__(self, lag_s: float) -> None:
        self.layout = empty_layout()
        self._lag_s = lag_s
        self._stretch_begun_s = -np.inf
        self._implausible: set[str] = set()
        self._make(0)

    def _make(self, parts: int) -> None:
        self.usage: FloatArray = np.full((parts, BASIC), np.nan)
        """(p, 4) per second; NaN = not measured yet."""
        self.saturated: BoolArray = np.zeros((parts, BASIC), np.bool_)
        """(p, 4) the part used what its rate allows."""
        self._lowest: FloatArray = np.full((parts, BASIC), np.inf)
        """(p, 4) lowest rate in force since the window began."""
        self._recent: FloatArray = np.full((parts, BASIC), np.inf)
        """The same for the current stretch of ``lag_s``."""
        self._earlier: FloatArray = np.full((parts, BASIC), np.inf)
        """The same for the stretch before."""
        # A new part starts at inf, as the rate that was in force before it was seen is unknown.
        self._highest: FloatArray = np.full((parts, BASIC), np.inf)
        """(p, 4) highest rate in force since the window began."""
        self._recent_highest: FloatArray = np.full((parts, BASIC), np.inf)
        self._earlier_highest: FloatArray = np.full((parts, BASIC), np.inf)

    def carry(self, layout: Layout) -> None:
        """Continue with another layout; parts in both keep their figures."""
        came_from = moved(self.layout.part_index, layout.parts)
        stays = came_from >= 0
        names = (
            *("usage", "saturated", "_lowest", "_recent", "_earlier"),
            *("_highest", "_recent_highest", "_earlier_highest"),
        )
        previous = {name: getattr(self, name) for name in names}
        self._make(len(layout.parts))
        for name in names:
            getattr(self, name)[stays] = previous[name][came_from[stays]]
        self.layout = layout

    def note_rates(self, in_force: FloatArray, now_s: float) -> None:
        """Record the rates of topics (u, 4) in force now; NaN = not known. Called every tick."""
        rates = in_force[self.layout.topic]
        most = np.where(np.isnan(rates), np.inf, rates)
        if now_s - self._stretch_begun_s >= self._lag_s:
            self._earlier, self._stretch_begun_s = self._recent, now_s
            self._earlier_highest = self._recent_highest
            self._recent = np.full(rates.shape, np.inf)
            self._recent_highest = most
        self._recent = np.fmin(self._recent, rates)
        self._lowest = np.fmin(self._lowest, rates)
        self._recent_highest = np.maximum(self._recent_highest, most)
        self._highest = np.maximum(self._highest, most)

    def add_sample(self, parts: IntArray, usage: FloatArray) -> None:
        """Take in the usage (n, 4) of n parts over a window that has just ended."""
        self.usage[parts] = usage
        self.saturated[parts] = usage >= AT_LIMIT * self._lowest[parts]
        self._lowest[parts] = np.minimum(self._recent[parts], self._earlier[parts])
        above = parts[(usage > _TOO_MUCH * self._highest[parts]).any(axis=1)]
        topics = self.layout.topic[above].tolist()
        self._implausible.update(self.layout.topics[at] for at in topics)
        self._highest[parts] = np.maximum(self._recent_highest[parts], self._earlier_highest[parts])

    def take_implausible(self) -> set[str]:
        """Topics that, since the last call, used more than their rate allows.

        Such a topic may have been deleted and created again, which loses its rate.
        """
        topics, self._implausible = self._implausible, set()
        return topics
