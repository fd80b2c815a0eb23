"""Time series in equal buckets: means and peaks of values that hold for a while. Pure numpy.

A row is one line of a chart, such as a broker. Times are milliseconds since 1970, whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from quotaplane.model import BoolArray, FloatArray, IntArray

_S: Final = 1000
_MIN: Final = 60 * _S
_H: Final = 60 * _MIN
_DAY: Final = 24 * _H
STEPS_MS: Final = (
    *(n * _S for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MIN for n in (1, 2, 5, 10, 15, 30)),
    *(n * _H for n in (1, 2, 3, 6, 12)),
    _DAY,
)
"""Widths of buckets; wider ones are whole days."""


@dataclass(frozen=True)
class Grid:
    """T buckets of one width, side by side; they begin at multiples of it."""

    begin_ms: int
    step_ms: int
    count: int
    """T."""

    @property
    def end_ms(self) -> int:
        """The end of the last bucket."""
        return self.begin_ms + self.count * self.step_ms

    def times_ms(self) -> IntArray:
        """(T,) where the buckets begin."""
        return self.begin_ms + self.step_ms * np.arange(self.count, dtype=np.int64)


def grid_of(since_ms: int, until_ms: int, points: int) -> Grid:
    """The narrowest buckets of which at most ``points`` hold the period.

    >>> grid_of(61_500, 119_000, 60)
    Grid(begin_ms=61000, step_ms=1000, count=58)
    >>> grid_of(61_500, 119_000, 10)
    Grid(begin_ms=60000, step_ms=10000, count=6)

    Raises:
        ValueError: the period has no length, or there are no points.
    """
    if until_ms <= since_ms or points < 1:
        raise ValueError("a period needs a length, and a series points")
    # From a width on there is at most one bucket more than the period has widths.
    widest = -(-(until_ms - since_ms) // max(points - 1, 1) // _DAY) * _DAY
    days = range(2 * _DAY, max(widest, _DAY) + 2 * _DAY, _DAY)
    for step in (*STEPS_MS, *days):
        grid = _aligned(since_ms, until_ms, step)
        if grid.count <= points:
            return grid
    return Grid(since_ms, until_ms - since_ms, 1)  # one point, and a period across midnight


def _aligned(since_ms: int, until_ms: int, step_ms: int) -> Grid:
    first, last = since_ms // step_ms, -(-until_ms // step_ms)
    return Grid(first * step_ms, step_ms, last - first)


@dataclass(frozen=True)
class Spans:
    """The times during which each of n values holds; those of a row do not overlap."""

    row: IntArray
    """(n,)"""
    begin_ms: IntArray
    """(n,)"""
    end_ms: IntArray
    """(n,) not before ``begin_ms``; if equal, the value never holds."""


def until_next(row: IntArray, at_ms: IntArray, end_ms: int) -> Spans:
    """Values that hold until the next one of the row, the last until ``end_ms``: limits, quotas.

    ``row`` and ``at_ms`` (n,) are sorted, by row and then by time.

    >>> until_next(np.array([0, 0, 1]), np.array([5, 7, 6]), 10).end_ms
    array([ 7, 10, 10])
    """
    return Spans(row, at_ms, np.maximum(_next_in_row(row, at_ms, end_ms), at_ms))


def of_reports(
    row: IntArray, at_ms: IntArray, window_ms: IntArray, hold_ms: IntArray, end_ms: int
) -> Spans:
    """Rates that were measured in the window before ``at_ms``, and hold until the next window.

    Brokers do not report rates that hardly changed, so a rate holds for up to ``hold_ms`` (n,)
    after its window, and not beyond ``end_ms``. ``row`` and ``at_ms`` (n,) are sorted, by row and
    then by time.

    A row has windows of 10 that end at 10, at 20, and after a pause at 100:

    >>> at = np.array([10, 20, 100])
    >>> spans = of_reports(np.zeros(3, int), at, np.full(3, 10), np.full(3, 50), 120)
    >>> spans.begin_ms, spans.end_ms
    (array([ 0, 10, 90]), array([ 10,  70, 120]))
    """
    begin = at_ms - window_ms
    # The window of a report that came late may reach into the one before.
    same = np.zeros(len(row), np.bool_)
    same[1:] = row[1:] == row[:-1]
    begin[same] = np.maximum(begin[same], at_ms[:-1][same[1:]])
    held = np.minimum(_next_in_row(row, begin, end_ms), at_ms + hold_ms)
    return Spans(row, begin, np.maximum(held, at_ms))


def _next_in_row(row: IntArray, at_ms: IntArray, end_ms: int) -> IntArray:
    """(n,) the next time of the row, ``end_ms`` at the latest."""
    following = np.full(len(row), end_ms, np.int64)
    if len(row) > 1:
        same = row[1:] == row[:-1]
        following[:-1][same] = np.minimum(at_ms[1:][same], end_ms)
    return following


class BucketedSpans:
    """Values of n spans, put together by row and bucket: arrays (rows, T).

    Row 0 is 10 for 500 ms, then 30 for 1500 ms; row 1 is known for the last second only:

    >>> grid = grid_of(0, 2000, 2)
    >>> spans = until_next(np.array([0, 0, 1]), np.array([0, 500, 1000]), 2000)
    >>> BucketedSpans(spans, 2, grid).means(np.array([10.0, 30.0, 7.0])).tolist()
    [[20.0, 30.0], [nan, 7.0]]
    """

    def __init__(self, spans: Spans, rows: int, grid: Grid) -> None:
        self._shape = (rows, grid.count)
        begin = np.clip(spans.begin_ms, grid.begin_ms, grid.end_ms) - grid.begin_ms
        end = np.clip(spans.end_ms, grid.begin_ms, grid.end_ms) - grid.begin_ms
        first, last = begin // grid.step_ms, -(-end // grid.step_ms)
        counts = np.where(end > begin, last - first, 0)
        # One piece for each span and bucket that it touches: at most rows * T + n of them.
        self._span = np.repeat(np.arange(len(counts)), counts)
        before = np.repeat(np.cumsum(counts) - counts, counts)
        bucket = first[self._span] + np.arange(len(self._span)) - before
        edge = bucket * grid.step_ms
        self._ms = np.minimum(end[self._span], edge + grid.step_ms)
        self._ms = self._ms - np.maximum(begin[self._span], edge)
        self._place = spans.row[self._span] * grid.count + bucket

    def means(self, values: FloatArray) -> FloatArray:
        """(rows, T) means over time of the values (n,).

        A value counts while it is finite; NaN: it is not known for any part of the bucket, inf: it
        is known, and infinite all the time.
        """
        held = values[self._span]
        finite, infinite = np.isfinite(held), np.isinf(held)
        amount = self._sums(finite, np.where(finite, held, 0.0) * self._ms)
        time = self._sums(finite, self._ms.astype(np.float64))
        empty = np.where(self._sums(infinite, np.ones(len(held))) > 0, np.inf, np.nan)
        means: FloatArray = np.divide(amount, time, out=empty, where=time > 0)
        return means

    def peaks(self, values: FloatArray) -> FloatArray:
        """(rows, T) greatest of the values (n,); NaN: none is known."""
        held = values[self._span]
        greatest = np.full(self._shape[0] * self._shape[1], np.nan)
        np.fmax.at(greatest, self._place, held)
        return greatest.reshape(self._shape)

    def covered_ms(self) -> FloatArray:
        """(rows, T) milliseconds covered by any span."""
        return self._sums(np.ones(len(self._ms), np.bool_), self._ms.astype(np.float64))

    def _sums(self, counts: BoolArray, amounts: FloatArray) -> FloatArray:
        rows, count = self._shape
        sums = np.bincount(self._place[counts], amounts[counts], rows * count)
        return sums.astype(np.float64, copy=False).reshape(self._shape)
