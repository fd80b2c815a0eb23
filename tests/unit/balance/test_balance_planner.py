"""Decisions of quotaplane's strategy in a round: moves, splits, policies, budgets."""

from __future__ import annotations

import numpy as np
import pytest

from quotabalance.planning.options import BalanceOptions, read_options
from quotabalance.planning.planner import BalanceState
from quotabalance.planning.policies import Policies, read_policies
from quotaplane.errors import InputError
from tests.unit.balance.balance_cases import HOT, applied, bundle, cluster, labels, once


def test_an_overloaded_broker_is_relieved_down_to_the_target() -> None:
    load = cluster(HOT)
    _, decided = once(load)
    assert labels(decided) == {"Overloaded"}
    assert {move.source for move in decided.moves} == {"b1"}
    assert applied(load, decided).max_by_mean() <= 1.1
    assert len(decided.moves) == 6  # 200 - 6 x 10 <= 1.1 x 130
    assert "1.54 x the mean" in decided.moves[0].reason


def test_of_unequal_bundles_those_leave_that_are_just_enough() -> None:
    load = cluster({"b1": [90.0, 60, 31, 22, 7], "b2": [100.0], "b3": [80.0]})
    _, decided = once(load, start_above=0.2, stop_below=0.2)
    moved = sorted(move.bytes_per_s for move in decided.moves)
    assert moved == [60.0]  # 210 - 1.2 x 130 = 54: 60 alone is cheaper than 31 + 22 + 7 = 60


@pytest.mark.parametrize(
    ("held", "label"),
    [
        ({}, "NoBrokers"),
        ({"b1": [1.0]}, "NoBrokers"),
        ({"b1": []}, "NoBrokers"),
        ({"b1": [0.0, 0.0], "b2": [0.0]}, "Balanced"),
        ({"b1": [], "b2": []}, "Balanced"),
        ({"b1": [10.0] * 10, "b2": [10.0] * 11}, "Balanced"),
    ],
)
def test_a_cluster_without_anything_to_balance(held: dict[str, list[float]], label: str) -> None:
    _, decided = once(cluster(held))
    assert not decided.moves
    assert labels(decided) == {label}


def test_a_bundle_that_is_split_is_not_moved_in_the_same_round() -> None:
    policies = Policies(isolation=[{"namespaces": ["acme/.*"], "primary": ["b[12]"]}])
    held = {bundle(0): 90.0, bundle(2): 1.0, bundle(4, "free/ns"): 200.0}
    load = cluster({"b1": held, "b2": {bundle(6): 1.0}, "b3": {bundle(8, "free/ns"): 1.0}})
    _, decided = once(load, policies)
    decided_for = [one.bundle for one in (*decided.moves, *decided.splits)]
    assert [split.bundle for split in decided.splits] == [bundle(0)]
    assert [move.bundle for move in decided.moves if move.label == "Policy"] == [
        bundle(4, "free/ns")
    ]
    assert len(decided_for) == len(set(decided_for))


def test_a_name_in_the_policies_that_the_cluster_does_not_have_is_said() -> None:
    policies = Policies(drained_brokers={"b4"}, capacity_weights={"b5": 2.0, "b1": 1.0})
    _, decided = once(cluster(HOT), policies)
    unknown = {skip.subject: skip.reason for skip in decided.skips if skip.label == "NoLoadData"}
    assert unknown.keys() == {"b4", "b5"}
    assert "drained_brokers" in unknown["b4"]
    assert "capacity_weights" in unknown["b5"]


def test_a_swap_when_no_single_bundle_fits() -> None:
    load = cluster({"b1": [65.0, 65], "b2": [55.0, 45], "b3": [52.0, 48]})
    _, decided = once(load, stop_below=0.1, start_above=0.12, allow_splits=False)
    assert labels(decided) == {"Swap"}
    assert len(decided.moves) == 2
    assert applied(load, decided).max_by_mean() < load.max_by_mean()


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
    assert sum("one topic" in skip.reason for skip in decided.skips) == 1
    assert {move.bytes_per_s for move in decided.moves} == {5.0}


def test_a_bundle_whose_name_has_no_range_is_said_once() -> None:
    load = cluster({"b1": {"acme/orders/all": 100.0}, "b2": [20.0], "b3": [20.0]})
    _, decided = once(load)
    assert [skip.label for skip in decided.skips if skip.subject == "acme/orders/all"] == ["TooBig"]


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
    share = 25 / load.throughput().sum()
    _, bytes_ = once(load, max_bytes_share_per_round=share)
    assert sum(move.bytes_per_s for move in bytes_.moves) == 20
    _, none = once(load, max_moves_per_round=0)
    assert not none.moves


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
        assert moved, "from the first sample on"
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
    assert applied(cluster(held), slightly).max_by_mean() <= cluster(held).max_by_mean()


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
        (
            {"excluded_namespaces": ["a[[]"]},
            r"'a\[\[\]' is not a clear regular expression: possible nested set",
        ),
        ({"excluded_namespaces": ["[a&&b]"]}, "possible set intersection"),
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
