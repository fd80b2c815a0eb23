"""Headroom: what noise throttles, and what the brokers that are held back pay for it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotaplane.laws import Problem, Reason, effective_quota, one_group
from quotaplane.laws.max_min import max_min
from quotaplane.laws.segments import Segments
from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.quota.headroom import (
    probes,
    real_reasons,
    wanted_headroom,
    with_headroom,
    without_history,
)

INF = math.inf


def asked(
    quota: float,
    demand: list[float],
    sigma: list[float],
    reports_refused: bool = True,
    price: float = 0.05,
) -> FloatArray:
    """The demand that a law is asked for, of one group without floors."""
    problem = one_group(quota, demand=demand)
    without, nothing = max_min(problem).limits, np.zeros(len(demand))
    refused = np.full(len(demand), reports_refused)
    return with_headroom(problem, without, np.array(sigma), refused, nothing, price=price)[0]


@pytest.mark.parametrize("noise", [0.05, 0.1, 0.3, 0.6])
def test_with_its_headroom_noise_throttles_what_it_may(noise: float) -> None:
    mean, part = 1000.0, 0.01
    headroom = wanted_headroom(
        np.array([mean]), np.array([noise * mean]), np.array([True]), throttled_by_noise=part
    )
    usage = np.random.default_rng(1).normal(mean, noise * mean, 400_000)
    throttled = np.maximum(usage - mean - headroom[0], 0.0).mean() / mean
    assert throttled == pytest.approx(part, rel=0.05)


def test_headroom_is_at_most_three_standard_deviations_and_none_without_noise() -> None:
    demand, sigma, reports_refused = (
        np.array([1.0, 100.0, INF]),
        np.array([50.0, 0.0, 9.0]),
        np.ones(3, bool),
    )
    found = wanted_headroom(demand, sigma, reports_refused, throttled_by_noise=1e-6)
    assert found.tolist() == [150.0, 0.0, 27.0]


def test_a_broker_that_reports_no_refusals_is_not_held_to_its_very_demand() -> None:
    found = wanted_headroom(np.array([100.0, 0.0]), np.zeros(2), np.zeros(2, bool))
    assert found.tolist() == [2.0, 0.0]


def test_a_held_back_broker_pays_at_most_the_price() -> None:
    """30 small brokers want 10 each with 5 of noise, one wants all: 300 of 1000, and 700."""
    found = max_min(
        one_group(1000, demand=asked(1000, [INF] + [10.0] * 30, [0.0] + [5.0] * 30).tolist())
    ).limits
    assert found[0] == pytest.approx(0.95 * 700)
    assert found[1:] == pytest.approx(10 + 0.05 * 700 / 30)


def test_what_fits_without_a_price_costs_none() -> None:
    found = asked(1000, [500.0, 100.0], [10.0, 10.0], price=0.0)
    assert (found > [500, 100]).all()
    assert (asked(600, [500.0, 100.0], [10.0, 10.0], price=0.0) == [500, 100]).all()


def test_where_much_is_left_over_headroom_rises_to_three_standard_deviations() -> None:
    assert asked(1000, [300.0, 100.0], [10.0, 5.0]).tolist() == [330.0, 115.0]


def test_an_idle_broker_has_something_to_begin_with() -> None:
    rows, quota = Segments(np.array([0, 2, 2, 3])), np.array([100.0, 7.0, INF])
    reports_refused = np.array([True, False, True])
    assert probes(np.array([1.0, 3.0, 1.0]), reports_refused, rows, quota) == pytest.approx(
        [0.25, 3.75, 0]
    )


def test_without_history_an_idle_blind_broker_gets_its_probe() -> None:
    problem = one_group(100, demand=[80.0, 0.0])
    assert without_history(problem, np.zeros(2, bool)).demand == pytest.approx([81.6, 2.5])


class Case(NamedTuple):
    """A forest of groups with brokers that want more or less."""

    problem: Problem
    parent: IntArray | None
    sigma: FloatArray
    reports_refused: BoolArray
    group_floor: FloatArray
    group_priority: IntArray


def random_case(seed: int, constrained: bool) -> Case:
    """``constrained``: with trees, floors, ceilings and priorities."""
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(1, 6))
    counts = rng.integers(1, 9, groups)
    n = int(counts.sum())
    demand = rng.lognormal(3.0, 1.5, n) * rng.integers(0, 2, n)
    demand[rng.random(n) < rng.choice([0.0, 0.2])] = INF
    finite = np.where(np.isfinite(demand), demand, 50.0)
    sigma = np.sqrt(finite) * rng.choice([0.0, 0.5, 2.0, 5.0], n)
    starts = np.concatenate([[0], np.cumsum(counts)])
    scale = np.bincount(np.repeat(np.arange(groups), counts), finite, groups)
    quota = scale * rng.uniform(0.3, 1.6, groups) + 1.0
    weight = rng.choice([1.0, 2.0, 0.3], n)
    nothing = np.zeros(n)
    problem = Problem(starts, quota, nothing, nothing, demand, weight, nothing)
    parent, group_floor = None, np.zeros(groups)
    priority: IntArray = np.zeros(groups, np.int64)
    if constrained:
        parent = np.array([-1] + [int(rng.integers(-1, place)) for place in range(1, groups)])
        quota = np.where((parent >= 0) & (rng.random(groups) < 0.5), INF, quota)
        group_floor = np.where(rng.random(groups) < 0.3, scale * 0.2, 0.0)
        priority = rng.integers(0, 2, groups)
        floor = np.where(rng.random(n) < 0.3, finite * rng.uniform(0, 1.5, n), 0.0)
        ceiling = np.where(rng.random(n) < 0.3, finite * rng.uniform(0.2, 3.0, n), INF)
        problem = replace(
            problem,
            quota=quota,
            floor=floor,
            ceiling=ceiling,
            priority=rng.integers(0, 2, n),
        )
    return Case(problem, parent, sigma, rng.random(n) < 0.5, group_floor, priority)


def within(case: Case, problem: Problem) -> Problem:
    """In a tree each group's quota is its share of the quotas above."""
    if case.parent is None:
        return problem
    ones = np.ones(len(case.parent))
    share = effective_quota(case.parent, problem, ones, case.group_floor, case.group_priority)
    return replace(problem, quota=share)


def check(case: Case, price: float) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Assert the guarantee; the demands with and without headroom, and who is held back."""
    problem, demand = case.problem, case.problem.demand
    without = max_min(within(case, problem))
    rows = Segments(problem.starts)
    limited = np.where(np.isfinite(problem.quota), problem.quota, 100.0)
    probe = probes(problem.weight, case.reports_refused, rows, limited)
    asked, guarantee = with_headroom(
        problem,
        without.limits,
        case.sigma,
        case.reports_refused,
        probe,
        case.parent,
        price=price,
    )
    own = replace(problem, demand=asked)
    if guarantee is not None:
        own = replace(own, floor=np.maximum(problem.floor, guarantee))
    flat = within(case, own)
    answer = max_min(flat)
    scale = np.nan_to_num(problem.quota, posinf=0.0).sum()
    served = np.minimum(without.limits, demand)
    short = (1.0 - price) * served - answer.limits
    assert short.max() <= 1e-9 * scale, "a broker pays more than the price"
    assert (answer.limits >= np.minimum(problem.floor, without.limits) - 1e-9 * scale).all()
    if problem.ceiling is not None:
        assert (answer.limits <= problem.ceiling * (1 + 1e-12)).all()
    finite = np.isfinite(flat.quota)
    assert (rows.total(np.where(rows.spread(finite), answer.limits, 0.0)) <= flat.quota).all()
    assert (asked >= demand).all()
    real = real_reasons(answer, without, problem.floor)
    assert not ((real.reasons == Reason.FLOOR) & (problem.floor == 0.0)).any()
    return asked, demand, without.limits < demand * (1 - 1e-9)


@pytest.mark.nightly
@settings(max_examples=1500, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.05, 0.2]))
def test_nobody_pays_more_than_the_price_in_groups_by_themselves(seed: int, price: float) -> None:
    check(random_case(seed, constrained=False), price)


@pytest.mark.nightly
@settings(max_examples=1500, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.05, 0.2]))
def test_nobody_pays_more_than_the_price_with_trees_floors_ceilings_and_priorities(
    seed: int, price: float
) -> None:
    check(random_case(seed, constrained=True), price)


def test_the_cases_have_both_held_back_brokers_and_headroom() -> None:
    held = headroom = 0
    for seed in range(200):
        asked, demand, held_back = check(random_case(seed, constrained=True), 0.05)
        held += int(held_back.any())
        headroom += int((asked > demand).any())
    assert held > 50
    assert headroom > 150


@pytest.mark.parametrize("has_floor", [False, True])
def test_blocks_of_groups_change_nothing(has_floor: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    sizes = rng.integers(0, 9, 3_000)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    rows = int(starts[-1])
    demand = np.where(rng.random(rows) < 0.1, INF, rng.exponential(20.0, rows))
    floor = np.zeros(rows)
    floor[0] = 3.0 * has_floor  # a floor in one block: all brokers have a guarantee
    quota = rng.uniform(0.0, 100.0, len(sizes))
    problem = Problem(
        starts, quota, demand, np.full(rows, INF), demand, rng.uniform(0.5, 2.0, rows), floor
    )
    refused, sigma = rng.random(rows) < 0.5, rng.exponential(3.0, rows)
    probe = probes(problem.weight, refused, Segments(starts), quota)
    of_row = max_min(problem).limits, sigma, refused, probe
    whole, guarantee = with_headroom(problem, *of_row)
    monkeypatch.setattr("quotaplane.laws.blocks.BLOCK_ROWS", 1_000)
    calls = Mock(wraps=wanted_headroom)
    monkeypatch.setattr("quotaplane.quota.headroom.wanted_headroom", calls)
    in_blocks, guarantee_in_blocks = with_headroom(problem, *of_row)
    assert calls.call_count > 5
    assert np.array_equal(whole, in_blocks)
    assert (guarantee is None) == (guarantee_in_blocks is None) == (not has_floor)
    if guarantee is not None:
        assert np.array_equal(guarantee, guarantee_in_blocks)
