"""The default law against exact arithmetic, and against what others published."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quotaplane.laws import Problem, Reason, get_law, one_group
from quotaplane.laws.blocks import BLOCK_ROWS
from quotaplane.laws.segments import Segments
from quotaplane.laws.water import water_level

max_min = get_law("max_min")

rates = st.one_of(
    st.sampled_from([0.0, 0.1, 1.0, 10.0, 1e-9, 1e15]),
    st.floats(1e-100, 100),
    st.floats(1e-100, 1e9),
    st.integers(0, 100).map(float),
)
demands = st.one_of(rates, st.just(math.inf))
weights = st.one_of(st.just(1.0), st.sampled_from([1e-3, 0.1, 3.0, 1000.0]), st.floats(0.01, 100))
floors = st.one_of(st.just(0.0), st.just(0.0), rates)
brokers = st.lists(st.tuples(demands, weights, floors), max_size=12)
groups = st.lists(st.tuples(rates, brokers), min_size=1, max_size=5)


def problem(parts: list[tuple[float, list[tuple[float, float, float]]]]) -> Problem:
    rows = np.array([row for _, part in parts for row in part], dtype=float).reshape(-1, 3)
    sizes = [len(part) for _, part in parts]
    return Problem(
        starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        quota=np.array([quota for quota, _ in parts]),
        usage=np.zeros(len(rows)),
        limit=np.full(len(rows), np.inf),
        demand=rows[:, 0],
        weight=rows[:, 1],
        floor=rows[:, 2],
    )


def textbook(quota: float, part: list[tuple[float, float, float]]) -> list[Fraction]:
    """One group in exact arithmetic: try every interval between two breakpoints."""
    whole = Fraction(quota)
    wants = [min(Fraction(quota if math.isinf(d) else d), whole) for d, _, _ in part]
    widths = [Fraction(w) for _, w, _ in part]
    lows = [Fraction(f) for _, _, f in part]
    if sum(lows) > whole:
        lows = [low * whole / sum(lows) for low in lows]
    highs = [max(want, low) for want, low in zip(wants, lows, strict=True)]
    if sum(highs) <= whole:
        spare = whole - sum(highs)
        return [high + spare * w / sum(widths) for high, w in zip(highs, widths, strict=True)]

    def filled(level: Fraction) -> list[Fraction]:
        return [
            min(max(low, w * level), high) for low, high, w in zip(lows, highs, widths, strict=True)
        ]

    points = {Fraction(0)} | {
        bound / w for bounds in (lows, highs) for bound, w in zip(bounds, widths, strict=True)
    }
    ordered = sorted(points)
    below = max(point for point in ordered if sum(filled(point)) <= whole)
    above = min(point for point in ordered if point > below)
    here, there = sum(filled(below)), sum(filled(above))
    return filled(below + (above - below) * (whole - here) / (there - here))


def parts_of(solved: np.ndarray, starts: np.ndarray) -> list[np.ndarray]:
    return [solved[a:b] for a, b in pairwise(starts)]


@given(groups)
@example([(100.0, [(500.0, 1.0, 60.0), (500.0, 1.0, 0.0), (500.0, 1.0, 0.0)])])
@example([(1.0, [(0.1, 1.0, 0.0)] * 10)])
@example([(0.0, [(math.inf, 1.0, 5.0)]), (7.0, []), (3.0, [(1.0, 1.0, 0.0)])])
def test_is_the_textbook_solution(parts: list[Any]) -> None:
    given_ = problem(parts)
    for (quota, part), limits in zip(
        parts, parts_of(max_min(given_).limits, given_.starts), strict=True
    ):
        exact = textbook(quota, part) if part else []
        for limit, wanted in zip(limits.tolist(), exact, strict=True):
            assert abs(Fraction(limit) - wanted) <= Fraction(quota) * Fraction(1, 10**9)


@given(groups)
@example([(1e-9, [(math.inf, 1000.0, 0.0)])])
@example([(0.3, [(0.1, 1.0, 0.0), (0.2, 1000.0, 0.0), (math.inf, 1e-3, 0.0)])])
def test_never_adds_up_to_more_than_the_quota_in_any_order(parts: list[Any]) -> None:
    given_ = problem(parts)
    for (quota, part), limits in zip(
        parts, parts_of(max_min(given_).limits, given_.starts), strict=True
    ):
        values = limits.tolist()
        orders = [values, values[::-1], sorted(values), sorted(values, reverse=True)]
        assert all(np.cumsum([0.0, *order])[-1] <= quota for order in orders)
        assert sum(map(Fraction, values)) <= Fraction(quota)
        if part:
            assert math.fsum(values) >= quota * (1 - 1e-12)


@given(groups)
def test_sorting_finds_the_same_level_as_removal(parts: list[Any]) -> None:
    given_ = problem(parts)
    rows = Segments(given_.starts)
    quota = given_.quota
    low = np.minimum(given_.floor, rows.spread(quota / np.maximum(rows.counts, 1)))
    high = np.maximum(low, np.minimum(given_.demand, rows.spread(quota)))
    tight = rows.total(high) > quota * (1 + 1e-9)
    if not tight.any():
        return
    some, at = rows.keep(tight)
    for floor in (None, low[at]):
        top = np.minimum(given_.demand, rows.spread(quota))[at] if floor is None else high[at]
        if not (some.total(top) > quota[tight] * (1 + 1e-9)).all():
            continue
        task = (some, quota[tight], given_.weight[at], floor, top)

        def filled(level: np.ndarray, task: Any = task) -> np.ndarray:
            rows, _, weight, floor, top = task
            value = np.minimum(weight * rows.spread(level), top)
            return value if floor is None else np.maximum(value, floor)

        allowed = 1e-10 * some.spread(quota[tight])
        for rounds in (0, 1, 2):
            difference = filled(water_level(*task, quick_rounds=rounds)[0]) - filled(
                water_level(*task, quick_rounds=100)[0]
            )
            assert (np.abs(difference) <= allowed).all()


@given(rates, rates, brokers)
def test_a_higher_quota_lowers_no_limit(
    one: float, other: float, part: list[tuple[float, float, float]]
) -> None:
    low, high = sorted((one, other))
    before = max_min(problem([(low, part)])).limits
    after = max_min(problem([(high, part)])).limits
    assert (after >= before - 1e-9 * high).all()


@given(groups)
def test_floors_hold_and_the_satisfied_are_not_cut_for_those_with_more(parts: list[Any]) -> None:
    given_ = problem(parts)
    limits = max_min(given_).limits
    rows = Segments(given_.starts)
    fit = rows.spread(rows.total(given_.floor) <= given_.quota * (1 - 1e-9))
    quota = rows.spread(given_.quota)
    assert (limits >= given_.floor * (1 - 1e-12))[fit].all()
    # Whoever has less than it wants has at least as much per weight as any other, whose
    # limit is not a floor.
    short = limits < given_.demand - 1e-9 * quota
    per_weight = limits / given_.weight
    for first, last in pairwise(given_.starts):
        part = slice(first, last)
        above_floor = fit[part] & (limits[part] > given_.floor[part] + 1e-9 * quota[part])
        if short[part].any() and above_floor.any():
            least = per_weight[part][short[part]].min()
            slack = 1e-9 * quota[part] / given_.weight[part]
            assert (per_weight[part] - slack <= least * (1 + 1e-9) + slack.max())[above_floor].all()


@pytest.mark.parametrize(
    ("quota", "demand", "weight", "expected"),
    [
        pytest.param(120, [1000, 60, 10], None, [55, 55, 10], id="doorman"),
        pytest.param(120, [1000, 50, 10], None, [60, 50, 10], id="doorman-middle-fits"),
        pytest.param(120, [1000, 500, 200], [6, 4, 2], [60, 40, 20], id="doorman-weights"),
        pytest.param(
            1000, [2000, 500, 700], [10, 10, 30], [200, 200, 600], id="doorman-clients-as-weights"
        ),
        pytest.param(120, [8, 32, 38, 44], None, [8, 32, 38, 42], id="doorman-stops-too-early"),
        pytest.param(100, [40, 80, 10], None, [40, 50, 10], id="tikv"),
        pytest.param(120, [100, 60, 55, 5], None, [115 / 3] * 3 + [5], id="tikv-not-max-min"),
        pytest.param(100, [math.inf, math.inf], None, [50, 50], id="saturated"),
        pytest.param(100, [math.inf, 0], None, [100, 0], id="one-saturated"),
        pytest.param(100, [10, 50, 30], None, [40 / 3, 160 / 3, 100 / 3], id="spare"),
        pytest.param(100, [0, 0], [1, 3], [25, 75], id="idle"),
        pytest.param(0, [math.inf, 3], None, [0, 0], id="no-quota"),
        pytest.param(math.inf, [math.inf, 0], None, [math.inf, math.inf], id="unlimited"),
        pytest.param(100, [], None, [], id="nobody"),
    ],
)
def test_known_cases(
    quota: float, demand: list[float], weight: list[float] | None, expected: list[float]
) -> None:
    limits = max_min(one_group(quota, demand=demand, weight=weight)).limits
    assert limits.tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("quota", "demand", "floor", "expected", "reasons"),
    [
        (100, [500, 500, 500], [60, 0, 0], [60, 20, 20], ["FLOOR", "FAIR_SHARE", "FAIR_SHARE"]),
        (100, [0, 500, 500], [60, 0, 0], [60, 20, 20], ["FLOOR", "FAIR_SHARE", "FAIR_SHARE"]),
        (100, [500, 500, 5], [10, 0, 0], [47.5, 47.5, 5], ["FAIR_SHARE", "FAIR_SHARE", "DEMAND"]),
        (100, [500, 500], [150, 50], [75, 25], ["FLOORS_CUT"] * 2),
        (100, [0, 10], [20, 0], [55, 45], ["FLOOR", "HEADROOM"]),
        (0, [1, 1], [5, 0], [0, 0], ["NO_QUOTA"] * 2),
        (math.inf, [1, 1], [5, 0], [math.inf] * 2, ["UNLIMITED"] * 2),
    ],
)
def test_floors_and_reasons(
    quota: float,
    demand: list[float],
    floor: list[float],
    expected: list[float],
    reasons: list[str],
) -> None:
    allocation = max_min(one_group(quota, demand=demand, floor=floor))
    assert allocation.limits.tolist() == pytest.approx(expected)
    assert [Reason(code).name for code in allocation.reasons.tolist()] == reasons


def test_whole_numbers_stay_whole() -> None:
    limits = max_min(one_group(120, demand=[8, 32, 38, 44])).limits
    assert limits.tolist() == [8.0, 32.0, 38.0, 42.0]


@pytest.mark.parametrize("floored", [False, True])
def test_a_group_that_removal_would_take_for_ever_over(floored: bool) -> None:
    # Geometric demands: each round of removal satisfies only a handful of 20,000 brokers.
    demand = 2.0 ** -(np.arange(20_000) * 0.05)
    floor = demand / 2 * (np.arange(20_000) % 3 == 0) * floored
    quota = float(demand.sum() * 0.999)
    given_ = one_group(quota, demand=demand.tolist(), floor=floor.tolist())
    limits = max_min(given_).limits
    assert quota * (1 - 1e-9) <= math.fsum(limits.tolist()) <= quota
    capped = limits < demand
    assert capped.any()
    assert np.ptp(limits[capped & (limits > floor)]) <= 1e-9 * quota
    assert (limits >= floor).all()


def test_blocks_of_groups_change_nothing() -> None:
    rng = np.random.default_rng(5)
    sizes = rng.integers(0, 9, 20_000)
    sizes[7_000] = 3 * BLOCK_ROWS
    starts = np.concatenate([[0], np.cumsum(sizes)])
    rows = int(starts[-1])
    whole = Problem(
        starts=starts,
        quota=np.where(rng.random(len(sizes)) < 0.1, np.inf, rng.uniform(0, 100, len(sizes))),
        usage=np.zeros(rows),
        limit=np.full(rows, np.inf),
        demand=rng.exponential(20, rows),
        weight=rng.uniform(0.5, 2, rows),
        floor=np.where(rng.random(rows) < 0.2, 3.0, 0.0),
    )
    blocked, at_once = max_min(whole), max_min.__wrapped__(whole)  # type: ignore[attr-defined]
    assert np.array_equal(blocked.limits, at_once.limits, equal_nan=True)
    assert np.array_equal(blocked.reasons, at_once.reasons)
    assert np.array_equal(np.isinf(blocked.limits), np.isinf(np.repeat(whole.quota, sizes)))
