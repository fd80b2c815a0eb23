"""Demand over time, and the world that makes intervals of it."""

from __future__ import annotations

import numpy as np
import pytest

from quotaplane.errors import InputError
from quotaplane.model import BASIC, DIMENSIONS
from quotaplane.sim.broker_fleet import BrokerSpec
from quotaplane.sim.demand_schedule import (
    POISSON,
    Change,
    CountNoise,
    Schedule,
    build_schedule,
    noisy,
    small_rate,
)
from quotaplane.sim.world import World

PUBLISH, BYTES = DIMENSIONS[:2]
BROKERS, GROUPS = ("b1", "b2"), ("g", "h")


def schedule(*changes: Change) -> Schedule:
    return build_schedule(BROKERS, GROUPS, changes)


def world(*changes: Change, **options) -> World:
    specs = tuple(BrokerSpec(name) for name in BROKERS)
    return World(specs, GROUPS, schedule(*changes), **options)


def test_a_change_holds_until_the_next_and_leaves_the_rest_alone() -> None:
    plan = schedule(
        Change(5.0, "b1", "g", {PUBLISH: 20.0}),
        Change(0.0, "b1", "g", {PUBLISH: 10.0, BYTES: 7.0}),
        Change(8.0, "b2", "h", {PUBLISH: 30.0}),
    )
    assert [plan.at(t)[0, 0, 0] for t in (-3, 0, 4.99, 5, 100)] == [10, 10, 10, 20, 20]
    assert plan.at(100)[0, 0, 1] == 7.0
    assert plan.at(7.9)[..., :BASIC].sum() == 27.0
    assert plan.at(8)[1, 1, 0] == 30.0


@pytest.mark.parametrize(
    "change", [Change(0, "b9", "g", {}), Change(0, "b1", "x", {}), Change(0, "b1", "g", {"cpu": 1})]
)
def test_a_change_of_what_is_not_there_is_refused(change: Change) -> None:
    with pytest.raises(InputError, match="there is no"):
        schedule(change)


def test_a_total_is_what_its_parts_add_up_to() -> None:
    wants = {PUBLISH: 1000.0, "dispatch_messages": 500.0}
    now = world(Change(0, "b1", "g", wants), poisson=["g"]).interval(0.0, 1000)
    total = DIMENSIONS.index("total_messages")
    assert now.wanted[0, 0, total] == 1500.0
    assert now.demand[0, 0, total] == now.demand[0, 0, [0, 2]].sum() != 1500.0
    with pytest.raises(InputError, match="total_bytes follows from publish and dispatch"):
        schedule(Change(0, "b1", "g", {"total_bytes": 1.0}))


@pytest.mark.parametrize("dispersion", [1.0, 1.5, 4.0, 16.0])
def test_noise_has_the_mean_and_the_dispersion_that_it_says(dispersion: float) -> None:
    """Mean of 20,000 counts is known to 1 % here, the variance to 3 % (two sigma)."""
    rates = np.tile([5.0, 60.0, 0.0], (20_000, 1))
    noise = CountNoise(dispersion=dispersion)
    counts = noisy(rates, noise, np.random.default_rng(7), window_s=10.0) * 10.0
    assert (counts == np.rint(counts)).all()
    assert counts.mean(axis=0) == pytest.approx([50, 600, 0], rel=0.015)
    spread = counts[:, :2].var(axis=0) / counts[:, :2].mean(axis=0)
    assert spread == pytest.approx([dispersion] * 2, rel=0.06)


@pytest.mark.parametrize(
    ("noise", "relative"),
    [(CountNoise(counts=30), 0.183), (CountNoise(counts=100, dispersion=4), 0.2)],
)
def test_counts_are_those_of_a_small_broker_whatever_the_rates(
    noise: CountNoise, relative: float
) -> None:
    rates = np.tile([1e6, 4e6, 2e6, 9e6, 0.0], (20_000, 1))
    drawn = noisy(rates, noise, np.random.default_rng(3), window_s=5.0)
    assert noise.relative(rates, window_s=5.0) == pytest.approx(relative, abs=0.001)
    assert drawn.mean(axis=0) == pytest.approx(rates[0], rel=0.01)
    deviation = drawn[:, :4].std(axis=0) / rates[0, :4]
    assert deviation == pytest.approx(relative / np.sqrt([1, 4, 2, 9]), rel=0.05)


def test_a_quarter_of_those_that_want_anything_is_no_larger_than_a_small_broker() -> None:
    assert small_rate(np.array([[3.0, 0.0, 1.0, 2.0], [9.0, 8.0, 7.0, 6.0]])) == 1.0
    assert small_rate(np.array([[4.0, 3.0, 2.0, 1.0, 5.0]])) == 2.0
    assert small_rate(np.array([[0.0, 0.0], [0.0, 7.0]])) == 7.0
    assert np.isinf(small_rate(np.zeros((2, 3))))


def test_where_nobody_wants_anything_there_is_no_noise() -> None:
    nothing = np.zeros((3, 2))
    noise = CountNoise(counts=30, dispersion=4)
    assert (noisy(nothing, noise, np.random.default_rng(0)) == 0.0).all()
    assert noise.relative(nothing, 1.0) == POISSON.relative(nothing, 1.0) == 0.0


def test_counts_that_can_not_be_drawn_are_an_error() -> None:
    rates = np.array([[1e-300, 1e300]])
    with pytest.raises(InputError, match="noise: the largest demand is inf counts"):
        noisy(rates, CountNoise(counts=30), np.random.default_rng(0))


def test_an_interval_tells_demand_use_and_limit_and_carries_the_reports() -> None:
    now = world(Change(0, "b1", "g", {PUBLISH: 10.0})).interval(0.0, 1000)
    assert now.wanted[0, 0, 0] == now.demand[0, 0, 0] == now.usage[0, 0, 0] == 10.0
    assert np.isinf(now.limit).all()
    assert [report.broker for report in now.reports] == ["b1", "b2"]
    assert {report.published_at_ms for report in now.reports} == {1000}


def test_only_the_named_groups_are_noisy_and_a_seed_repeats_them() -> None:
    changes = [Change(0, "b1", group, {PUBLISH: 1000.0}) for group in GROUPS]
    one, same, other = (
        [world(*changes, poisson=["h"], seed=seed).interval(0.0, 0).demand for _ in range(2)]
        for seed in (1, 1, 2)
    )
    assert one[0][0, 0, 0] == 1000.0
    assert one[0][0, 1, 0] != 1000.0
    np.testing.assert_array_equal(one, same)
    assert one[0][0, 1, 0] != other[0][0, 1, 0]


def test_nobody_wants_anything_of_a_dead_broker_or_a_detached_group() -> None:
    changes = [Change(0, b, g, {PUBLISH: 10.0}) for b in BROKERS for g in GROUPS]
    cluster = world(*changes)
    cluster.brokers.die("b1")
    cluster.detach("h")
    now = cluster.interval(0.0, 0)
    assert now.wanted[..., 0].sum() == now.demand[..., 0].sum() == now.usage[..., 0].sum() == 10.0
    cluster.attach("h", np.array([False, True]))
    assert cluster.interval(1.0, 1000).usage[..., 0].sum() == 20.0
    assert now.alive.tolist() == [False, True]


def test_a_schedule_of_another_cluster_is_refused() -> None:
    with pytest.raises(InputError, match="schedule"):
        World((BrokerSpec("b1"),), GROUPS, schedule())
    with pytest.raises(InputError, match="no 'x'"):
        world().attach("x")
