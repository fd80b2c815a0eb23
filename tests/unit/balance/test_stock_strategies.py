"""Pulsar's strategies as the balance job runs them: placed, split, remembered, switched off."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import PULSARS, Decisions
from quotabalance.planning.isolation import IsolationPolicy
from quotabalance.planning.planner import BalanceRound
from quotabalance.planning.policies import Policies
from quotabalance.record.strategies import StrategyInForce
from quotabalance.stock.shedders import SHEDDERS
from quotabalance.stock.stock_leader import StockLeader
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.errors import ConfigError
from tests.unit.balance.balance_cases import labels
from tests.unit.balance.load_report_cases import bundle_of

EAGER = StockSettings(
    minUnloadMessage=1,
    minUnloadMessageThroughput=1,
    loadBalancerBundleUnloadMinThroughputThreshold=0.0,
    loadBalancerSheddingConditionHitCountThreshold=0,
    loadBalancerAvgShedderHitCountHighThreshold=1,
)


def hot_load(**changes: Any) -> ClusterLoad:
    """Three brokers, of which the first has all twelve bundles."""
    load = ClusterLoad(
        brokers=("b1:80", "b2:80", "b3:80"),
        usage=np.array([[95.0] * 5, [10.0] * 5, [20.0] * 5]),
        limit=np.full((3, 5), 100.0),
        bundles=tuple(map(bundle_of, range(12))),
        owner=np.zeros(12, np.int64),
        rates=np.full((12, 4), 1e6) * np.arange(1, 13)[:, None],
        topics=np.full(12, 5),
        sessions=np.full(12, 5),
    )
    return replace(load, **changes)


def round_of(load: ClusterLoad, number: int = 0, draining: tuple[str, ...] = ()) -> BalanceRound:
    drains = np.array([name in draining for name in load.brokers])
    return BalanceRound(load, 60.0 * number, np.zeros(len(load.brokers)), drains)


def decided(name: str, settings: StockSettings = EAGER, **more: Any) -> Decisions:
    policies = more.pop("policies", Policies())
    return StockLeader(name, settings, policies).decide(round_of(hot_load(**more)))


def test_the_settings_know_all_strategies() -> None:
    assert tuple(SHEDDERS) == PULSARS


@pytest.mark.parametrize("name", PULSARS)
def test_bundles_leave_the_hot_broker_for_one_that_is_named(name: str) -> None:
    moves = decided(name).moves
    assert {move.source for move in moves} == {"b1:80"}
    assert {move.target for move in moves} <= {"b2:80", "b3:80"}


@pytest.mark.parametrize("name", PULSARS)
def test_a_memory_goes_on_in_another_process_as_in_this_one(name: str) -> None:
    random = np.random.default_rng(3)
    here, memory = StockLeader(name, EAGER, Policies()), None
    owner, moves = np.zeros(40, np.int64), 0
    for number in range(12):
        load = hot_load(
            bundles=tuple(map(bundle_of, range(40))),
            owner=owner.copy(),
            rates=random.lognormal(13, 1, (40, 4)),
            topics=random.integers(1, 1100, 40),
            sessions=np.full(40, 5),
            usage=np.repeat(np.bincount(owner, minlength=3)[:, None] * 2.3, 5, axis=1),
        )
        expected = here.decide(round_of(load, number))
        there = (
            StockLeader(name, EAGER, Policies())
            if memory is None
            else StockLeader.from_bytes(memory, EAGER, Policies())
        )
        assert there.decide(round_of(load, number)) == expected
        memory = there.to_bytes()
        for move in expected.moves:
            owner[load.bundles.index(move.bundle)] = load.brokers.index(move.target)
        moves += len(expected.moves)
    assert moves > 3


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise SystemExit('it ran')",)


@pytest.mark.parametrize(
    "memory",
    [b"", b"x", pickle.dumps(_Evil()), pickle.dumps({}), pickle.dumps(np.zeros(3))],
    ids=["empty", "noise", "code", "a mapping", "an array"],
)
def test_a_memory_that_is_none_is_refused_and_never_run(memory: bytes) -> None:
    with pytest.raises(ConfigError, match=r"a memory of Pulsar's strategy that can't be read"):
        StockLeader.from_bytes(memory, EAGER, Policies())


def test_a_proposal_is_made_again_until_its_bundle_is_elsewhere() -> None:
    leader = StockLeader("OverloadShedder", EAGER, Policies())
    first = leader.decide(round_of(hot_load()), proposed=True)
    again = leader.decide(round_of(hot_load(), 1), proposed=True)
    assert [move.bundle for move in again.moves] == [move.bundle for move in first.moves]
    gone = np.zeros(12, np.int64)
    gone[hot_load().bundles.index(first.moves[0].bundle)] = 1
    usage = np.array([[20.0] * 5, [95.0] * 5, [20.0] * 5])
    after = leader.decide(round_of(hot_load(owner=gone, usage=usage), 2), proposed=True)
    assert not after.moves  # its grace period has begun


@pytest.mark.parametrize(
    ("switch", "moves", "splits"),
    [
        ("loadBalancerEnabled", 0, 0),
        ("loadBalancerSheddingEnabled", 0, 1),
        ("loadBalancerAutoBundleSplitEnabled", 1, 0),
    ],
)
@pytest.mark.parametrize("name", ["OverloadShedder", "TransferShedder"])
def test_switches_of_pulsar_do_what_they_say(
    name: str, switch: str, moves: int, splits: int
) -> None:
    settings = replace(
        EAGER,
        loadBalancerNamespaceBundleMaxTopics=4,
        loadBalancerNamespaceBundleSplitConditionHitCountThreshold=0,
    )
    on = decided(name, settings)
    assert on.moves
    assert on.splits
    off = decided(name, replace(settings, **{switch: False}))  # type: ignore[arg-type]
    assert (bool(off.moves), bool(off.splits)) == (bool(moves), bool(splits))
    assert [skip.reason.split(" is false")[0] for skip in off.skips].count(switch) == 1


def test_a_bundle_that_moves_is_not_split_and_others_are_in_the_middle() -> None:
    settings = replace(EAGER, loadBalancerNamespaceBundleMaxTopics=4)
    found = decided("OverloadShedder", settings)
    moved = {move.bundle for move in found.moves}
    assert len(found.splits) == 12 - len(moved)
    assert not moved & {split.bundle for split in found.splits}
    assert {len(split.boundaries) for split in found.splits} == {1}
    by_topics = replace(settings, defaultNamespaceBundleSplitAlgorithm="topic_count_equally_divide")
    assert {split.boundaries for split in decided("OverloadShedder", by_topics).splits} == {()}


def test_one_broker_alone_sheds_and_splits_nothing_with_the_modular_manager() -> None:
    settings = replace(EAGER, loadBalancerNamespaceBundleMaxTopics=4)
    alone = {"brokers": ("b1:80",), "usage": np.full((1, 5), 95.0), "limit": np.full((1, 5), 100.0)}
    found = decided("OverloadShedder", settings, **alone)
    assert (found.moves, found.splits) == ([], [])
    assert labels(found) == {"NoBrokers"}


def test_policies_hold() -> None:
    reserved = IsolationPolicy(namespaces=["acme/orders"], primary=["b1"], min_primary=1)
    stays = decided("OverloadShedder", policies=Policies(isolation={"orders": reserved}))
    assert not stays.moves
    assert "Policy" in labels(stays)
    reserved = IsolationPolicy(namespaces=["acme/orders"], primary=["b[13]"], min_primary=1)
    found = decided("OverloadShedder", policies=Policies(isolation={"orders": reserved}))
    assert {move.target for move in found.moves} == {"b3:80"}


def test_anti_affinity_keeps_a_bundle_where_no_broker_has_fewer_of_the_group() -> None:
    names = [bundle_of(0, f"acme/n{number}") for number in range(3)]
    load = hot_load(
        bundles=(*names, bundle_of(9)),
        owner=np.array([0, 1, 2, 0]),
        rates=np.full((4, 4), 1e6) * np.array([2, 1, 1, 1])[:, None],
        topics=np.full(4, 1),
        sessions=np.full(4, 5),
    )
    groups = Policies(anti_affinity=dict.fromkeys(("acme/n0", "acme/n1", "acme/n2"), "apart"))
    free, apart = (
        StockLeader("OverloadShedder", EAGER, policies).decide(round_of(load))
        for policies in (Policies(), groups)
    )
    assert [move.bundle for move in free.moves] == names[:1]
    assert not apart.moves
    assert [skip.subject for skip in apart.skips if skip.label == "Policy"] == names[:1]


def test_a_drain_is_not_done_and_that_is_said() -> None:
    leader = StockLeader("OverloadShedder", EAGER, Policies())
    found = leader.decide(round_of(hot_load(), draining=("b2:80",)))
    assert (
        found.skips[-1].reason == "1 brokers are to be drained, which OverloadShedder does not do"
    )


def test_a_record_names_the_strategy_with_all_its_settings() -> None:
    here = StrategyInForce("AvgShedder", stock=EAGER)
    text = here.settings_text()
    assert '"minUnloadMessage": 1' in text
    assert StrategyInForce.of_record("AvgShedder", json.loads(text)) == here
    assert "stock" not in json.loads(StrategyInForce().settings_text())
