"""BucketedSpans of time series: the ladder of widths, means over time, peaks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from quotaplane.model import IntArray
from quotaplane.query.buckets import STEPS_MS, BucketedSpans, Grid, grid_of, of_reports, until_next

NAN, INF = np.nan, np.inf
DAY_MS = 86_400_000


def array(*values: int) -> IntArray:
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize(
    ("length_ms", "points", "step_ms"),
    [
        (300_000, 300, 1000),
        (3_600_000, 300, 15_000),
        (30 * DAY_MS, 300, 10_800_000),
        (365 * DAY_MS, 300, 2 * DAY_MS),
        (3650 * DAY_MS, 10, 365 * DAY_MS),
        (1, 1, 1000),
    ],
)
def test_the_narrowest_width_with_no_more_buckets_than_points(
    length_ms: int, points: int, step_ms: int
) -> None:
    grid = grid_of(0, length_ms, points)
    assert grid.step_ms == step_ms
    assert grid.count <= points


@given(some.integers(0, 2**41), some.integers(1, 2**38), some.integers(1, 2000))
def test_the_buckets_hold_the_period(since: int, length: int, points: int) -> None:
    grid = grid_of(since, since + length, points)
    assert 1 <= grid.count <= points
    assert grid.begin_ms <= since < grid.begin_ms + grid.step_ms
    assert grid.end_ms - grid.step_ms < since + length <= grid.end_ms
    if grid.step_ms in STEPS_MS:
        assert grid.begin_ms % grid.step_ms == 0


def test_a_period_without_length_is_refused() -> None:
    with pytest.raises(ValueError, match="length"):
        grid_of(5, 5, 10)


def test_means_of_a_step_function_are_weighted_by_time() -> None:
    grid = Grid(0, 1000, 4)
    spans = until_next(array(0, 0, 1, 1), array(-500, 1250, 2000, 2500), 4000)
    means = BucketedSpans(spans, 3, grid).means(np.array([8.0, 16.0, INF, 6.0]))
    # Row 1 is unlimited for half of a bucket, which counts for the other half; row 2 has nothing.
    assert means[0].tolist() == [8.0, 8.0 * 0.25 + 16.0 * 0.75, 16.0, 16.0]
    np.testing.assert_array_equal(means[1], [NAN, NAN, 6.0, 6.0])
    np.testing.assert_array_equal(means[2], [NAN] * 4)


def test_unlimited_all_the_time_is_infinite_and_unknown_is_nan() -> None:
    grid = Grid(0, 1000, 3)
    spans = until_next(array(0, 0), array(1000, 2000), 3000)
    np.testing.assert_array_equal(
        BucketedSpans(spans, 1, grid).means(np.array([INF, NAN])), [[NAN, INF, NAN]]
    )


def test_the_last_value_holds_until_the_end_of_the_period_only() -> None:
    buckets = BucketedSpans(until_next(array(0), array(500), 1500), 1, Grid(0, 1000, 3))
    assert buckets.covered_ms().tolist() == [[500.0, 500.0, 0.0]]


def test_a_rate_holds_in_its_window_and_until_the_next_one() -> None:
    # Windows of 10 s, and a pause: the rate of the second holds for five windows more.
    at, window = array(10_000, 20_000, 100_000), array(10_000, 10_000, 10_000)
    spans = of_reports(array(0, 0, 0), at, window, 5 * window, 110_000)
    buckets = BucketedSpans(spans, 1, Grid(0, 10_000, 11))
    means = buckets.means(np.array([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(means, [[1, 2, 2, 2, 2, 2, 2, NAN, NAN, 3, 3]])


def test_windows_that_overlap_count_once() -> None:
    spans = of_reports(
        array(0, 0, 1), array(1000, 1500, 900), array(1000, 1000, 400), array(0, 0, 0), 5000
    )
    assert spans.begin_ms.tolist() == [0, 1000, 500]
    assert spans.end_ms.tolist() == [1000, 1500, 900]


def test_peaks() -> None:
    spans = until_next(array(0, 0, 0), array(0, 300, 1500), 2000)
    buckets = BucketedSpans(spans, 2, Grid(0, 1000, 2))
    np.testing.assert_array_equal(
        buckets.peaks(np.array([5.0, 1.0, NAN])), [[5.0, 1.0], [NAN, NAN]]
    )


def test_without_spans_nothing_is_known() -> None:
    empty = array()
    buckets = BucketedSpans(until_next(empty, empty, 10), 2, Grid(0, 5, 2))
    assert np.isnan(buckets.means(np.array([]))).all()
    assert np.isnan(buckets.peaks(np.array([]))).all()


@given(
    some.lists(some.tuples(some.integers(0, 2), some.integers(-50, 150), some.integers(0, 9))),
    some.integers(1, 40),
)
def test_means_are_those_of_every_millisecond(
    given_values: list[tuple[int, int, int]], step: int
) -> None:
    rows, grid = 3, Grid(0, step, -(-100 // step))
    ordered = sorted(given_values, key=lambda value: value[:2])
    row, at, values = (np.array([v[n] for v in ordered], dtype=np.int64) for n in range(3))
    means = BucketedSpans(until_next(row, at, 100), rows, grid).means(values.astype(np.float64))
    every = np.full((rows, grid.end_ms), NAN)
    for of_row, begin, value in ordered:
        every[of_row, max(begin, 0) : 100] = value
    for bucket in range(grid.count):
        part = every[:, bucket * step : (bucket + 1) * step]
        for of_row in range(rows):
            known = part[of_row][~np.isnan(part[of_row])]
            expected = known.mean() if len(known) else NAN
            np.testing.assert_allclose(means[of_row, bucket], expected)
