"""What quotaplane's strategy decides in one round, or a few."""

from __future__ import annotations

import numpy as np
import pytest

from quotaplane.balance.cluster_load import ClusterLoad
from quotaplane.balance.decisions import LABELS
from quotaplane.balance.options import BalanceOptions, read_options
from quotaplane.balance.planner import BalanceState
from quotaplane.balance.policies import Policies, read_policies
from quotaplane.errors import InputError
from tests.unit.balance_cases import applied, bundle, cluster, labels, once, ratio

HOT = {"b1": [10.0] * 20, "b2": [10.0] * 10, "b3": [10.0] * 9}


def test_an_overloaded_broker_is_relieved_down_to_the_target() -> None:
    load = cluster(HOT)
    _, decided = once(load)
    assert labels(decided) == {"Overloaded"}
    assert {move.source for move in decided.moves} == {"b1"}
    assert ratio(applied(load, decided)) <= 1.1
    assert len(decided.moves) == 6  # 200 - 6 x 10 <= 1.1 x 130
    assert "1.54 x the mean" in decided.moves[0].reason


def test_of_unequal_bundles_those_leave_that_are_just_enough() -> None:
    load = cluster({"b1": [90.0, 60, 31, 22, 7], "b2": [100.0], "b3": [80.0]})
    _, decided = once(load, start_above=0.2, stop_below=0.2)
    moved = sorted(move.bytes_per_s for move in decided.moves)
    assert moved == [60.0]  # 210 - 1.2 x 130 = 54: 60 alone is cheaper than 31 + 22 + 7 = 60


def test_nothing_happens_in_a_balanced_cluster() -> None:
    _, decided = once(cluster({"b1": [10.0] * 10, "b2": [10.0] * 11}))
    assert not decided.moves
    assert labels(decided) == {"Balanced"}


def test_every_label_is_explained() -> None:
    policies = Policies(drained_brokers={"b3"})
    _, decided = once(cluster(HOT), policies, age_s=[0, 5000, 0])
    assert labels(decided) <= LABELS.keys()
    assert all(one.reason for one in (*decided.moves, *decided.skips))


@pytest.mark.parametrize(
    ("held", "label"),
    [
        ({"b1": [1.0]}, "NoBrokers"),
        ({"b1": []}, "NoBrokers"),
        ({"b1": [0.0, 0.0], "b2": [0.0]}, "Balanced"),
        ({"b1": [], "b2": []}, "Balanced"),
    ],
)
def test_a_cluster_without_anything_to_balance(held: dict[str, list[float]], label: str) -> None:
    _, decided = once(cluster(held))
    assert not decided.moves
    assert labels(decided) == {label}


def test_no_brokers_at_all() -> None:
    _, decided = once(cluster({}))
    assert labels(decided) == {"NoBrokers"}


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
        assert again.plan_hash() == first.plan_hash()
        assert "Missed" not in labels(again)
    approved = {move.bundle for move in again.moves}
    assert approved
    after = applied(load, again)
    state, done = once(after, state=state.as_proposed(), now_s=600)
    assert not done.moves
    assert {state.orders[bundle].status for bundle in approved} == {"seen"}
    assert {state.orders[bundle].ordered_at_s for bundle in approved} == {600}


def test_a_proposal_is_void_once_its_bundle_went_elsewhere() -> None:
    load = cluster({"b1": [10.0] * 4, "b2": [10.0], "b3": [12.0]})
    state, decided = once(load)
    move = decided.moves[0]
    owner = load.owner.copy()
    owner[list(load.bundles).index(move.bundle)] = 2
    other = ClusterLoad(load.brokers, load.usage, load.limit, load.bundles, owner, load.rates)
    state, after = once(other, state=state.as_proposed(), now_s=60)
    assert move.bundle not in state.orders
    assert "Missed" not in labels(after)


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


def test_a_bundle_that_went_elsewhere_is_said_and_rests() -> None:
    load = cluster({"b1": [10.0] * 4, "b2": [10.0], "b3": [12.0]})
    state, decided = once(load)
    move = decided.moves[0]
    owner = load.owner.copy()
    owner[list(load.bundles).index(move.bundle)] = 2
    other = ClusterLoad(load.brokers, load.usage, load.limit, load.bundles, owner, load.rates)
    _, after = once(other, state=state, now_s=60)
    assert (
        f"went to b3 instead of {move.target}"
        in next(s for s in after.skips if s.label == "Missed").reason
    )


def test_a_moved_bundle_rests_for_the_grace_period() -> None:
    load = cluster({"b1": [10.0, 10], "b2": [1.0], "b3": [1.0]})
    state, decided = once(load, start_above=0.5, stop_below=0.5, allow_splits=False)
    (move,) = decided.moves
    after = applied(load, decided)
    rates = after.rates.copy()
    rates[list(after.bundles).index(move.bundle)] *= 3  # now its new owner is overloaded
    hot = ClusterLoad(after.brokers, after.usage, after.limit, after.bundles, after.owner, rates)
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
    dip = ClusterLoad(after.brokers, after.usage, after.limit, after.bundles, after.owner, rates)
    if not ordered:  # somebody else moved them
        state = BalanceState(estimates=state.estimates, watch=state.watch)
    state, _ = once(dip, state=state, now_s=60)
    size = dict(zip(state.estimates.names, state.estimates.mean.tolist(), strict=True))
    assert {size[name] for name in moved} == {10.0}
    state, _ = once(dip, state=state, now_s=120)  # so low for another period: they have changed
    size = dict(zip(state.estimates.names, state.estimates.mean.tolist(), strict=True))
    assert {size[name] for name in moved} == {1.0}


def test_a_bundle_that_is_split_is_not_moved_in_the_same_round() -> None:
    policies = Policies(isolation=[{"namespaces": ["acme/.*"], "primary": ["b2"]}])
    load = cluster({"b1": [90.0, 1, 1], "b2": [1.0], "b3": [1.0]}, cpu={})
    _, decided = once(load, policies)
    decided_for = [one.bundle for one in (*decided.moves, *decided.splits)]
    assert decided.splits
    assert len(decided_for) == len(set(decided_for))


def test_a_name_in_the_policies_that_the_cluster_does_not_have_is_said() -> None:
    policies = Policies(drained_brokers={"b4"}, capacity_weights={"b5": 2.0, "b1": 1.0})
    _, decided = once(cluster(HOT), policies)
    unknown = {skip.subject: skip.reason for skip in decided.skips if skip.label == "NoLoadData"}
    assert unknown.keys() == {"b4", "b5"}
    assert "drained_brokers" in unknown["b4"]
    assert "capacity_weights" in unknown["b5"]


def test_a_bundle_that_nobody_reports_still_counts_at_its_target() -> None:
    load = cluster(HOT)
    state, decided = once(load)
    gone = {move.bundle for move in decided.moves}
    keep = np.array([name not in gone for name in load.bundles])
    less = ClusterLoad(
        load.brokers,
        load.usage,
        load.limit,
        tuple(np.array(load.bundles)[keep]),
        load.owner[keep],
        load.rates[keep],
    )
    state, decided = once(less, state=state, now_s=60)
    assert not decided.moves
    assert set(state.absent.names) == gone


def test_a_swap_when_no_single_bundle_fits() -> None:
    load = cluster({"b1": [65.0, 65], "b2": [55.0, 45], "b3": [52.0, 48]})
    _, decided = once(load, stop_below=0.1, start_above=0.12, allow_splits=False)
    assert labels(decided) == {"Swap"}
    assert len(decided.moves) == 2
    assert ratio(applied(load, decided)) < ratio(load)
    _, without = once(load, start_above=0.12, allow_swaps=False, allow_splits=False)
    assert not without.moves


def test_a_bundle_too_big_for_any_broker_is_split() -> None:
    load = cluster({"b1": [100.0, 5, 5], "b2": [20.0], "b3": [20.0]})
    state, decided = once(load)
    (split,) = decided.splits
    assert split.bundle == bundle(0)
    assert split.label == "TooBig"
    assert not decided.moves
    _, again = once(load, state=state, now_s=60)
    assert not again.splits  # it is under way
    assert "InFlight" in labels(again)


def test_a_bundle_with_one_topic_is_not_split_but_left_alone_on_its_broker() -> None:
    load = cluster({"b1": [100.0, 5, 5], "b2": [20.0], "b3": [20.0]}, topics={bundle(0): 1})
    _, decided = once(load)
    assert not decided.splits
    assert any("one topic" in skip.reason for skip in decided.skips)
    assert {move.bytes_per_s for move in decided.moves} == {5.0}


def test_a_namespace_has_a_largest_number_of_bundles() -> None:
    load = cluster({"b1": [100.0, 5, 5], "b2": [20.0], "b3": [20.0]})
    _, decided = once(load, max_bundles_per_namespace=5)
    assert not decided.splits
    assert any("5 of 5 bundles" in skip.reason for skip in decided.skips)


def test_a_drained_broker_gives_everything_and_gets_nothing() -> None:
    load = cluster({"b1": [10.0] * 20, "b2": [10.0] * 5, "b3": [10.0] * 20})
    state = BalanceState.empty()
    for minute in range(8):
        state, decided = once(
            load, state=state, now_s=60 * minute, draining=["b2"], max_moves_per_round=3
        )
        assert all(move.target != "b2" for move in decided.moves)
        assert len(decided.moves) <= 3
        load = applied(load, decided)
    assert not (load.owner == 1).any()


def test_a_drain_by_policy_is_the_same() -> None:
    load = cluster({"b1": [10.0] * 4, "b2": [0.0, 10.0], "b3": [10.0] * 4})
    _, decided = once(load, Policies(drained_brokers={"b2"}))
    assert {move.label for move in decided.moves} == {"Drain"}
    assert not (applied(load, decided).owner == 1).any()


def test_stale_and_silent_brokers_neither_give_nor_get() -> None:
    load = cluster({"b1": [10.0] * 30, "b2": [], "b3": [10.0] * 5, "b4": [10.0] * 20})
    _, decided = once(load, age_s=[2000, np.inf, 0, 0])
    assert {"OutDatedData", "NoLoadData"} <= labels(decided)
    touched = {name for move in decided.moves for name in (move.source, move.target)}
    assert touched == {"b3", "b4"}


def test_a_stale_broker_can_be_drained() -> None:
    load = cluster({"b1": [10.0] * 3, "b2": [10.0] * 3, "b3": [10.0] * 3})
    _, decided = once(load, age_s=[2000, 0, 0], draining=["b1"])
    assert len(decided.moves) == 3


def test_isolation_rules_hold() -> None:
    mine = {f"acme/orders/0x{i:08x}_0x{i + 1:08x}": 10.0 for i in range(10)}
    other = {f"free/ns/0x{i:08x}_0x{i + 1:08x}": 10.0 for i in range(10)}
    load = cluster({"b1": mine, "b2": {}, "b3": other, "b4": {}})
    rule = {"namespaces": ["acme/.*"], "primary": ["b[12]"]}
    _, decided = once(load, Policies(isolation=(rule,)))
    assert decided.moves
    for move in decided.moves:
        assert (move.target in ("b1", "b2")) == move.bundle.startswith("acme/")


def test_bundles_are_moved_off_brokers_where_an_isolation_rule_forbids_them() -> None:
    mine = {f"acme/orders/0x{i:08x}_0x{i + 1:08x}": 10.0 for i in range(4)}
    other = {f"free/ns/0x{i:08x}_0x{i + 1:08x}": 10.0 for i in range(4)}
    own = {"pulsar/system/0x00000000_0xffffffff": 0.0}
    fine = {f"free/else/0x{i:08x}_0x{i + 1:08x}": 10.0 for i in range(4)}
    load = cluster({"b1": other | own, "b2": mine_too(), "b3": mine, "b4": fine})
    policies = Policies(isolation=({"namespaces": ["acme/.*"], "primary": ["b[12]"]},))
    state, few = once(load, policies, max_moves_per_round=3)
    assert {move.label for move in few.moves} == {"Policy"}
    assert len(few.moves) == 3
    assert "Budget" in labels(few)
    state, decided = once(load, policies)
    assert len(decided.moves) == 8
    for move in decided.moves:
        assert (move.target in ("b1", "b2")) == move.bundle.startswith("acme/")
        assert "forbids it on" in move.reason
    _, again = once(applied(load, decided), policies, state, 60)
    assert "Policy" not in {move.label for move in again.moves}
    rule = {"namespaces": ["acme/.*"], "primary": ["gone"]}
    _, nowhere = once(cluster({"b1": mine, "b2": mine_too()}), Policies(isolation=(rule,)))
    assert not nowhere.moves


def mine_too() -> dict[str, float]:
    return {f"acme/more/0x{i:08x}_0x{i + 1:08x}": 10.0 for i in range(4)}


def test_anti_affinity_groups_are_not_brought_together() -> None:
    held = {
        "b1": {bundle(0, "a/one"): 30.0, bundle(0, "a/x"): 30.0, bundle(0, "a/y"): 30.0},
        "b2": {bundle(0, "a/two"): 10.0},
        "b3": {bundle(0, "a/z"): 20.0},
    }
    policies = Policies(anti_affinity={"a/one": "g", "a/two": "g"})
    _, decided = once(cluster(held), policies, start_above=0.5, stop_below=0.5)
    assert decided.moves
    assert not [m for m in decided.moves if m.bundle.startswith("a/one") and m.target == "b2"]


def test_excluded_and_system_namespaces_stay() -> None:
    held = {
        "b1": {bundle(2 * i, "keep/me"): 10.0 for i in range(5)}
        | {bundle(2 * i, "pulsar/system"): 10.0 for i in range(5)},
        "b2": {bundle(0): 10.0},
    }
    load = cluster(held)
    policies = Policies(excluded_namespaces=("keep/.*",))
    _, decided = once(load, policies)
    assert not decided.moves
    assert "Policy" in labels(decided)
    _, drained = once(load, policies, draining=["b1"])
    assert len(drained.moves) == 10


def test_a_round_has_a_budget() -> None:
    load = cluster(HOT)
    _, few = once(load, max_moves_per_round=2)
    assert len(few.moves) == 2
    assert "Budget" in labels(few)
    _, bytes_ = once(load, max_bytes_per_s_per_round=25)
    assert sum(move.bytes_per_s for move in bytes_.moves) == 20
    _, none = once(load, max_moves_per_round=0)
    assert not none.moves


def test_two_bundles_of_a_range_do_not_move_at_once() -> None:
    held = {"b1": {bundle(0, f"a/n{i}"): 10.0 for i in range(10)}, "b2": {bundle(0, "a/z"): 10.0}}
    _, free = once(cluster(held))
    assert len(free.moves) > 1
    state, one = once(cluster(held), distinct_ranges=True)
    assert len(one.moves) == 1
    _, waits = once(cluster(held), state=state, now_s=60, distinct_ranges=True)
    assert not waits.moves
    assert "SameRange" in labels(waits)


def test_small_overloads_wait_for_samples_that_confirm_them() -> None:
    state = BalanceState.empty()
    load = cluster(HOT)
    done = []
    for minute in range(4):
        state, decided = once(
            *(load, None, state, 60.0 * minute), confirm_samples=2, confirm_window_samples=3
        )
        done.append(len(decided.moves))
    assert done[0] == 0
    assert done[1] > 0


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


def test_bigger_brokers_get_more() -> None:
    load = cluster({"small": [10.0] * 10, "big": [10.0] * 2})
    policies = Policies(capacity_weights={"big": 3.0})
    _, decided = once(load, policies)
    after = applied(load, decided)
    assert after.throughput_of_brokers().tolist() == [30.0, 90.0]


def test_foreign_load_counts_where_limits_are_known() -> None:
    held = {"b1": [10.0] * 10, "b2": [10.0] * 10, "b3": [10.0] * 10, "b4": [10.0] * 10}
    cpu = {"b1": (80.0, 100.0), "b2": (40.0, 100.0), "b3": (40.0, 100.0), "b4": (40.0, 100.0)}
    load = cluster(held, cpu=cpu)
    state = BalanceState.empty()
    moved = []
    for minute in range(4):
        state, decided = once(load, state=state, now_s=60.0 * minute)
        moved += decided.moves
    # the mean is 50 %: from 80 % down to 55 % is 6.25 bundles of 4 %
    assert len(moved) == 7
    assert {move.source for move in moved} == {"b1"}


def test_full_brokers_are_balanced_but_not_shuffled() -> None:
    held = {name: [10.0] * 9 for name in ("b1", "b2", "b3")}
    cpu = dict.fromkeys(held, (90.0, 100.0))
    _, decided = once(cluster(held, cpu=cpu))
    assert not decided.moves
    held = {"b1": [1.0] * 99, "b2": [1.0] * 90, "b3": [1.0] * 90}
    cpu["b1"] = (99.0, 100.0)
    _, slightly = once(cluster(held, cpu=cpu), start_above=0.3, stop_below=0.05)
    assert len(slightly.moves) == 2  # above 85 % the start is stop_below
    assert ratio(applied(cluster(held), slightly)) <= ratio(cluster(held))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"start_above": -1}, "start_above: Input should be greater than 0"),
        ({"stop_below": 0.5}, "stop_below must not exceed start_above"),
        ({"resources": ["gpu"]}, "resources: expected some of cpu"),
        ({"colour": 1}, "colour: unknown key"),
        ({"noise_z": float("nan")}, "noise_z"),
    ],
)
def test_unusable_options_are_refused(change: dict[str, object], text: str) -> None:
    with pytest.raises(InputError, match=text):
        read_options(change)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"capacity_weights": {"b1": 0}}, "broker b1: the weight must be above 0"),
        ({"excluded_namespaces": ["("]}, "not a regular expression"),
        ({"isolation": [{"namespaces": ["a"], "primary": []}]}, "isolation.0.primary"),
    ],
)
def test_unusable_policies_are_refused(change: dict[str, object], text: str) -> None:
    with pytest.raises(InputError, match=text):
        read_policies(change)


def test_unusable_rounds_are_refused() -> None:
    load = cluster(HOT)
    load.rates[3, 0] = np.nan
    with pytest.raises(InputError, match=bundle(6)):
        once(load)
    with pytest.raises(InputError, match="broker b2: age_s is NaN"):
        once(cluster(HOT), age_s=[0, np.nan, 0])
    with pytest.raises(InputError, match="age_s: has shape"):
        once(cluster(HOT), age_s=[0])
    with pytest.raises(InputError, match="not a state of the balancer"):
        BalanceState.from_bytes(b"nonsense")


def test_moves_in_a_round_scale_with_the_cluster() -> None:
    assert BalanceOptions().moves_in_a_round(3) == 100
    assert BalanceOptions().moves_in_a_round(1000) == 3000


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
    assert ratio(applied(full, then)) <= 1.15


def test_loads_that_drift_have_a_short_memory_and_noise_has_not() -> None:
    random = np.random.default_rng(5)
    for per_minute, short in ((0.0, False), (0.01, True)):
        state, load = BalanceState.empty(), cluster({f"b{i}": [10.0] * 30 for i in range(4)})
        for minute in range(25):
            sign = np.where(np.arange(len(load.bundles)) % 2, 1, -1)  # brokers' sums stay
            trend = 1 + sign * per_minute * minute
            rates = load.rates * (trend * random.lognormal(0, 0.1, len(trend)))[:, None]
            sampled = ClusterLoad(
                *(load.brokers, load.usage, load.limit, load.bundles, load.owner, rates)
            )
            state, _ = once(sampled, state=state, now_s=60.0 * minute, max_moves_per_round=0)
        assert (state.estimates.short.max() > 0) == short
        assert (np.median(state.estimates.samples) > 15) != short


def test_foreign_load_counts_from_the_first_sample_on() -> None:
    held = {"b1": [10.0] * 10, "b2": [10.0] * 10, "b3": [10.0] * 10}
    cpu = {"b1": (80.0, 100.0), "b2": (40.0, 100.0), "b3": (40.0, 100.0)}
    _, decided = once(cluster(held, cpu=cpu))
    assert {move.source for move in decided.moves} == {"b1"}
