"""Decisions over several rounds: orders under way, bundles that rest, samples, machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from quotabalance.planning.broker_watch import BrokerWatch
from quotabalance.planning.bundle_estimates import BundleEstimates
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import Move
from quotabalance.planning.load_model import MachineModel
from quotabalance.planning.options import BalanceOptions
from quotabalance.planning.planner import BalanceState
from tests.unit.balance.balance_cases import HOT, applied, bundle, cluster, labels, once


def test_a_move_counts_at_its_target_until_it_is_seen_there() -> None:
    load = cluster(HOT)
    state, first = once(load)
    state, again = once(load, state=state, now_s=60)
    assert first.moves
    assert not again.moves
    _, later = once(applied(load, first), state=state, now_s=120)
    assert not later.moves


def test_a_proposal_is_repeated_until_it_is_carried_out_and_then_rests() -> None:
    load = cluster(HOT)
    state, first = once(load)
    for minute in (1, 2, 5):
        state, again = once(load, state=state.as_proposed(), now_s=60 * minute)
        assert again.moves == first.moves
        assert "Missed" not in labels(again)
    approved = {move.bundle for move in again.moves}
    assert approved
    after = applied(load, again)
    state, done = once(after, state=state.as_proposed(), now_s=600)
    assert not done.moves
    assert {state.orders[bundle].status for bundle in approved} == {"seen"}
    assert {state.orders[bundle].ordered_at_s for bundle in approved} == {600}


def went_elsewhere() -> tuple[ClusterLoad, BalanceState, Move]:
    """A cluster in which somebody made another move of a bundle than the one decided."""
    load = cluster({"b1": [10.0] * 4, "b2": [10.0], "b3": [12.0]})
    state, decided = once(load)
    move = decided.moves[0]
    owner = load.owner.copy()
    owner[list(load.bundles).index(move.bundle)] = 2
    return replace(load, owner=owner), state, move


def test_a_proposal_is_void_once_its_bundle_went_elsewhere() -> None:
    other, state, move = went_elsewhere()
    state, after = once(other, state=state.as_proposed(), now_s=60)
    assert move.bundle not in state.orders
    assert "Missed" not in labels(after)


def test_a_bundle_that_went_elsewhere_is_said_and_rests() -> None:
    other, state, move = went_elsewhere()
    _, after = once(other, state=state, now_s=60)
    missed = next(skip for skip in after.skips if skip.label == "Missed")
    assert f"went to b3 instead of {move.target}" in missed.reason


def test_a_move_that_is_not_carried_out_is_missed_and_tried_elsewhere() -> None:
    load = cluster(HOT)
    state, first = once(load)
    for minute in (1, 2):
        state, decided = once(load, state=state, now_s=60 * minute)
        assert not decided.moves
    state, decided = once(load, state=state, now_s=190)  # 180 s, and one for each order
    missed = [skip for skip in decided.skips if skip.label == "Missed" and "attempt" in skip.reason]
    assert {skip.subject for skip in missed} == {move.bundle for move in first.moves}
    tried = {move.bundle: move.target for move in first.moves}
    assert not tried.keys() & {move.bundle for move in decided.moves}  # others are tried first
    for minute in range(4, 10):
        state, decided = once(load, state=state, now_s=60 * minute)
        for move in decided.moves:
            assert move.target != tried.get(move.bundle)


def test_a_moved_bundle_rests_for_the_grace_period() -> None:
    load = cluster({"b1": [10.0, 10], "b2": [1.0], "b3": [1.0]})
    state, decided = once(load, start_above=0.5, stop_below=0.5, allow_splits=False)
    (move,) = decided.moves
    after = applied(load, decided)
    rates = after.rates.copy()
    rates[list(after.bundles).index(move.bundle)] *= 3  # now its new owner is overloaded
    hot = replace(after, rates=rates)
    for minute in range(1, 30):
        state, decided = once(
            hot, state=state, now_s=60 * minute, start_above=0.5, stop_below=0.5, allow_splits=False
        )
        assert move.bundle not in {one.bundle for one in decided.moves}


@pytest.mark.parametrize("ordered", [True, False])
def test_the_dip_of_a_bundle_whose_clients_connect_again_is_no_sample(ordered: bool) -> None:
    load = cluster(HOT)
    state, decided = once(load)
    after = applied(load, decided)
    moved = {move.bundle for move in decided.moves}
    rates = after.rates.copy()
    rates[[name in moved for name in after.bundles]] *= 0.1
    dip = replace(after, rates=rates)
    if not ordered:  # somebody else moved them
        state = BalanceState(estimates=state.estimates, watch=state.watch)
    state, _ = once(dip, state=state, now_s=60)
    size = dict(zip(state.estimates.names, state.estimates.mean.tolist(), strict=True))
    assert {size[name] for name in moved} == {10.0}
    state, _ = once(dip, state=state, now_s=120)  # so low for another period: they have changed
    size = dict(zip(state.estimates.names, state.estimates.mean.tolist(), strict=True))
    assert {size[name] for name in moved} == {1.0}


def test_a_bundle_that_nobody_reports_still_counts_at_its_target() -> None:
    load = cluster(HOT)
    state, decided = once(load)
    gone = {move.bundle for move in decided.moves}
    keep = np.array([name not in gone for name in load.bundles])
    bundles = tuple(np.array(load.bundles)[keep])
    less = replace(load, bundles=bundles, owner=load.owner[keep], rates=load.rates[keep])
    state, decided = once(less, state=state, now_s=60)
    assert not decided.moves
    assert set(state.absent.names) == gone


def test_the_same_numbers_again_are_no_new_sample() -> None:
    state = BalanceState.empty()
    load = cluster(HOT)
    for second in (0, 5, 10, 55):
        state, decided = once(
            *(load, None, state, float(second)), confirm_samples=2, confirm_window_samples=3
        )
        assert not decided.moves
        assert "HitCount" in labels(decided)
        assert state.estimates.samples.max() == 1


HALVES = {
    f"acme/big/0x{low:08x}_0x{high:08x}": (low, high)
    for low, high in ((0, 0x400), (0x400, 0x800), (0x800, 0xC00), (0xC00, 0x1000))
}


def test_a_split_has_as_many_parts_as_fit_and_small_bundles_wait_for_them() -> None:
    big = {"acme/big/0x00000000_0x00001000": 100.0} | {bundle(2 * i): 5.0 for i in range(6)}
    others = {f"b{i}": {bundle(1000 * i + 2 * j): 5.0 for j in range(8)} for i in (2, 3, 4)}
    topics = {"acme/big/0x00000000_0x00001000": 7}
    state, decided = once(cluster({"b1": big, **others}, topics=topics))
    (split,) = decided.splits
    assert split.boundaries == (0x400, 0x800, 0xC00)  # 7 topics: not 8 parts
    assert not decided.moves
    # at first the parts are measured for a moment only, so nothing leaves the broker
    small = {bundle(2 * i): 5.0 for i in range(6)}
    parts = dict.fromkeys(HALVES, 0.5)
    state, waits = once(cluster({"b1": parts | small, **others}), state=state, now_s=60)
    assert not waits.moves
    assert "InFlight" in labels(waits)
    place = state.estimates.names.index(next(iter(parts)))
    assert state.estimates.mean[place] == 25.0
    full = cluster({"b1": dict.fromkeys(HALVES, 25.0) | small, **others})
    _, then = once(full, state=state, now_s=120)
    assert {move.source for move in then.moves} == {"b1"}
    assert applied(full, then).max_by_mean() <= 1.15


def test_loads_that_drift_have_a_short_memory_and_noise_has_not() -> None:
    random = np.random.default_rng(5)
    for per_minute, short in ((0.0, False), (0.01, True)):
        state, load = BalanceState.empty(), cluster({f"b{i}": [10.0] * 30 for i in range(4)})
        for minute in range(25):
            sign = np.where(np.arange(len(load.bundles)) % 2, 1, -1)  # brokers' sums stay
            trend = 1 + sign * per_minute * minute
            rates = load.rates * (trend * random.lognormal(0, 0.1, len(trend)))[:, None]
            sampled = replace(load, rates=rates)
            state, _ = once(sampled, state=state, now_s=60.0 * minute, max_moves_per_round=0)
        assert (state.estimates.short.max() > 0) == short
        assert (np.median(state.estimates.samples) > 15) != short


def test_samples_of_before_confirm_an_overload_once_a_broker_is_new() -> None:
    held = {f"b{number}": [10.0] * 12 for number in range(4)}
    confirmed = {"confirm_samples": 2, "confirm_window_samples": 3}
    state = None
    for minute in range(4):
        state, decided = once(cluster(held), None, state, 60.0 * minute, **confirmed)
        assert labels(decided) == {"Balanced"}
    state, decided = once(cluster({**held, "new": []}), None, state, 240.0, **confirmed)
    assert {move.target for move in decided.moves} == {"new"}


def test_a_first_sample_confirms_nothing_twice() -> None:
    confirmed = {"confirm_samples": 2, "confirm_window_samples": 3}
    state, first = once(cluster(HOT), **confirmed)
    assert labels(first) == {"HitCount"}
    _, second = once(cluster(HOT), None, state, 60.0, **confirmed)
    assert second.moves


def test_overloaded_brokers_wait_while_nobody_reports_the_bundles_of_a_lost_one() -> None:
    held = {"b1": [10.0] * 16, "b2": [10.0] * 8, "b3": [10.0] * 8, "lost": [10.0] * 6}
    load = cluster(held)
    state, _ = once(load, start_above=9, stop_below=9)
    alone = {name: dict.fromkeys(bundles_of(load, name), 10.0) for name in ("b1", "b2", "b3")}
    state, waiting = once(cluster(alone), None, state, 60.0)
    assert not waiting.moves
    (skip,) = [skip for skip in waiting.skips if skip.label == "NoLoadData"]
    assert skip.reason.startswith("15.8% of the load has lost its broker")
    found = {**alone, "b2": alone["b2"] | dict.fromkeys(bundles_of(load, "lost"), 10.0)}
    _, known = once(cluster(found), None, state, 120.0)
    assert {(move.source, move.target) for move in known.moves} == {("b1", "b3")}


def test_a_split_leaves_no_load_that_nobody_reports() -> None:
    state, decided = once(cluster({"b1": [60.0], "b2": [20.0], "b3": [20.0]}, {bundle(0): 9}))
    (split,) = decided.splits
    low, high = (int(end, 16) for end in split.bundle.rpartition("/")[2].split("_"))
    middle = (low + high) // 2
    parts = [f"acme/orders/0x{a:08x}_0x{b:08x}" for a, b in ((low, middle), (middle, high))]
    held = {"b1": dict.fromkeys(parts, 30.0), "b2": [20.0], "b3": [20.0]}
    _, after = once(cluster(held), None, state, 60.0)
    assert not [skip for skip in after.skips if skip.label == "NoLoadData"]


def bundles_of(load: ClusterLoad, broker: str) -> list[str]:
    place = list(load.brokers).index(broker)
    return [name for name, owner in zip(load.bundles, load.owner, strict=True) if owner == place]


def test_a_broker_whose_bundles_are_elsewhere_gets_none_until_it_is_measured_again() -> None:
    before = {"b1": [10.0] * 8, "b2": [10.0] * 8, "down": [10.0] * 8}
    load = cluster(before)
    state, decided = once(load)
    assert labels(decided) == {"Balanced"}
    parts = {name: dict.fromkeys(bundles_of(load, name), 10.0) for name in before}
    taken_over = cluster({"b1": parts["b1"] | parts["down"], "b2": parts["b2"], "down": {}})
    for minute in (1, 2):
        ages_s = (0.0, 0.0, 60.0 * minute)
        state, decided = once(taken_over, None, state, 60.0 * minute, ages_s)
        assert {move.target for move in decided.moves} <= {"b2"}
        (skip,) = [skip for skip in decided.skips if skip.label == "OutDatedData"]
        assert skip.subject == "down"
        taken_over = applied(taken_over, decided)
    _, decided = once(taken_over, None, state, 180.0)
    assert {move.target for move in decided.moves} == {"down"}


def test_a_brokers_last_report_may_come_with_those_of_its_bundles_new_owners() -> None:
    before = {"b1": [10.0] * 12, "b2": [10.0] * 8, "down": [10.0] * 8}
    load = cluster(before)
    state, _ = once(load, start_above=9, stop_below=9)
    parts = {name: dict.fromkeys(bundles_of(load, name), 10.0) for name in before}
    taken_over = cluster({"b1": parts["b1"] | parts["down"], "b2": parts["b2"], "down": {}})
    # It was measured 10 s before the others, but 50 s after its last sample.
    for minute, age_s in ((1, 10.0), (2, 70.0)):
        state, decided = once(taken_over, None, state, 60.0 * minute, (0.0, 0.0, age_s))
        assert {move.target for move in decided.moves} <= {"b2"}
        assert [skip.subject for skip in decided.skips if skip.label == "OutDatedData"] == ["down"]
        taken_over = applied(taken_over, decided)


def test_while_half_of_a_lost_brokers_bundles_are_found_nobody_gets_the_others_load() -> None:
    before = {"b1": [10.0] * 8, "b2": [10.0] * 8, "b3": [10.0] * 8, "down": [10.0] * 8}
    load = cluster(before)
    state, _ = once(load)
    parts = {name: dict.fromkeys(bundles_of(load, name), 10.0) for name in before}
    first, rest = (dict(list(parts["down"].items())[half]) for half in (slice(4), slice(4, 8)))
    found = cluster({**parts, "b1": parts["b1"] | first, "down": rest})
    state, waiting = once(found, None, state, 60.0, (0.0, 60.0, 60.0, 60.0))
    assert not waiting.moves
    assert [skip.reason[:5] for skip in waiting.skips if skip.label == "NoLoadData"] == ["12.5%"]
    known = cluster({**parts, "b1": parts["b1"] | first, "b2": parts["b2"] | rest, "down": {}})
    ages_s = (0.0, 0.0, 0.0, 120.0)
    _, decided = once(known, None, state, 120.0, ages_s, start_above=0.1, stop_below=0.1)
    assert {move.target for move in decided.moves} == {"b3"}
    _, later = once(found, None, state, 300.0, (0.0, 0.0, 0.0, 300.0))
    assert "NoLoadData" not in labels(later)


def test_a_broker_that_gave_bundles_as_ordered_may_get_others() -> None:
    load = cluster({"b1": [10.0] * 12, "b2": [10.0] * 2, "b3": [10.0] * 4})
    state, decided = once(load)
    assert {move.source for move in decided.moves} == {"b1"}
    _, after = once(applied(load, decided), None, state, 60.0, (60.0, 0.0, 0.0))
    assert "OutDatedData" not in labels(after)


PER_BYTE = 4.0
LIMIT = 1600.0


def machines(
    carried: Mapping[str, float], idle: float = 0.0, foreign: Mapping[str, float] | None = None
) -> ClusterLoad:
    """Brokers with 10 equal bundles each, whose processors use what they explain and more."""
    use = {
        name: idle + PER_BYTE * load + (foreign or {}).get(name, 0.0)
        for name, load in carried.items()
    }
    return cluster(
        {name: [load / 10] * 10 if load else [] for name, load in carried.items()},
        cpu={name: (one, LIMIT) for name, one in use.items()},
    )


def learned(load: ClusterLoad) -> MachineModel:
    everybody = np.ones(len(load.brokers), np.bool_)
    return MachineModel.empty().aligned(tuple(load.brokers)).learned(load, everybody)


@pytest.mark.parametrize("idle", [0.0, 40.0])
@pytest.mark.parametrize("barely", [0.0, 4.0, 7.0])
def test_the_use_of_a_barely_used_broker_is_not_all_idle_use(idle: float, barely: float) -> None:
    model = learned(machines({"b1": 100.0, "b2": 110.0, "b3": 90.0, "new": barely}, idle))
    assert model.idle[0] == pytest.approx(idle, abs=1e-6)
    per_unit, _ = model.use_per_unit()
    assert per_unit[0] == pytest.approx(PER_BYTE)


def test_foreign_load_on_a_barely_used_broker_is_idle_use_only_if_all_have_it() -> None:
    carried = {"b1": 100.0, "b2": 110.0, "b3": 90.0, "new": 4.0, "newer": 5.0}
    model = learned(machines(carried, foreign={"new": 300.0}))
    assert model.idle[0] == pytest.approx(0.0, abs=1e-6)


def test_brokers_that_handed_bundles_over_are_known_until_both_are_measured_again() -> None:
    brokers = ("b1", "b2", "b3")
    names = [bundle(2 * number) for number in range(9)]
    held = {
        name: dict.fromkeys(names[3 * at : 3 * at + 3], 10.0) for at, name in enumerate(brokers)
    }
    load = cluster(held)
    known, _ = BundleEstimates.empty().aligned(load)
    assert not BundleEstimates.empty().handed_over(load).any()
    assert not known.handed_over(load).any()
    moved = {**held, "b1": dict.fromkeys(names[:2], 10.0)}
    moved["b2"] = held["b2"] | {names[2]: 10.0}
    after = cluster(moved)
    assert known.handed_over(after).tolist() == [True, True, False]
    gone = cluster({**held, "b3": dict.fromkeys(names[6:8], 10.0)})
    assert known.handed_over(gone).tolist() == [False, False, True]
    new = cluster({**held, "b3": held["b3"] | {bundle(100): 10.0}})
    assert known.handed_over(new).tolist() == [False, False, True]
    everything = np.ones(len(names), np.bool_)
    measured = known.aligned(after)[0].sampled(after, everything)
    assert not measured.handed_over(after).any()


def test_a_processor_measured_before_a_bundle_left_is_no_foreign_load() -> None:
    """The broker's processor was measured with bundles that have left since."""
    carried = {f"b{number}": 100.0 for number in range(6)}
    load = machines(carried)
    state = None
    for minute in range(6):
        state, _ = once(load, None, state, 60.0 * minute)
    assert state is not None
    owner = load.owner.copy()
    owner[:5] = 1  # half of what the first broker had; its processor is as before
    moved = replace(load, owner=owner)
    state, _ = once(moved, None, state, 360.0)
    assert state.machines.residual[:, 0] == pytest.approx(np.zeros(6), abs=1e-6)


@pytest.mark.parametrize(("later_s", "counts"), [(-3600.0, True), (-5.0, False), (60.0, True)])
def test_numbers_of_a_clock_that_was_set_back_count(later_s: float, counts: bool) -> None:
    """Else the balancer would know nothing of that broker until the clock is where it was."""
    empty = BrokerWatch.empty().aligned(("b",))
    watch = replace(empty, counted_at_s=np.array([10_000.0]))
    same, measured = np.zeros(1, np.bool_), np.array([10_000.0 + later_s])
    assert watch.fresh(measured, same, BalanceOptions()).tolist() == [counts]
