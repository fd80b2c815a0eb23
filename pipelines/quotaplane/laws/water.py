"""The level of weighted water-filling, for many groups at once."""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.laws.segments import Segments
from quotaplane.model import BoolArray, FloatArray, IntArray

_QUICK_ROUNDS: Final = 10
"""Rounds of removal before sorting; enough for any group of up to ten brokers."""

_QUICK_ROUNDS_FLOORS: Final = 5
"""The same with floors, where a round costs twice as much."""


def water_level(
    rows: Segments,
    quota: FloatArray,
    weight: FloatArray | None,
    low: FloatArray | None,
    high: FloatArray,
    quick_rounds: int | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Where ``sum(clip(weight * level, low, high))`` is the quota, group by group.

    Brokers that the level satisfies are taken out, and the rest of the quota is divided again
    among the others; most groups settle in two to four rounds, and the unsettled ones go on alone.
    What is left after that is finished by bisection over its sorted breakpoints, so that no
    input makes it quadratic.

    Args:
        rows: g groups with n rows; every group has ``sum(low) <= quota <= sum(high)``, but for
            rounding, and at least one row.
        quota: (g,) finite.
        weight: (n,) above 0; None = all 1.
        low: (n,) not above ``high``; None = all 0.
        high: (n,) finite.
        quick_rounds: after how many rounds to sort; None = 10 without floors, 5 with them.

    Returns:
        The level, and how many units per unit of level the group takes there (0 when all its
        brokers are held by a bound); both (g,).

    >>> rows = Segments(np.array([0, 3]))
    >>> water_level(rows, np.array([120.0]), None, None, np.array([120.0, 60.0, 10.0]))
    (array([55.]), array([2.]))
    """
    filling = _Filling(rows, quota, weight, low, high)
    level, slope = filling.level.copy(), filling.slope.copy()
    at: IntArray = np.arange(rows.groups)
    unsettled: BoolArray = np.ones(rows.groups, dtype=np.bool_)
    if quick_rounds is None:
        quick_rounds = _QUICK_ROUNDS if low is None else _QUICK_ROUNDS_FLOORS
    for _ in range(quick_rounds):
        unsettled = filling.rise() if low is None else filling.freeze()
        level[at], slope[at] = filling.level, filling.slope
        left = np.count_nonzero(unsettled)
        if not left:
            return level, slope
        # Copying the unsettled rows pays once the settled ones are in the way.
        if 2 * left < len(at):
            filling, at = filling.keep(unsettled), at[unsettled]
            unsettled = unsettled[unsettled]
    at = at[unsettled]
    level[at], slope[at] = filling.keep(unsettled).bisect()
    return level, slope


class _Filling:
    """The groups that are still being filled, and how far they are."""

    def __init__(
        self,
        rows: Segments,
        quota: FloatArray,
        weight: FloatArray | None,
        low: FloatArray | None,
        high: FloatArray,
    ) -> None:
        self.rows, self.quota, self.weight, self.low, self.high = rows, quota, weight, low, high
        with np.errstate(over="ignore"):
            self.full_at = high if weight is None else high / weight
            self.dry_at = low if low is None or weight is None else low / weight
        if weight is None:
            self.slope = rows.counts.astype(np.float64)
        else:
            self.slope = rows.total(weight)
        self.level = quota / self.slope
        # Only freeze() needs these two: what each row is held at, and which rows are held.
        self.held: FloatArray = np.zeros(len(high))
        self.free: BoolArray = np.ones(len(high), dtype=np.bool_)

    def keep(self, groups: BoolArray) -> _Filling:
        """The chosen groups alone, as far as they are."""
        if groups.all():
            return self
        kept = _Filling.__new__(_Filling)
        kept.rows, at = self.rows.keep(groups)
        kept.quota = self.quota[groups]
        kept.level, kept.slope = self.level[groups], self.slope[groups]
        kept.high, kept.full_at = self.high[at], self.full_at[at]
        kept.weight = None if self.weight is None else self.weight[at]
        kept.low = None if self.low is None else self.low[at]
        kept.dry_at = None if self.dry_at is None else self.dry_at[at]
        kept.held, kept.free = self.held[at], self.free[at]
        return kept

    def rise(self) -> BoolArray:
        """One round without floors: take out whoever is full; the level only ever rises.

        Returns:
            (g,) which groups may still rise. (Newton's method on a concave function from the left.)
        """
        full = self.full_at <= self.rows.spread(self.level)
        rest = self.quota - self.rows.total(self.high * full)
        return self._solve(rest, ~full, self.level)

    def freeze(self) -> BoolArray:
        """One round with floors: hold those below their floor, or those that are full.

        Only one kind at a time, whichever weighs more: if the floors ask for more than the full
        leave over, the level will sink, so the floors are certain, and the other way round. (The
        resolution of flexible lengths in CSS works like this.)
        """
        assert self.low is not None
        assert self.dry_at is not None
        level = self.rows.spread(self.level)
        filled = level if self.weight is None else level * self.weight
        full = self.free & (self.full_at <= level)
        dry = self.free & (self.dry_at > level)
        excess = self.rows.total((self.high - filled) * full + (self.low - filled) * dry)
        full &= self.rows.spread(excess <= 0)
        dry &= self.rows.spread(excess >= 0)
        self.held += self.high * full + self.low * dry
        self.free &= ~(full | dry)
        moved = self.rows.total(full | dry) > 0
        self._solve(self.quota - self.rows.total(self.held), self.free, None)
        unsettled: BoolArray = moved & (self.slope > 0)
        return unsettled

    def _solve(self, rest: FloatArray, free: BoolArray, at_least: FloatArray | None) -> BoolArray:
        self.slope = self.rows.total(free if self.weight is None else self.weight * free)
        before = self.level
        solved = np.divide(rest, self.slope, out=before.copy(), where=self.slope > 0)
        np.maximum(solved, 0.0 if at_least is None else at_least, out=solved)
        self.level = solved
        changed: BoolArray = solved > before
        return changed

    def bisect(self) -> tuple[FloatArray, FloatArray]:
        """Level and slope by bisection over each group's sorted breakpoints."""
        rows = self.rows
        full_at, dry_at = _coarse(self.full_at, rows), None
        points, counts = [full_at], rows.counts
        if self.dry_at is not None:
            dry_at = _coarse(self.dry_at, rows)
            points, counts = [full_at, dry_at], 2 * counts
        of_point = np.concatenate([rows.of_row] * len(points))
        breakpoints = _sorted_by_group(np.concatenate(points), of_point, rows)
        starts = np.cumsum(counts) - counts
        below: IntArray = np.full(rows.groups, -1)
        above: IntArray = counts.copy()
        level: FloatArray = np.zeros(rows.groups)
        while True:
            middle = (below + above) // 2
            open_ = above - below > 1
            if not open_.any():
                break
            level = np.where(open_, breakpoints[starts + np.maximum(middle, 0)], 0.0)
            fits = rows.total(self._filled(rows.spread(level))) <= self.quota
            below = np.where(open_ & fits, middle, below)
            above = np.where(open_ & ~fits, middle, above)
        level = np.where(below >= 0, breakpoints[starts + np.maximum(below, 0)], 0.0)
        # First with the breakpoints as coarse as the level is, then once more with the true ones.
        self.level = level
        self._solve_at(full_at, dry_at)
        self._solve_at(self.full_at, self.dry_at)
        return self.level, self.slope

    def _filled(self, level: FloatArray) -> FloatArray:
        filled = level if self.weight is None else level * self.weight
        filled = np.minimum(filled, self.high)
        return filled if self.low is None else np.maximum(filled, self.low)

    def _solve_at(self, full_at: FloatArray, dry_at: FloatArray | None) -> None:
        level = self.rows.spread(self.level)
        full = full_at <= level
        held, free = self.high * full, ~full
        if dry_at is not None and self.low is not None:
            dry = (dry_at > level) & free
            held, free = held + self.low * dry, free & ~dry
        self._solve(self.quota - self.rows.total(held), free, None)


def _group_bits(rows: Segments) -> int:
    return (rows.groups - 1).bit_length()


def _coarse(points: FloatArray, rows: Segments) -> FloatArray:
    """Breakpoints with their last bits cut off, so that a group's number fits in front of them.

    One sort of plain 64-bit words is ten times faster than sorting by two keys. With 25,000
    groups 37 bits of mantissa remain.
    """
    bits = np.uint64(_group_bits(rows))
    return (((points + 0.0).view(np.uint64) >> bits) << bits).view(np.float64)


def _sorted_by_group(points: FloatArray, of_point: IntArray, rows: Segments) -> FloatArray:
    """Sort coarse points within their groups; bits of non-negative floats sort like the floats."""
    bits = _group_bits(rows)
    if bits == 0:
        return np.sort(points)
    keys = (of_point.astype(np.uint64) << np.uint64(64 - bits)) | (
        points.view(np.uint64) >> np.uint64(bits)
    )
    keys.sort()
    return (keys << np.uint64(bits)).view(np.float64)
