"""TransferShedder: skips, and what always holds; tests/jvm compares its moves with Pulsar's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import LABELS
from quotabalance.planning.policies import Policies
from quotabalance.stock.extensible_placement import ExtensiblePlacement
from quotabalance.stock.interface import BrokerLoads, StockRound
from quotabalance.stock.stock_settings import StockSettings
from quotabalance.stock.transfer_shedder import TransferShedder

ISOLATED: dict[str, Any] = {"all": {"namespaces": ["t/n"], "primary": [".*"]}}


def _round(use: list[float], sizes: list[list[float]], **more: Any) -> StockRound:
    owner = np.array([n for n, own in enumerate(sizes) for _ in own], np.int64)
    rates = np.array([[size, 0, 0, 0] for own in sizes for size in own]).reshape(-1, 4)
    brokers = [f"10.0.0.{n}:8080" for n in range(len(use))]
    bundles = [f"t/n/0x{n:08x}_0x{n + 1:08x}" for n in range(len(owner))]
    usage = np.outer(use, np.ones(5))
    load = ClusterLoad(brokers, usage, np.full_like(usage, 100), bundles, owner, rates)
    return StockRound(load, rates, rates, np.zeros(len(owner), bool), 0.0, **more)


def _at_once(**more: Any) -> StockSettings:
    return StockSettings(loadBalancerSheddingConditionHitCountThreshold=0, **more)


HOT = ([90.0, 10.0], [[6e6, 2e6, 1e6], [5e5]])


def test_more_hits_than_the_threshold_are_needed() -> None:
    shedder = TransferShedder(StockSettings())
    labels = [shedder.shed(_round(*HOT)).skips[-1].label for _ in range(3)]
    assert labels == ["HitCount"] * 3
    assert shedder.shed(_round(*HOT)).moves
    assert shedder.shed(_round(*HOT)).skips[-1].label == "HitCount"  # and again from 0


@pytest.mark.parametrize(
    ("more", "label"),
    [
        ({"since_unload_s": np.array([10.0, np.inf])}, "CoolDown"),
        ({"report_age_s": np.array([9999.0, 9999.0])}, "OutDatedData"),
        ({"missing": ("10.0.0.9:8080",)}, "NoLoadData"),
    ],
)
def test_a_cycle_is_skipped(more: dict[str, Any], label: str) -> None:
    decided = TransferShedder(_at_once()).shed(_round(*HOT, **more))
    assert not decided.moves
    assert decided.skips[-1].label == label


@pytest.mark.parametrize(
    ("use", "sizes", "label"), [([90.0, 10.0], [[6e6], []], "NoBundles"), ([], [], "NoBrokers")]
)
def test_a_cluster_in_which_nothing_can_move(
    use: list[float], sizes: list[list[float]], label: str
) -> None:
    assert TransferShedder(_at_once()).shed(_round(use, sizes)).skips[-1].label == label


def test_what_brokers_report_counts_more_than_this_rounds_measurement() -> None:
    full = np.array([0.9, 0.1])
    throughput = np.array([9e6, 5e5])
    of_hot = BrokerLoads(full, throughput, throughput)
    even = _round([50.0, 50.0], HOT[1], broker_loads=of_hot)
    assert TransferShedder(_at_once()).shed(even).moves
    hot = _round(*HOT, broker_loads=of_hot._replace(use=full[::-1], smooth_throughput=throughput))
    assert not TransferShedder(_at_once()).shed(hot).moves
    placement = ExtensiblePlacement(StockSettings())
    placement.begin(even)
    assert placement.choices("t/n/0xf0000000_0xffffffff") == ["10.0.0.1:8080"]


def test_policies_may_change_between_rounds() -> None:
    shedder = TransferShedder(_at_once())
    shedder.policies = Policies(isolation=ISOLATED)
    assert not shedder.shed(_round(*HOT)).moves


def test_bundles_with_policies_are_not_reported() -> None:
    shedder = TransferShedder(_at_once(), Policies(isolation=ISOLATED))
    assert shedder.shed(_round(*HOT)).skips[-1].label == "NoLoadData"
    settings = _at_once(loadBalancerSheddingBundlesWithPoliciesEnabled=True)
    assert TransferShedder(settings, Policies(isolation=ISOLATED)).shed(_round(*HOT)).moves


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.lists(st.floats(0, 1e9), max_size=6)),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
def test_each_bundle_moves_once_from_its_owner_and_with_a_reason(
    cluster: list[tuple[float, list[float]]], debug: bool
) -> None:
    settings = _at_once(loadBalancerDebugModeEnabled=debug, loadBalancerBrokerLoadTargetStd=0.01)
    round_ = _round([use for use, _ in cluster], [own for _, own in cluster])
    decided = TransferShedder(settings).shed(round_)
    assert decided == TransferShedder(settings).shed(round_)
    owners = dict(zip(round_.load.bundles, round_.load.owner.tolist(), strict=True))
    moved = [move.bundle for move in decided.moves]
    assert len(set(moved)) == len(moved)
    for move in decided.moves:
        assert round_.load.brokers[owners[move.bundle]] == move.source != move.target
        assert move.reason
    assert decided.moves or decided.skips
    assert {part.label for part in (*decided.moves, *decided.skips)} <= LABELS.keys()
