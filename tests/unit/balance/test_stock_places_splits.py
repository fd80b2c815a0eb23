"""Placements and splits of stock Pulsar, without a JVM: cases and properties."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotabalance.planning.cases import parse_balance_case
from quotabalance.stock.leader import Leader, stock_case
from quotabalance.stock.leader_placement import LeaderPlacement
from quotabalance.stock.place_cases import answer_places
from quotabalance.stock.placements import RoundRobinBrokerSelector
from quotabalance.stock.split_algorithms import (
    TopicRates,
    flow_or_qps_equally_divide,
    specified_positions_divide,
    topic_count_equally_divide,
    topic_hash,
)
from quotabalance.stock.split_cases import answer_splits
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.errors import InputError
from quotaplane.topics.bundle_names import BundleName

NEW = "acme/new/0x00000000_0xffffffff"
OLD = "acme/orders/0x00000000_0x80000000"
MODULAR = (
    *("RoundRobinBrokerSelector", "LeastLongTermMessageRate"),
    *("LeastResourceUsageWithWeight", "AvgShedder"),
)


def _brokers(*cpu: float) -> dict[str, Any]:
    found: dict[str, Any] = {
        f"10.0.0.{n}:8080": {"cpu": [use, 100], "bundles": {}} for n, use in enumerate(cpu)
    }
    if found:
        found["10.0.0.0:8080"]["bundles"] = {OLD: [1, 1, 100, 100]}
    return found


@pytest.mark.parametrize("cls", MODULAR)
def test_policies_hold_for_every_strategy(cls: str) -> None:
    policy = {"namespaces": ["acme/.*"], "primary": [r"10\.0\.0\.2"]}
    case = {
        "rounds": [_brokers(50, 10, 99)],
        "place": [NEW],
        "policies": {"isolation": {"acme": policy}},
        "cls": cls,
    }
    assert answer_places(case) == [{NEW: ["10.0.0.2:8080"]}]


def test_what_a_lookup_chose_is_kept_for_lookups_only() -> None:
    settings = StockSettings()
    case = stock_case(parse_balance_case({"rounds": [_brokers(50, 10, 99)]}, "case"))
    placement = LeaderPlacement(RoundRobinBrokerSelector(settings), settings)
    placement.begin(Leader(settings).round(case.rounds[0], 0.0))
    looked_up = placement.place(NEW)
    assert placement.place(NEW) == looked_up
    assert placement.place(NEW, remember=False) != looked_up  # as ``doLoadShedding`` asks


def test_the_extensible_manager_places_by_use_whatever_the_setting_is() -> None:
    conf = {"loadManagerClassName": "x.ExtensibleLoadManagerImpl"}
    case = {"conf": conf, "rounds": [_brokers(90, 10, 50)], "place": [NEW]}
    assert answer_places(case) == [{NEW: ["10.0.0.1:8080"]}]


def test_a_cluster_without_brokers() -> None:
    for cls in MODULAR:
        assert answer_places({"rounds": [{}], "place": [NEW], "cls": cls}) == [{NEW: []}]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({"rounds": [], "place": ["x"]}, "is not a bundle"),
        ({"rounds": [{"b": {"cpu": [1]}}], "place": []}, "rounds.0.b.cpu: "),
        ({"rounds": [], "place": [], "cls": "Best"}, "no placement 'Best'"),
        ({"rounds": [], "place": [], "plase": []}, "plase: unknown key"),
        ({"rounds": [], "place": [], "conf": {"x": 1}}, "no setting 'x'"),
    ],
)
def test_bad_cases_are_refused(case: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        answer_places(case)


def test_a_bad_expression_is_refused() -> None:
    policy = {"namespaces": ["("], "primary": ["b1"]}
    case = {"rounds": [], "place": [], "policies": {"isolation": {"p": policy}}}
    with pytest.raises(InputError, match="not a regular expression"):
        answer_places(case)


def _split_case(**conf: Any) -> dict[str, Any]:
    return {"conf": conf, "rounds": [_brokers(1)] * 5, "topics": {OLD: 2}}


def test_the_limit_of_bytes_overflows() -> None:
    assert (
        answer_splits(_split_case(loadBalancerNamespaceBundleMaxBandwidthMbytes=2047)) == [{}] * 5
    )
    split = {OLD: [0x40000000]}
    case = _split_case(loadBalancerNamespaceBundleMaxBandwidthMbytes=2048)
    assert answer_splits(case) == [split] * 5


def test_the_extensible_trigger_needs_four_hits() -> None:
    case = _split_case(loadBalancerNamespaceBundleMaxMsgRate=100)
    found = answer_splits(case | {"cls": "DefaultNamespaceBundleSplitStrategyImpl"})
    assert found == [{}, {}, {}, {OLD: [0x40000000]}, {}]


def test_triggers_and_algorithms_have_names() -> None:
    with pytest.raises(InputError, match="split trigger"):
        answer_splits(_split_case() | {"cls": "x"})
    with pytest.raises(InputError, match="split algorithm"):
        answer_splits({"bundle": OLD, "cls": "x"})
    with pytest.raises(InputError, match="positions can't be empty"):
        answer_splits({"bundle": OLD, "cls": "specified_positions_divide"})


TOPICS = st.lists(st.text("abc/é-", min_size=1, max_size=8), unique=True, max_size=12)


@given(TOPICS)
def test_as_many_topics_on_both_sides(names: list[str]) -> None:
    found = topic_count_equally_divide(names)
    if len(names) < 2:
        assert not found
        return
    hashes = sorted(map(topic_hash, names))
    assert hashes[len(names) // 2 - 1] <= found[0] <= hashes[len(names) // 2]


@given(st.dictionaries(st.text(min_size=1), st.floats(0, 1e6), max_size=12))
def test_no_part_is_too_big_unless_one_topic_is(rates: dict[str, float]) -> None:
    settings = StockSettings()
    cuts = flow_or_qps_equally_divide(
        {name: TopicRates(0.0, rate) for name, rate in rates.items()}, settings
    )
    assert list(cuts) == sorted(cuts)
    edges = [0, *cuts, 2**32]
    for low, high in pairwise(edges) if cuts else ():
        inside = [rate for name, rate in rates.items() if low <= topic_hash(name) < high]
        assert sum(inside) <= 30_000 * (1 + 1e-9) or sum(rate > 0 for rate in inside) == 1


@given(st.lists(st.integers(0, 300)))
def test_specified_positions_are_inside(positions: list[int]) -> None:
    if positions:
        found = specified_positions_divide(BundleName("a/b", 100, 200), 2, positions)
        assert list(found) == sorted(at for at in positions if 100 < at < 200)
