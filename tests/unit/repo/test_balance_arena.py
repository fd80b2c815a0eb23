"""The balance arena's simulated cluster: nothing is lost, and costs are counted."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from benchmarks.balance_arena.__main__ import DOCS, FOLDER, page_of
from benchmarks.balance_arena.bounds import least
from benchmarks.balance_arena.contenders import OURS, STOCK, Contender
from benchmarks.balance_arena.execution import (
    CLAIM_AFTER_S,
    CLOSE_S,
    LOOKUP_AFTER_S,
    TOPIC_S,
    Execution,
    Handover,
    Order,
)
from benchmarks.balance_arena.figures import figures, imbalance
from benchmarks.balance_arena.modular_manager import Report, SampledBundles, listing
from benchmarks.balance_arena.play import play
from benchmarks.balance_arena.plots import planes
from benchmarks.balance_arena.reach import forbidden, mean_use, pools, together
from benchmarks.balance_arena.results import read_table
from benchmarks.balance_arena.scenario import Event
from benchmarks.balance_arena.scenarios import named, scenarios
from benchmarks.balance_arena.telemetry import Noise, Stats
from benchmarks.balance_arena.world import CAPACITY_BYTES_PER_S, OFFLINE, World, build, place_random
from quotabalance.planning.isolation import IsolationPolicy
from quotabalance.planning.policies import Policies

RESERVED = IsolationPolicy(namespaces=(".*0",), primary=("b000",))


def a_world() -> World:
    world = build(np.random.default_rng(1), brokers=3, namespaces=4, bundles_each=4)
    place_random(world, range(3), np.random.default_rng(2))
    return world


def to_the_next(world: World, bundle: int) -> Order:
    """Move it to the broker after its own."""
    source = int(world.owner[bundle])
    return Order(bundle, source, (source + 1) % 3)


KEPT = Handover(1, keeps_target=True)


def carry_out(
    world: World,
    handover: Handover = KEPT,
    wishes: list[tuple[int, int]] | None = None,
    placed: int = 2,
) -> Execution:
    made = wishes if wishes is not None else []
    return Execution(
        world,
        handover,
        lambda bundle, broker: made.append((bundle, broker)),
        lambda _: placed,
        lambda _, __: None,
    )


@pytest.mark.parametrize(("kept", "found_s"), [(True, CLAIM_AFTER_S), (False, LOOKUP_AFTER_S)])
def test_moved_bundles_are_off_line_for_as_long_as_said(kept: bool, found_s: float) -> None:
    world = a_world()
    order = to_the_next(world, 5)
    cluster = carry_out(world, Handover(1, kept), placed=order.target)
    cluster.order([order], now_s=100.0)
    topics = int(world.topics()[5])
    handling = CLOSE_S + TOPIC_S * topics
    cluster.run_until(100.0)
    assert world.owner[5] == OFFLINE
    cluster.run_until(200.0)
    assert world.owner[5] == order.target
    (move,) = cluster.moved
    (outage,) = cluster.outages
    assert outage.seconds == pytest.approx(2 * handling + found_s)
    assert outage.ordered
    assert move.bytes_per_s == pytest.approx(world.bundle_rates()[5, :2].sum())


def test_one_lane_unloads_one_after_the_other() -> None:
    world = a_world()
    orders = [to_the_next(world, bundle) for bundle in range(4)]
    for lanes, at_once in ((1, False), (4, True)):
        again = a_world()
        cluster = carry_out(again, Handover(lanes, keeps_target=True))
        cluster.order(orders, now_s=0.0)
        cluster.run_until(0.0)
        assert (again.owner[:4] == OFFLINE).sum() == (4 if at_once else 1)
        cluster.run_until(60.0)
        assert (again.owner[:4] == [order.target for order in orders]).all()


def test_bundles_of_one_range_wait_for_each_other_if_told() -> None:
    world = a_world()
    same = [bundle for bundle, name in enumerate(world.bundles) if name.low == 0][:2]
    orders = [to_the_next(world, bundle) for bundle in same]
    cluster = carry_out(world, Handover(8, keeps_target=True, one_of_a_range=True))
    cluster.order(orders, now_s=0.0)
    cluster.run_until(0.0)
    assert (world.owner[same] == OFFLINE).sum() == 1


def test_lookups_decide_where_the_target_is_only_a_wish() -> None:
    world = a_world()
    wishes: list[tuple[int, int]] = []
    cluster = carry_out(world, Handover(1, keeps_target=False), wishes, placed=2)
    bundle = int(np.flatnonzero(world.owner == 0)[0])
    cluster.order([Order(bundle, 0, 1)], now_s=0.0)
    cluster.run_until(60.0)
    assert wishes == [(bundle, 1)]
    assert world.owner[bundle] == 2
    assert [(move.wished, move.target) for move in cluster.moved] == [(1, 2)]


def test_an_order_for_a_bundle_that_is_elsewhere_is_refused() -> None:
    world = a_world()
    cluster = carry_out(world)
    wrong = (int(world.owner[3]) + 1) % 3
    cluster.order([Order(3, wrong, 0)], now_s=0.0)
    cluster.run_until(60.0)
    assert cluster.refused == 1
    assert not cluster.moved


def test_a_bundle_of_a_dead_broker_waits_until_a_broker_can_take_it() -> None:
    world = a_world()
    cluster = carry_out(world, placed=1)
    world.alive[[0, 1]] = False
    bundles = np.flatnonzero(world.owner == 0).tolist()
    cluster.release(bundles, lookup_s=30.0, now_s=0.0)
    cluster.run_until(60.0)
    assert (world.owner[bundles] == OFFLINE).all()
    world.alive[1] = True
    cluster.run_until(120.0)
    assert (world.owner[bundles] == 1).all()
    assert not any(outage.ordered for outage in cluster.outages)


def test_parts_that_lookups_place_elsewhere_count_as_bytes_moved() -> None:
    world = a_world()
    cluster = carry_out(world, placed=2)
    at_two, elsewhere = (
        int(np.flatnonzero(found)[0]) for found in (world.owner == 2, world.owner != 2)
    )
    for bundle in (at_two, elsewhere):
        cluster.part(world.split(bundle, ()), lookup_s=1.0, now_s=0.0)
    cluster.run_until(60.0)
    assert not cluster.moved
    total = sum(move.bytes_per_s for move in cluster.parted)
    assert total == pytest.approx(world.bundle_rates()[-2:, :2].sum())
    assert {move.target for move in cluster.parted} == {2}


def test_splits_keep_topics_and_rates() -> None:
    world = a_world()
    before, topics = world.bundle_rates().sum(axis=0), world.topics().sum()
    name = world.bundles[2]
    third = (name.high - name.low) // 3
    parts = world.split(2, (name.low + third, name.low + 2 * third))
    assert len(parts) == 3
    assert world.bundle_rates().sum(axis=0) == pytest.approx(before)
    assert world.topics().sum() == topics
    for topic in np.flatnonzero(np.isin(world.bundle_of, parts)):
        part = world.bundles[world.bundle_of[topic]]
        assert part.low <= world.hashes[topic] <= part.high


def test_brokers_report_a_bundle_once_and_none_that_is_off_line() -> None:
    world = a_world()
    stats, everybody = Stats(world), np.ones(3, dtype=np.bool_)
    stats.measure(world, world.bundle_rates(), everybody, 0.0)
    assert (stats.holder == world.owner).all()
    world.owner[0] = OFFLINE
    stats.forget(0)
    only = np.array([True, False, False])
    world.owner[1:] = 1  # nobody but broker 0 counts now: the others' numbers are old
    stats.measure(world, world.bundle_rates(), only, 60.0)
    assert (stats.holder != 0).all()
    assert stats.measured_s.tolist() == [60.0, 0.0, 0.0]


def test_noise_is_as_great_as_said_and_the_same_for_all() -> None:
    rates = np.tile([4e6, 4e6, 1000.0, 1000.0], (20_000, 1))
    found = Noise(3, 0.3).measured(rates, minute=4)
    assert found[:, 2].mean() == pytest.approx(1000.0, rel=0.01)
    assert np.log(found[:, 2]).std() == pytest.approx(0.3, rel=0.03)
    again = Noise(3, 0.3).measured(rates[:10], minute=4)
    assert (again == found[:10]).all()


def test_few_messages_are_counted_as_poisson() -> None:
    rates = np.tile([100.0, 100.0, 0.05, 0.05], (6_000, 1))  # three a minute
    counts = Noise(3, 0.0).measured(rates, minute=1)[:, 2] * 60
    assert counts.mean() == pytest.approx(3.0, rel=0.04)
    assert counts.var() == pytest.approx(3.0, rel=0.08)
    assert (counts == np.rint(counts)).all()


def test_a_run_of_ours_loses_nothing_and_repeats() -> None:
    scene = named("foreign load")
    scene = replace(scene, minutes=12)
    first, second = (play(OURS[0], scene, 0) for _ in range(2))
    assert first.cluster_bytes == pytest.approx(np.full(12, first.cluster_bytes[0]))
    assert first.moved == second.moved
    assert len(first.outages) == len(first.moved)
    found = figures(first, scene)
    assert found.moves > 0
    assert found.final < found.imbalance[0]
    # With nothing off line at the end, all load is on some broker.
    used = first.use[-1].sum() - 0.5
    assert used * 400e6 == pytest.approx(first.cluster_bytes[-1])


def test_the_least_bytes_are_those_of_trying_everything() -> None:
    random = np.random.default_rng(5)
    for number in range(8):
        world = build(random, brokers=3, namespaces=6, bundles_each=1)
        if number % 2:  # two namespaces may be on one broker or two, and the others on the rest
            reserved = IsolationPolicy(
                namespaces=(".*[01]",), primary=(f"b00[0-{number % 4 // 2}]",)
            )
            world.policies = Policies(isolation={"reserved": reserved})
        size, world.owner = random.uniform(1, 5, 6), random.integers(0, 3, 6)
        world.size = np.array([1.0, 1.0, 2.0])
        allowed = pools(world)
        open_to = allowed.open_to[allowed.of_bundle]
        most = 1.15 * mean_use(world, size, allowed) * CAPACITY_BYTES_PER_S * world.size
        best = min(
            (
                size[np.array(plan) != world.owner].sum()
                for plan in product(range(3), repeat=6)
                if (np.bincount(plan, size, 3) <= most + 1e-9).all()
                and open_to[np.arange(6), plan].all()
            ),
            default=np.inf,
        )
        if np.isfinite(best):
            found = least(world, size, most)
            assert best - 1e-6 <= found <= 1.01 * best + 1e-6


def test_only_bundles_on_forbidden_brokers_must_move_in_an_even_cluster() -> None:
    world = build(np.random.default_rng(1), brokers=2, namespaces=2, bundles_each=2)
    world.policies = Policies(isolation={"one": RESERVED})
    size, world.owner = np.full(4, 5.0), np.array([0, 1, 0, 1])
    assert forbidden(world, pools(world)).tolist() == [False, True, True, False]
    assert least(world, size, np.full(2, 10.0)) == pytest.approx(10.0)


def test_brokers_are_compared_with_what_their_pools_could_reach() -> None:
    world = build(np.random.default_rng(1), brokers=3, namespaces=2, bundles_each=2)
    world.policies = Policies(isolation={"one": RESERVED})
    world.owner = np.array([0, 0, 1, 1])
    size = np.array([0.3, 0.3, 0.1, 0.1]) * CAPACITY_BYTES_PER_S
    mean = mean_use(world, size, pools(world))
    assert mean.tolist() == pytest.approx([0.6, 0.1, 0.1])
    assert imbalance(world.use(size)[None], mean[None]) == pytest.approx([2.0])
    world.policies = Policies()
    assert mean_use(world, size, pools(world)).tolist() == pytest.approx([0.8 / 3] * 3)
    world.alive[2] = False
    assert mean_use(world, size, pools(world))[:2].tolist() == pytest.approx([0.4] * 2)


def test_a_sample_is_taken_of_each_report_that_lists_a_bundle() -> None:
    """A bundle that has moved is in its old broker's report until that broker reports again."""
    old = Report(0.0, np.zeros(5), np.zeros(5), np.array([0, 1]), np.full((2, 4), 1.0))
    new = Report(9.0, np.zeros(5), np.zeros(5), np.array([1, 2]), np.full((2, 4), 4.0))
    listed = listing({0: old, 1: new, 2: old}, np.array([True, True, False]))
    assert listed.newest.tolist() == [True, False, True, True]
    sampled = SampledBundles()
    sampled.take(listed.bundles, listed.rates, times=1)
    assert sampled.samples.tolist() == [1, 2, 1]
    assert sampled.long[:, 0].tolist() == [1.0, 2.5, 4.0]
    sampled.take(np.array([2]), np.full((1, 4), 4.0), times=3)
    assert sampled.samples.tolist() == [0, 0, 4]


@pytest.mark.parametrize("law", STOCK, ids=lambda law: law.name)
def test_a_run_of_pulsars_loses_nothing_and_repeats(law: Contender) -> None:
    scene = named("dead broker")
    scene = replace(scene, minutes=9, events=(Event(2, "dies", 3), Event(5, "starts", 3)))
    first, second = (play(law, scene, 0) for _ in range(2))
    assert first.moved == second.moved
    assert (first.use[-1] == second.use[-1]).all()
    assert first.outages  # those of the dead broker
    assert first.use[-1].sum() * CAPACITY_BYTES_PER_S == pytest.approx(first.cluster_bytes[-1])


def test_a_new_rule_is_followed_by_ours_and_not_by_pulsars() -> None:
    scene = named("rule added under load")
    scene = replace(scene, minutes=8, policies=((2, scene.policies[0][1]),))
    ours, stock = (play(law, scene, 0) for law in (OURS[0], STOCK[0]))
    assert ours.forbidden[:2].tolist() == [0, 0]
    assert ours.forbidden[2] > 100
    assert not ours.forbidden[-1]
    assert all(move.forced for move in ours.moved)
    assert (stock.forbidden[2:] == ours.forbidden[2]).all()


def test_pulsar_unloads_a_tenant_and_lookups_follow_the_rule() -> None:
    scene = named("rule added, unloaded")
    scene = replace(
        scene,
        minutes=6,
        policies=((2, scene.policies[0][1]),),
        events=(Event(2, "isolated unloads"),),
    )
    run = play(STOCK[0]._replace(shedder="OverloadShedder"), scene, 0)
    # the tenant's bundles have all come; of the others those stay that were on its three brokers
    unloaded = [outage for outage in run.outages if not outage.ordered]
    assert len(unloaded) == 100
    assert 40 < run.forbidden[-1] < 80


def test_groups_are_not_brought_together() -> None:
    scene = named("anti-affinity")
    scene = replace(scene, minutes=20)
    ours = play(OURS[0], scene, 0)
    assert ours.moved
    assert ours.together == 0


def test_scenarios_begin_as_they_say() -> None:
    for scene in scenarios():
        if scene.name == "100 hot + 100 new":
            continue
        world, factors = scene.make(np.random.default_rng(0))
        world.policies = scene.policies_at(0)
        if factors:
            world.rates = world.rates * factors(0)[:, None]
        size, allowed = world.bundle_rates()[:, :2].sum(axis=1), pools(world)
        (begin,) = imbalance(world.use(size)[None], mean_use(world, size, allowed)[None])
        assert (world.owner >= 0).all(), scene.name
        assert not forbidden(world, allowed).any(), scene.name
        assert not together(world), scene.name
        if scene.balanced:
            assert begin < 1.02, scene.name
        elif not scene.events and not scene.changes:
            assert begin > 1.2, scene.name


def test_a_pool_that_runs_full_stays_even() -> None:
    scene = named("pool runs full")
    world, factors = scene.make(np.random.default_rng(0))
    assert factors
    world.policies = scene.policies_at(0)
    world.rates = world.rates * factors(scene.minutes)[:, None]
    size = world.bundle_rates()[:, :2].sum(axis=1)
    assert world.use(size).max() == pytest.approx(0.95, abs=0.02)
    (end,) = imbalance(world.use(size)[None], mean_use(world, size, pools(world))[None])
    assert end < 1.02


def test_the_page_and_the_plot_of_all_scenarios_are_what_their_tables_give() -> None:
    folder = DOCS / FOLDER
    assert (DOCS / f"{FOLDER}.md").read_text() == page_of(folder)
    table = read_table((folder / "results.csv").read_text())
    assert (folder / "planes.svg").read_text() == planes(table, scenarios())
