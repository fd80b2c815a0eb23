"""The level of weighted water-filling, for many groups at once."""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.laws.segments import Segments
from quotaplane.model import BoolArray, FloatArray, IntArray

_RISING_ROUNDS: Final = 10
"""Rounds of removal before the search; enough for groups of up to ten brokers."""

_NEWTON_ROUNDS: Final = 6
"""Rounds of the search before every third one halves the bracket."""

_FEW_ROWS: Final = 1_000
"""With fewer rows, numpy calls cost more than the work on arrays."""


def water_level(
    rows: Segments,
    quota: FloatArray,
    weight: FloatArray | None,
    low: FloatArray | None,
    high: FloatArray,
    rising_rounds: int = _RISING_ROUNDS,
) -> tuple[FloatArray, FloatArray]:
    """The level at which ``sum(clip(weight * level, low, high))`` is the quota, by group.

    Without floors, brokers that are full at the level are removed, and the rest of the quota is
    divided again among the others; most groups settle in two to four rounds, and the unsettled ones
    continue alone. With floors, and after ``rising_rounds``, Newton's method is used within a
    bracket that is also halved, so that no input makes it slow.

    At the returned level the sum is the quota except for rounding errors, of each term and of the
    addition, however different the weights are.

    Args:
        rows: g groups with n rows; every group has ``sum(low) <= quota <= sum(high)``, except for
            rounding, and at least one row.
        quota: (g,) finite.
        weight: (n,) above 0; None: all 1.
        low: (n,) not above ``high``; None: all 0.
        high: (n,) finite.
        rising_rounds: maximum number of rounds of removal.

    Returns:
        The level, and the group's units per unit of level there (0 if all its brokers are at a
        bound); both (g,).

    >>> rows = Segments(np.array([0, 3]))
    >>> water_level(rows, np.array([120.0]), None, None, np.array([120.0, 60.0, 10.0]))
    (array([55.]), array([2.]))
    """
    filling = _Filling(rows, quota, weight, low, high)
    level, slope = filling.level.copy(), filling.slope.copy()
    at: IntArray = np.arange(rows.groups)
    round_ = rising_rounds if low is not None else 0
    # Newton's method may divide by 0; a result that is not finite is outside the bracket.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        while True:
            searched = round_ - rising_rounds
            unsettled = filling.rise() if searched < 0 else filling.search(searched)
            level[at], slope[at] = filling.level, filling.slope
            remaining = np.count_nonzero(unsettled)
            if not remaining:
                return level, slope
            # Copying the unsettled rows pays off once they are a minority.
            if 2 * remaining < len(at) and len(filling.high) > _FEW_ROWS:
                filling, at = filling.keep(unsettled), at[unsettled]
            round_ += 1


class _Filling:
    """The groups that are not settled, and their current levels."""

    def __init__(
        self,
        rows: Segments,
        quota: FloatArray,
        weight: FloatArray | None,
        low: FloatArray | None,
        high: FloatArray,
    ) -> None:
        self.rows, self.quota, self.weight, self.low, self.high = rows, quota, weight, low, high
        self.slope = rows.counts.astype(np.float64) if weight is None else rows.total(weight)
        self.level = quota / self.slope
        # The bracket of the search, and the distance from the quota at which it ends.
        self.lowest: FloatArray = np.zeros(rows.groups)
        self.highest: FloatArray = np.full(rows.groups, np.inf)
        self.near = quota * rows.slack / 4

    def keep(self, groups: BoolArray) -> _Filling:
        """Only the chosen groups, with their current levels."""
        part = _Filling.__new__(_Filling)
        part.rows, at = self.rows.keep(groups)
        part.quota = self.quota[groups]
        part.level, part.slope = self.level[groups], self.slope[groups]
        part.lowest, part.highest = self.lowest[groups], self.highest[groups]
        part.near = self.near[groups]
        part.high = self.high[at]
        part.weight = None if self.weight is None else self.weight[at]
        part.low = None if self.low is None else self.low[at]
        return part

    def rise(self) -> BoolArray:
        """One round without floors: remove full brokers; the level only rises.

        Returns:
            (g,) which groups may still rise. (Newton's method on a concave function from the left.)
        """
        full = self._filled() >= self.high
        rest = self.quota - self.rows.total(self.high * full)
        self.slope = self._width(~full)
        before = self.level
        solved = np.divide(rest, self.slope, out=before.copy(), where=self.slope > 0)
        self.level = np.maximum(solved, before)
        rising: BoolArray = solved > before
        return rising

    def search(self, searched: int) -> BoolArray:
        """One round of Newton's method, or of halving; ``searched``: number of previous rounds.

        Returns:
            (g,) which groups are not settled; the others keep their level.
        """
        filled = self._filled()
        full = filled >= self.high
        at_bound, free = self.high * full, ~full
        dry = None
        if self.low is not None:
            dry = filled < self.low
            at_bound += self.low * dry
            free &= ~dry
        rest = self.quota - self.rows.total(at_bound)
        self.slope = self._width(free)
        short = rest - self.slope * self.level
        unsettled: BoolArray = np.abs(short) > self.near
        under = short > 0
        np.copyto(self.lowest, self.level, where=under)
        np.copyto(self.highest, self.level, where=~under)
        next_ = rest / self.slope
        outside = unsettled & ~((next_ >= self.lowest) & (next_ < self.highest))
        halving = searched >= _NEWTON_ROUNDS and searched % 3 == 0
        if halving:
            outside = unsettled
        if outside.any():
            next_[outside], ended = self._within(outside, under, full, dry, halving)
            self.level = np.where(unsettled, next_, self.level)
            unsettled[outside] = ~ended
        else:
            self.level = np.where(unsettled, next_, self.level)
        return unsettled

    def _within(
        self,
        outside: BoolArray,
        under: BoolArray,
        full: BoolArray,
        dry: BoolArray | None,
        halving: bool,
    ) -> tuple[FloatArray, BoolArray]:
        """Levels within the bracket, for groups where Newton's method leaves it.

        Returns:
            The level of each of these groups, and which of these levels are final.
        """
        rows, at = self.rows.keep(outside)
        lowest, highest = self.lowest[outside], self.highest[outside]
        full, high = full[at], self.high[at]
        dry = np.zeros_like(full) if dry is None else dry[at]
        low = np.zeros_like(high) if self.low is None else self.low[at]
        # Below the quota, full brokers stay full; above it, brokers on their floors stay there.
        up = rows.spread(under[outside])
        stay = np.where(up, full, dry)
        rest = self.quota[outside] - rows.total(np.where(up, high, low) * stay)
        width = rows.total(~stay if self.weight is None else self.weight[at] * ~stay)
        middle = _halfway(lowest, highest)
        next_ = middle
        if not halving:
            next_ = rest / width
            # The bracket may have no upper end yet, or 0 as its lower end.
            mean = np.where(np.isinf(highest), 4 * lowest, (lowest + highest) / 2)
            mean = np.where(lowest > 0, mean, highest / 4)
            next_ = np.where((next_ > lowest) & (next_ < highest), next_, mean)
            next_ = np.where(np.isfinite(next_), next_, middle)
        # If bounds fix all brokers, no level moves any of them in the right direction.
        stuck = (self.slope[outside] == 0) & (rows.total(np.where(up, dry, full)) == 0)
        ended = stuck | (middle == lowest)
        return np.where(stuck, self.level[outside], np.where(ended, lowest, next_)), ended

    def _filled(self) -> FloatArray:
        level: FloatArray = self.rows.spread(self.level)
        return level if self.weight is None else level * self.weight

    def _width(self, free: BoolArray) -> FloatArray:
        return self.rows.total(free if self.weight is None else self.weight * free)


def _halfway(low: FloatArray, high: FloatArray) -> FloatArray:
    """The middle of all floats between two non-negative ones; ``low`` if there is none between.

    That halves a bracket of any order of magnitude.
    """
    bits = low.view(np.int64)
    middle: FloatArray = (bits + (high.view(np.int64) - bits) // 2).view(np.float64)
    return middle
