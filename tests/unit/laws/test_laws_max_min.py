"""The default law against exact arithmetic, and against what others published."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.laws import Problem, get_law, one_group
from quotaplane.laws.blocks import BLOCK_ROWS
from tests.unit.laws.laws_cases import (
    Group,
    brokers,
    groups,
    problem,
    rates,
)

max_min = get_law("max_min")


@given(st.tuples(rates, brokers), st.integers(0, 99))
def test_nobody_is_stuck_at_what_it_had(part: Group, seed: int) -> None:
    # A saturated broker counts as wanting everything; what it had and used has no part in that.
    given_ = problem([part])
    had = np.random.default_rng(seed).uniform(0, 100, len(part[1]))
    assert np.array_equal(
        max_min(given_).limits, max_min(replace(given_, limit=had, usage=had)).limits
    )


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
        pytest.param(100, [1000, 30], [1e8, 1e-8], [100, 1e-14], id="weights-far-apart"),
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


@given(groups)
def test_no_ceilings_and_one_priority_change_nothing(parts: list[Group]) -> None:
    given_ = replace(problem(parts), ceiling=None, priority=None)
    spelt_out = replace(
        given_, ceiling=np.full(len(given_.demand), np.inf), priority=np.full(len(given_.demand), 3)
    )
    for one, other in zip(max_min(given_), max_min(spelt_out), strict=True):
        assert np.array_equal(one, other)


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
        ceiling=np.where(rng.random(rows) < 0.2, 30.0, np.inf),
        priority=rng.integers(0, 2, rows),
    )
    blocked, at_once = max_min(whole), max_min.__wrapped__(whole)  # type: ignore[attr-defined]
    assert np.array_equal(blocked.limits, at_once.limits, equal_nan=True)
    assert np.array_equal(blocked.reasons, at_once.reasons)
    assert np.array_equal(np.isinf(blocked.limits), np.isinf(np.repeat(whole.quota, sizes)))
