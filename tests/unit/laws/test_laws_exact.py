"""Promises of `max_min` over all of the allowed range, against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quotaplane.laws import get_law, one_group
from quotaplane.laws.segments import Segments
from quotaplane.laws.water import water_level
from tests.unit.laws.laws_cases import (
    Broker,
    Group,
    brokers,
    groups,
    log_uniform,
    problem,
    rates,
    rounding,
    textbook,
    wide_groups,
)

max_min = get_law("max_min")
all_groups = st.one_of(groups, wide_groups)


def parts_of(solved: np.ndarray, starts: np.ndarray) -> list[np.ndarray]:
    return [solved[a:b] for a, b in pairwise(starts)]


@given(all_groups)
@example([(100.0, [Broker(1000.0, 1e8), Broker(30.0, 1e-8)])])
@example([(10.0, [Broker(9.9, 1.0), Broker(math.inf, 1e-9, ceiling=6.3)])])
@example([(100.0, [Broker(9.9, 1e9, 1.0, 10.0), Broker(math.inf, 1e-9, ceiling=99.0)])])
@example([(100.0, [Broker(500.0, 1.0, 60.0), Broker(500.0), Broker(500.0)])])
@example([(1.0, [Broker(0.1)] * 10)])
@example([(0.0, [Broker(math.inf, 1.0, 5.0)]), (7.0, []), (3.0, [Broker(1.0)])])
@example([(100.0, [Broker(80.0, priority=1), Broker(50.0), Broker(9.0, floor=5.0)])])
@example([(100.0, [Broker(10.0, 3.0, ceiling=20.0), Broker(20.0), Broker(5.0, ceiling=9.0)])])
def test_is_the_textbook_solution(parts: list[Group]) -> None:
    check_against_the_textbook(parts)


def check_against_the_textbook(parts: list[Group]) -> None:
    given_ = problem(parts)
    for (quota, part), limits in zip(
        parts, parts_of(max_min(given_).limits, given_.starts), strict=True
    ):
        for limit, wanted in zip(limits.tolist(), textbook(quota, part), strict=True):
            assert abs(Fraction(limit) - wanted) <= Fraction(quota) * Fraction(1, 10**9)


def test_is_the_textbook_solution_for_thousands_of_groups_with_everything_together() -> None:
    rng = np.random.default_rng(82)
    parts: list[Group] = []
    for _ in range(3_000):
        size, quota = int(rng.integers(1, 8)), 100.0 * float(rng.integers(0, 4) * rng.random())
        columns = (
            np.where(rng.random(size) < 0.2, np.inf, rng.exponential(30, size)),
            rng.uniform(0.5, 4, size) if rng.random() < 0.5 else np.ones(size),
            np.where(rng.random(size) < 0.4, rng.exponential(12, size), 0.0),
            np.where(rng.random(size) < 0.4, rng.exponential(60, size), np.inf),
            rng.integers(0, 3, size),
        )
        part = [Broker(*row[:4], int(row[4])) for row in np.transpose(columns).tolist()]
        parts.append((quota, part))
    check_against_the_textbook(parts)


@given(all_groups)
@example([(1e-9, [Broker(math.inf, 1000.0)])])
@example([(0.3, [Broker(1.0), Broker(0.15)])])
@example([(0.3, [Broker(0.1), Broker(0.2, 1000.0), Broker(math.inf, 1e-3)])])
@example([(0.3, [Broker(0.1, ceiling=0.1), Broker(0.1, 3.0, ceiling=0.2), Broker(0.0)])])
def test_never_adds_up_to_more_than_the_quota_in_any_order(parts: list[Any]) -> None:
    given_ = problem(parts)
    for (quota, part), limits in zip(
        parts, parts_of(max_min(given_).limits, given_.starts), strict=True
    ):
        values = limits.tolist()
        orders = [values, values[::-1], sorted(values), sorted(values, reverse=True)]
        assert all(np.cumsum([0.0, *order])[-1] <= quota for order in orders)
        assert sum(map(Fraction, values)) <= Fraction(quota)
        # Nothing is kept back that anybody may take.
        ceilings = sum(Fraction(min(one.ceiling, 1e300)) for one in part)
        left = min(Fraction(quota), ceilings) - sum(map(Fraction, values))
        assert left <= Fraction(quota) * rounding(len(part))


@given(all_groups, st.sampled_from([0, 1, 2, 10]))
def test_a_level_is_where_everybody_together_takes_the_quota(
    parts: list[Group], rising_rounds: int
) -> None:
    given_ = problem(parts)
    rows = Segments(given_.starts)
    low = np.minimum(given_.floor, rows.spread(given_.quota / np.maximum(rows.counts, 1)))
    high = np.minimum(given_.demand, 2 * rows.spread(given_.quota))
    for floor, most in ((None, high), (low, np.maximum(low, high))):
        some, at = rows.keep(rows.total(most) > given_.quota)
        quota, weight = given_.quota[rows.total(most) > given_.quota], given_.weight[at]
        if not len(at):
            continue
        bounds = (None if floor is None else floor[at], most[at])
        level, _ = water_level(some, quota, weight, *bounds, rising_rounds)
        taken = np.clip(weight * some.spread(level), 0.0 if floor is None else floor[at], most[at])
        starts = np.concatenate([[0], np.cumsum(some.counts)])
        for all_, part in zip(quota.tolist(), parts_of(taken, starts), strict=True):
            off = sum(map(Fraction, part.tolist())) - Fraction(all_)
            assert abs(off) <= Fraction(all_) * rounding(len(part)) / 2


@given(rates, rates, brokers)
def test_a_higher_quota_lowers_no_limit(one: float, other: float, part: list[Broker]) -> None:
    low, high = sorted((one, other))
    before = max_min(problem([(low, part)])).limits
    after = max_min(problem([(high, part)])).limits
    assert (after >= before - 1e-9 * high).all()


@given(all_groups)
@example([(100.0, [Broker(9.7, ceiling=43.6)])])
@example([(7.0, [Broker(5.1), Broker(math.inf, floor=3.5, ceiling=0.1)])])
def test_floors_and_ceilings_hold_and_priorities_go_first(parts: list[Group]) -> None:
    given_ = problem(parts)
    limits = max_min(given_).limits
    rows = Segments(given_.starts)
    ceiling = np.full(len(limits), np.inf) if given_.ceiling is None else given_.ceiling
    assert (limits <= ceiling).all()
    floor = np.minimum(given_.floor, ceiling)
    room = [1 - float(rounding(count)) for count in rows.counts.tolist()]
    fit = rows.spread(rows.total(floor) <= given_.quota * room)
    assert (limits >= floor)[fit].all()
    if given_.priority is None:
        return
    # Nobody has more than its floor while somebody of higher priority goes short.
    slack = 1e-9 * rows.spread(given_.quota)
    short = fit & (limits < np.minimum(given_.demand, ceiling) - slack)
    more = fit & (limits > floor + slack)
    for first, last in pairwise(given_.starts):
        part, priority = slice(first, last), given_.priority[first:last]
        if short[part].any() and more[part].any():
            assert priority[short[part]].max() <= priority[more[part]].min()


@given(all_groups)
@example([(7.0, [Broker(0.1, ceiling=0.1), Broker(0.1)])])
def test_who_asks_for_less_than_its_share_has_all_of_it(parts: list[Group]) -> None:
    given_ = problem(parts)
    for (quota, part), limits in zip(
        parts, parts_of(max_min(given_).limits, given_.starts), strict=True
    ):
        # Its share of the quota without what rounding may cost.
        shares = textbook(Fraction(quota) * (1 - rounding(len(part))), part)
        for limit, share, one in zip(limits.tolist(), shares, part, strict=True):
            assert limit >= one.demand or share < one.demand


@given(all_groups, st.randoms(use_true_random=False))
def test_another_order_of_brokers_is_another_rounding_at_most(
    parts: list[Group], random: Any
) -> None:
    orders = [random.sample(range(len(part)), len(part)) for _, part in parts]
    turned = [
        (quota, [part[at] for at in order])
        for (quota, part), order in zip(parts, orders, strict=True)
    ]
    straight, other = problem(parts), problem(turned)
    for quota, order, before, after in zip(
        straight.quota.tolist(),
        orders,
        parts_of(max_min(straight).limits, straight.starts),
        parts_of(max_min(other).limits, other.starts),
        strict=True,
    ):
        off = float(2 * rounding(len(order))) * quota
        assert (np.abs(after - before[order]) <= off).all()


@given(
    st.integers(0, 10**6),
    st.lists(
        st.tuples(st.integers(0, 10**9) | st.just(math.inf), st.integers(1, 9), st.integers(0, 99)),
        min_size=1,
        max_size=9,
    ),
)
def test_a_level_that_is_a_whole_number_is_given_to_the_last_digit(
    level: int, part: list[tuple[float, int, int]]
) -> None:
    expected = [max(floor, min(demand, weight * level)) for demand, weight, floor in part]
    demand, weight, floor = (list(map(float, column)) for column in zip(*part, strict=True))
    limits = max_min(one_group(sum(expected), demand=demand, weight=weight, floor=floor)).limits
    if sum(demand) > sum(expected):
        assert limits.tolist() == expected
    elif sum(demand) == sum(expected):  # the level is 115 / 7 for a demand of 115 and a weight of 7
        assert limits == pytest.approx(expected, rel=1e-12)


tiny = st.one_of(st.integers(0, 40).map(lambda whole: whole * 5e-324), log_uniform(-323, -280))


@given(
    st.lists(
        st.tuples(
            tiny,
            st.lists(
                st.builds(
                    Broker,
                    tiny | st.just(math.inf),
                    log_uniform(-9, 9),
                    tiny,
                    tiny | st.just(1.0),
                    st.sampled_from([0, 1]),
                ),
                max_size=5,
            ),
        ),
        min_size=1,
        max_size=9,
    )
)
def test_quotas_with_too_few_digits_to_divide_are_not_exceeded_either(parts: list[Group]) -> None:
    given_ = problem(parts)
    limits = max_min(given_).limits
    assert (limits >= 0).all()
    assert given_.ceiling is None or (limits <= given_.ceiling).all()
    for (quota, _), values in zip(parts, parts_of(limits, given_.starts), strict=True):
        for order in (values, values[::-1], np.sort(values)):
            assert np.cumsum(np.append(0.0, order))[-1] <= quota


@given(st.integers(1, 5_000), st.integers(0, 2), rates, st.integers(-2, 2))
@example(3, 1, 0.1, 0)
def test_equal_demands_exactly_at_the_level_leave_one_rounding_over(
    count: int, saturated: int, quota: float, ulps: int
) -> None:
    demand = quota / (count + saturated)
    for _ in range(abs(ulps)):
        demand = math.nextafter(demand, math.copysign(math.inf, ulps)) if demand else demand
    limits = max_min(one_group(quota, demand=[demand] * count + [math.inf] * saturated)).limits
    total = sum(map(Fraction, limits.tolist()))
    assert total <= Fraction(quota)
    assert Fraction(quota) - total <= Fraction(quota) * rounding(count + saturated)


def test_thousands_of_brokers_with_weights_far_apart_are_exact() -> None:
    rng = np.random.default_rng(18)
    count = 2_000
    columns = (
        np.where(rng.random(count) < 0.1, np.inf, 10.0 ** rng.uniform(-9, 9, count)),
        10.0 ** rng.uniform(-9, 9, count),
        np.where(rng.random(count) < 0.2, 10.0 ** rng.uniform(-9, 5, count), 0.0),
        np.where(rng.random(count) < 0.2, 10.0 ** rng.uniform(-9, 9, count), np.inf),
    )
    part = [Broker(*row) for row in np.transpose(columns).tolist()]
    check_against_the_textbook([(1e8, part), (1e12, part)])


@given(all_groups)
def test_the_satisfied_are_not_cut_for_those_with_more(parts: list[Group]) -> None:
    given_ = problem(parts)
    limits = max_min(given_).limits
    rows = Segments(given_.starts)
    quota = rows.spread(given_.quota)
    ceiling = np.full(len(limits), np.inf) if given_.ceiling is None else given_.ceiling
    priority = np.zeros(len(limits)) if given_.priority is None else given_.priority
    floor = np.minimum(given_.floor, ceiling)
    fit = rows.spread(rows.total(floor) <= given_.quota * (1 - 1e-9))
    # Whoever has less than it wants, and may have, has at least as much per weight as any other
    # of its priority whose limit is not a floor.
    short = limits < np.minimum(given_.demand, ceiling) - 1e-9 * quota
    per_weight = limits / given_.weight
    for first, last in pairwise(given_.starts):
        for this in np.unique(priority[first:last]):
            same = np.flatnonzero(priority[first:last] == this) + first
            above_floor = fit[same] & (limits[same] > floor[same] + 1e-9 * quota[same])
            if short[same].any() and above_floor.any():
                least = per_weight[same][short[same]].min()
                slack = 1e-9 * quota[same] / given_.weight[same]
                most = least * (1 + 1e-9) + slack.max()
                assert (per_weight[same] - slack <= most)[above_floor].all()
