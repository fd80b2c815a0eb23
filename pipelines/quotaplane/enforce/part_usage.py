"""What each part uses, and whether its rate held it back while that was measured."""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.enforce.subdivide import SATURATED
from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray
from quotaplane.topic_layout import Layout, moved, nothing

_TOO_MUCH: Final = 1.5
"""Who uses so many times its rate has another one than we know of, or had a burst."""


class PartUsage:
    """Usage of the parts of a layout, from samples that come broker by broker.

    A sample is held against the lowest rate that was in force in its window: whoever was raised in
    the middle of it must not look as if that was too much for it. Nobody tells when a window ended,
    only when it was noticed: ``lag_s`` later at most. What is more than even the highest of them
    let through is odd.
    """

    def __init__(self, lag_s: float) -> None:
        self.layout = nothing()
        self._lag_s = lag_s
        self._turned_s = -np.inf
        self._odd: set[str] = set()
        self._make(0)

    def _make(self, parts: int) -> None:
        self.usage: FloatArray = np.full((parts, BASIC), np.nan)
        """(p, 4) per second; NaN = not measured yet."""
        self.saturated: BoolArray = np.zeros((parts, BASIC), np.bool_)
        """(p, 4)"""
        self._lowest: FloatArray = np.full((parts, BASIC), np.inf)
        # The lowest of this stretch of lag_s, and of the one before.
        self._recent: FloatArray = np.full((parts, BASIC), np.inf)
        self._earlier: FloatArray = np.full((parts, BASIC), np.inf)
        # And the highest: of what is new anything may have been in force before.
        self._highest: FloatArray = np.full((parts, BASIC), np.inf)
        self._recent_highest: FloatArray = np.full((parts, BASIC), np.inf)
        self._earlier_highest: FloatArray = np.full((parts, BASIC), np.inf)

    def carry(self, layout: Layout) -> None:
        """Go on with another layout."""
        came_from = moved(self.layout.part_place, layout.parts)
        stays = came_from >= 0
        names = (
            *("usage", "saturated", "_lowest", "_recent", "_earlier"),
            *("_highest", "_recent_highest", "_earlier_highest"),
        )
        before = {name: getattr(self, name) for name in names}
        self._make(len(layout.parts))
        for name in names:
            getattr(self, name)[stays] = before[name][came_from[stays]]
        self.layout = layout

    def under(self, in_force: FloatArray, now_s: float) -> None:
        """These rates of topics (u, 4) are in force now; NaN = not known. Told every tick."""
        rates = in_force[self.layout.topic]
        most = np.where(np.isnan(rates), np.inf, rates)
        if now_s - self._turned_s >= self._lag_s:
            self._earlier, self._turned_s = self._recent, now_s
            self._earlier_highest = self._recent_highest
            self._recent = np.full(rates.shape, np.inf)
            self._recent_highest = most
        self._recent = np.fmin(self._recent, rates)
        self._lowest = np.fmin(self._lowest, rates)
        self._recent_highest = np.maximum(self._recent_highest, most)
        self._highest = np.maximum(self._highest, most)

    def measured(self, parts: IntArray, usage: FloatArray) -> None:
        """The usage (n, 4) of n parts, over a window that has just ended."""
        self.usage[parts] = usage
        self.saturated[parts] = usage >= SATURATED * self._lowest[parts]
        self._lowest[parts] = np.minimum(self._recent[parts], self._earlier[parts])
        odd = parts[(usage > _TOO_MUCH * self._highest[parts]).any(axis=1)]
        self._odd.update(self.layout.topics[at] for at in self.layout.topic[odd].tolist())
        self._highest[parts] = np.maximum(self._recent_highest[parts], self._earlier_highest[parts])

    def odd(self) -> set[str]:
        """Topics that used more than they could, since the last call: perhaps made anew."""
        odd, self._odd = self._odd, set()
        return odd
