"""Rates over time in equal buckets: means of what holds from one instant to another."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from quotaplane.model import FloatArray, IntArray

_S: Final = 1000
_MIN: Final = 60 * _S
_H: Final = 60 * _MIN
DAY_MS: Final = 24 * _H
STEPS_MS: Final = (
    *(n * _S for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MIN for n in (1, 2, 5, 10, 15, 30)),
    *(n * _H for n in (1, 2, 3, 6, 12)),
    DAY_MS,
)
"""How long a bucket may be; of longer ones, whole days."""


class TimeAxis(NamedTuple):
    """T buckets of time, one after the other."""

    begin_ms: int
    """A multiple of ``step_ms`` since 1970."""
    step_ms: int
    number: int

    @property
    def edges_ms(self) -> IntArray:
        """(T + 1,) where each bucket begins, and where the last one ends."""
        return self.begin_ms + self.step_ms * np.arange(self.number + 1, dtype=np.int64)


class Spans(NamedTuple):
    """n rates, each of a series, from an instant up to another."""

    series: IntArray
    """(n,) from 0 to the number of series."""
    begin_ms: FloatArray
    end_ms: FloatArray
    rate: FloatArray
    """NaN: not known."""


def buckets_of(since_ms: int, until_ms: int, points: int) -> TimeAxis:
    """The shortest buckets of which at most ``points`` cover a period.

    >>> buckets_of(1_500, 61_000, points=300)
    TimeAxis(begin_ms=1000, step_ms=1000, number=60)
    >>> buckets_of(0, 7 * DAY_MS, points=300).step_ms // 60_000
    60
    >>> buckets_of(0, 100 * DAY_MS, points=10).step_ms // DAY_MS
    10
    """
    for step in STEPS_MS:
        made = _buckets(since_ms, until_ms, step)
        if made.number <= points:
            return made
    days = -(-(until_ms - since_ms) // (points * DAY_MS))
    made = _buckets(since_ms, until_ms, days * DAY_MS)
    # The first bucket begins before the period, so there may be one too many.
    return made if made.number <= points else _buckets(since_ms, until_ms, (days + 1) * DAY_MS)


def _buckets(since_ms: int, until_ms: int, step_ms: int) -> TimeAxis:
    begin = since_ms // step_ms * step_ms
    return TimeAxis(begin, step_ms, max(1, -(-(until_ms - begin) // step_ms)))


def means(spans: Spans, series: int, buckets: TimeAxis) -> FloatArray:
    """(series, T) the mean over the part of each bucket in which a rate is known; NaN: in none.

    >>> spans = Spans(np.array([0, 0]), np.array([0.0, 1500]), np.array([1500.0, 2000]),
    ...               np.array([4.0, 8.0]))
    >>> means(spans, 1, TimeAxis(0, 1000, 3))
    array([[ 4.,  6., nan]])
    """
    known = Spans(*(each[np.isfinite(spans.rate)] for each in spans))
    covered = _integral(known._replace(rate=np.ones(len(known.rate))), series, buckets)
    amount = _integral(known, series, buckets)
    # Times are whole milliseconds; less is an error of rounding.
    found: FloatArray = np.full(amount.shape, np.nan)
    np.divide(amount, covered, out=found, where=covered > 0.5)
    return found


def peaks(spans: Spans, series: int, buckets: TimeAxis) -> FloatArray:
    """(series, T) the highest rate that holds at some time in each bucket; NaN: none does.

    >>> spans = Spans(np.array([0, 0]), np.array([0.0, 500]), np.array([500.0, 2500]),
    ...               np.array([9.0, 4.0]))
    >>> peaks(spans, 1, TimeAxis(0, 1000, 3))
    array([[9., 4., 4.]])
    """
    found = np.full((series, buckets.number), -np.inf)
    known = Spans(*(each[np.isfinite(spans.rate)] for each in spans))
    for at in (known.begin_ms, known.end_ms - 1):
        place = np.floor((at - buckets.begin_ms) / buckets.step_ms).astype(np.int64)
        inside = (place >= 0) & (place < buckets.number) & (known.end_ms > known.begin_ms)
        np.maximum.at(found, (known.series[inside], place[inside]), known.rate[inside])
    # A rate that holds all through a bucket is the bucket's mean.
    highest: FloatArray = np.where(np.isfinite(found), found, np.nan)
    np.fmax(highest, means(spans, series, buckets), out=highest)
    return highest


def _integral(spans: Spans, series: int, buckets: TimeAxis) -> FloatArray:
    """(series, T) rate x milliseconds in each bucket.

    The series are laid one after the other on one axis of time. The sum of the rates changes where
    a span begins or ends, so its integral is linear in between, and one interpolation answers all.
    """
    edges = buckets.edges_ms - buckets.begin_ms
    length = float(edges[-1])
    offset = spans.series * length
    begin = np.clip(spans.begin_ms - buckets.begin_ms, 0.0, length) + offset
    end = np.clip(spans.end_ms - buckets.begin_ms, 0.0, length) + offset
    kept = end > begin
    at = np.concatenate([begin[kept], end[kept]])
    change = np.concatenate([spans.rate[kept], -spans.rate[kept]])
    if not len(at):
        return np.zeros((series, buckets.number))
    order = np.argsort(at, kind="stable")
    at, slope = at[order], np.cumsum(change[order])
    total = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(at))])
    wanted = np.arange(series)[:, None] * length + edges
    amounts: FloatArray = np.diff(np.interp(wanted, at, total), axis=1)
    return amounts
