"""Demand over time, and the world that makes intervals of it."""

from __future__ import annotations

import numpy as np
import pytest

from quotaplane.errors import InputError
from quotaplane.model import BASIC, DIMENSIONS
from quotaplane.sim.broker_fleet import BrokerSpec
from quotaplane.sim.demand_schedule import Change, Schedule, build_schedule, noisy
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


def test_noise_is_a_count_of_the_window() -> None:
    rates = np.full(4000, 50.0)
    one, ten = (noisy(rates, "poisson", np.random.default_rng(1), window_s=w) for w in (1.0, 10.0))
    assert one.mean() == pytest.approx(50, abs=0.5)
    assert one.std() == pytest.approx(50**0.5, rel=0.05)
    assert ten.std() == pytest.approx(5**0.5, rel=0.05)
    assert (noisy(rates, "none", np.random.default_rng(1)) == rates).all()


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
