"""Pulsar's shedders: what surprises in each, with numbers; and what holds for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotabalance.planning.cases import parse_balance_case
from quotabalance.planning.decisions import LABELS, Decisions
from quotabalance.stock.average_shedder import AvgShedder
from quotabalance.stock.leader import Leader, StockCase, decide_rounds, stock_case
from quotabalance.stock.leader_maps import is_never_shed
from quotabalance.stock.placements import AvgPlacement, BundleAsked, MessageRates
from quotabalance.stock.remembered_targets import RememberedTargets
from quotabalance.stock.shedders import SHEDDERS, new_shedder
from quotaplane.errors import InputError
from tests.jvm.balance_cases import RESOURCES, Case, random_case

GB = 1e9


def cluster(usage: dict[str, float], bundles: dict[str, list[float]]) -> dict[str, Any]:
    """Brokers with these usages in per cent, and bundles with these bytes per second."""
    return {
        broker: {
            **{resource: [percent, 100] for resource in RESOURCES},
            "bundles": {
                f"t/{broker}/0x{at:08x}_0xffffffff": [size, 0.0, size / 1000, 0.0]
                for at, size in enumerate(bundles[broker])
            },
        }
        for broker, percent in usage.items()
    }


def parse_case(raw: object) -> StockCase:
    return stock_case(parse_balance_case(raw, "case"))


def decide(cls: str, rounds: list[Any], **conf: object) -> list[Decisions]:
    case = parse_case({"conf": conf, "rounds": rounds})
    return [answer for _, answer in decide_rounds(case, new_shedder(cls, case.settings))]


def moved(decisions: Decisions) -> list[int]:
    """Numbers of the bundles on their brokers, in order."""
    return [int(move.bundle.split("0x")[1][:8], 16) for move in decisions.moves]


def labels(decisions: Decisions) -> list[tuple[str, str]]:
    return [(skip.subject, skip.label) for skip in decisions.skips]


def test_overload_begins_at_the_threshold_itself_and_moves_at_least_one() -> None:
    load = cluster({"b1": 85, "b2": 84}, {"b1": [10, 60, 30], "b2": [9, 9]})
    (answer,) = decide("OverloadShedder", [load])
    # 100 bytes/s * (0.85 - 0.85 + 0.05) = 5: the biggest bundle is enough.
    assert moved(answer) == [1]
    assert labels(answer) == [("", "Balanced")]
    assert "85.0%" in answer.moves[0].reason


def test_overload_leaves_a_sole_bundle() -> None:
    load = cluster({"b1": 99, "b2": 95}, {"b1": [50], "b2": []})
    (answer,) = decide("OverloadShedder", [load])
    assert not answer.moves
    assert sorted(labels(answer)) == [("b1", "NoBundles"), ("b2", "NoBundles")]


def test_threshold_smooths_a_second_time_in_a_round_with_the_lower_boundary() -> None:
    """0.9 each time: 30 -> 30, then round 2 with 90: 36, and 41.4 after the second time."""
    low, size = [50e6] * 4, {"b1": [50e6] * 4, "b2": [50e6] * 4, "b3": [50e6] * 4}
    rounds = [
        cluster({"b1": 30, "b2": 30, "b3": 30}, size),
        cluster({"b1": 90, "b2": 30, "b3": 0}, {"b1": low, "b2": low, "b3": low}),
    ]
    once = decide("ThresholdShedder", rounds, loadBalancerBrokerThresholdShedderPercentage=8)
    assert not once[1].moves
    twice = decide(
        "ThresholdShedder",
        rounds,
        loadBalancerBrokerThresholdShedderPercentage=8,
        lowerBoundarySheddingEnabled=True,
        loadBalancerBundleUnloadMinThroughputThreshold=1.0,
    )
    # b3: 27 -> 24.3; mean (41.4 + 30 + 24.3) / 3 = 31.9; 24.3 is not below 23.9.
    assert labels(twice[1])[-1] == ("", "Balanced")
    assert "mean 31.9%" in twice[1].skips[-1].reason
    lower = decide(
        "ThresholdShedder",
        rounds,
        loadBalancerBrokerThresholdShedderPercentage=7,
        lowerBoundarySheddingEnabled=True,
        loadBalancerBundleUnloadMinThroughputThreshold=1.0,
    )
    # Below 24.9 now: b1 loses 200 MB/s * 0.07 * 0.5 = 7 MB/s: one bundle.
    assert [(move.source, move.label) for move in lower[1].moves] == [("b1", "Underloaded")]


def test_threshold_forgets_brokers_that_are_gone() -> None:
    size = {"b1": [50e6] * 4, "b2": [50e6] * 4}
    with_both = cluster({"b1": 0, "b2": 80}, size)
    alone = cluster({"b2": 80}, size)
    hot = cluster({"b1": 95, "b2": 80}, size)
    conf = {"loadBalancerBrokerThresholdShedderPercentage": 5}
    kept = decide("ThresholdShedder", [with_both, hot], **conf)
    forgot = decide("ThresholdShedder", [with_both, alone, hot], **conf)
    assert {move.source for move in kept[1].moves} == {"b2"}
    assert {move.source for move in forgot[2].moves} == {"b1"}


def test_threshold_skips_what_is_too_little_to_move() -> None:
    load = cluster({"b1": 90, "b2": 10}, {"b1": [1e6, 1e6], "b2": []})
    (answer,) = decide("ThresholdShedder", [load])
    assert labels(answer) == [("b1", "BelowMinimum"), ("", "Balanced")]


def test_uniform_sheds_nothing_if_the_gap_is_too_wide_for_32_bits() -> None:
    """11 GB/s * 0.2 is 2^31 - 1 after saturation; 1000 more is negative, so no bundle fits."""
    conf = {"loadBalancerMsgRateDifferenceShedderThreshold": 0.0}
    some = decide(
        "UniformLoadShedder",
        [cluster({"b1": 0, "b2": 0}, {"b1": [1 * GB] * 10, "b2": [1.0]})],
        **conf,
    )
    assert len(some[0].moves) == 2
    none = decide(
        "UniformLoadShedder",
        [cluster({"b1": 0, "b2": 0}, {"b1": [1 * GB] * 11, "b2": [1.0]})],
        **conf,
    )
    assert not none[0].moves
    assert labels(none[0]) == [("b1", "NoBundles")]


def test_uniform_takes_the_least_throughput_as_at_most_2_to_the_31() -> None:
    """9.9 GB/s against 3 GB/s is a ratio of 3.3, but of 4.6 with 2^31 - 1."""
    load = cluster({"b1": 0, "b2": 0}, {"b1": [1.1 * GB] * 9, "b2": [1 * GB] * 3})
    (answer,) = decide(
        "UniformLoadShedder", [load], loadBalancerMsgRateDifferenceShedderThreshold=0.0
    )
    assert len(answer.moves) == 1
    assert "4.61 times the least" in answer.moves[0].reason


def test_uniforms_rate_rule_wins_even_when_it_then_moves_nothing() -> None:
    load = cluster({"b1": 0, "b2": 0}, {"b1": [1e6] * 4, "b2": [1e3]})
    (answer,) = decide("UniformLoadShedder", [load], minUnloadMessageThroughput=1)
    assert labels(answer) == [("b1", "BelowMinimum")]
    assert "messages/s" in answer.skips[0].reason


def test_avg_acts_at_the_hit_count_itself_and_remembers_where_to() -> None:
    load = cluster({"b1": 90, "b2": 50, "b3": 10}, {"b1": [9e7] * 20, "b2": [1e6], "b3": []})
    case = parse_case({"rounds": [load] * 3})
    shedder = AvgShedder(case.settings)
    answers = list(decide_rounds(case, shedder))
    assert labels(answers[0][1]) == [("b1", "HitCount")]
    assert len(answers[1][1].moves) == 4  # 1.8 GB/s * 0.2 = 360 MB/s
    assert not answers[2][1].moves


def offered(placement: AvgPlacement, brokers: list[int], bundle: BundleAsked) -> list[int]:
    no_rates = MessageRates(np.zeros(0), lambda _: 0.0)
    return placement.offer(np.array(brokers), no_rates, bundle).tolist()


def test_avg_forgets_targets_at_the_next_sample_and_mixes_equal_loads_up() -> None:
    bundles: dict[str, list[float]] = {"b1": [9e7] * 20, "b2": [], "b3": [], "b4": []}
    load = cluster({"b1": 90, "b2": 10, "b3": 50, "b4": 50}, bundles)
    calm = cluster({"b1": 10, "b2": 10, "b3": 10, "b4": 10}, bundles)
    case = parse_case(
        {"conf": {"loadBalancerAvgShedderHitCountHighThreshold": 1}, "rounds": [load, calm]}
    )
    shedder = AvgShedder(case.settings)
    rounds = decide_rounds(case, shedder)
    round_, first = next(rounds)
    assert len(first.moves) == 4
    # All twenty have the same load: one target for all of them.
    assert {shedder.targets.get(round_, at) for at in range(20)} == {"b2"}
    placement = AvgPlacement(case.settings, shedder.targets)
    placement.begin(round_)
    assert offered(placement, [0, 1], BundleAsked(round_, 19)) == [1]
    # b2 is no candidate: any of the others, and again the one that was drawn.
    assert offered(placement, [0, 2, 3], BundleAsked(round_, 5)) == [0, 2, 3]
    placement.chosen(3, BundleAsked(round_, 5))
    assert offered(placement, [0, 2, 3], BundleAsked(round_, 5)) == [3]
    round_, _ = next(rounds)
    assert not any(shedder.targets.get(round_, at) for at in range(20))


@pytest.mark.parametrize(
    ("bundle", "never"),
    [
        ("pulsar/b1:8080/0x00000000_0xffffffff", True),
        ("pulsar/cluster/b1:8080/0x00000000_0xffffffff", True),
        ("sla-monitor/cluster/b1:8080/0x00000000_0xffffffff", True),
        ("sla-monitor/b1:8080/0x00000000_0xffffffff", False),
        ("pulsar/system/0x00000000_0xffffffff", False),
        ("tenant/b1:8080/0x00000000_0xffffffff", False),
    ],
)
def test_bundles_of_heartbeats_are_never_shed(bundle: str, never: bool) -> None:
    assert is_never_shed(bundle) == never


@given(st.integers(0, 2**32), st.sampled_from(sorted(SHEDDERS)))
def test_decisions_are_about_what_there_is_and_say_why(seed: int, cls: str) -> None:
    case = random_case(np.random.default_rng(seed), rounds=3, brokers=8, bundles=40)
    if cls == "TransferShedder":
        return
    for round_, decisions in decide_case(cls, case):
        load = round_.load
        owner = dict(zip(load.bundles, (load.brokers[at] for at in load.owner), strict=True))
        names = [move.bundle for move in decisions.moves]
        assert len(set(names)) == len(names)
        assert all(owner[move.bundle] == move.source for move in decisions.moves)
        assert not set(names) & set(case["recent"])
        assert not any(map(is_never_shed, names))
        assert decisions.moves or decisions.skips
        for said in (*decisions.moves, *decisions.skips):
            assert said.label in LABELS
            assert said.reason
    again = [answer for _, answer in decide_case(cls, case)]
    assert again == [answer for _, answer in decide_case(cls, case)]


def decide_case(cls: str, case: Case) -> list[Any]:
    parsed = parse_case(case)
    return list(decide_rounds(parsed, new_shedder(cls, parsed.settings)))


def test_clusters_without_brokers_or_bundles_are_answered() -> None:
    for cls in SHEDDERS.keys() - {"TransferShedder"}:
        empty = cluster({"b1": 99}, {"b1": []})
        for answer in decide(cls, [{}, empty, {}]):
            assert not answer.moves
            assert answer.skips or cls != "UniformLoadShedder"


def test_an_unknown_shedder_is_refused() -> None:
    with pytest.raises(InputError, match="no shedder 'DeviationShedder'; expected one of Over"):
        new_shedder("DeviationShedder", parse_case({"rounds": []}).settings)


def test_threshold_overshoots_even_with_the_best_placement() -> None:
    """docs/explain/balance-stock.md has these numbers."""
    share, case = 900, parse_case({"rounds": []})
    shedder, leader = new_shedder("ThresholdShedder", case.settings), Leader(case.settings)
    path = []
    for turn in range(6):
        sizes = {"b1": [1e6] * share, "b2": [1e6] * (1000 - share)}
        usage = {"b1": share / 10, "b2": 100 - share / 10}
        round_ = leader.round(
            parse_case({"rounds": [cluster(usage, sizes)]}).rounds[0], turn * 60.0
        )
        share -= len(shedder.shed(round_).moves)
        path.append(round(share / 10))
    assert path[:3] == [58, 40, 29]
    assert path[-1] == 17


@pytest.mark.parametrize(
    ("first", "found"), [(66981430.48670097, True), (66981430.0, False)], ids=["same", "other"]
)
def test_avg_finds_a_target_again_where_javas_hashes_are_equal(first: float, found: bool) -> None:
    """From Pulsar's own class: with the 11th sample the count grows, and the short average loses
    one unit in its last place; both together give the same hash.
    """
    rates = [first, 56576323.6792893, 162.12993659171295, 0.0]
    case = parse_case({"rounds": [{"b1": {"bundles": {"t/n/0x00000000_0xffffffff": rates}}}] * 11})
    leader, targets = Leader(case.settings), RememberedTargets()
    *_, tenth, eleventh = [leader.round(load, 0.0) for load in case.rounds]
    targets.put(tenth, 0, "b2")
    assert targets.get(tenth, 0) == "b2"
    assert targets.get(eleventh, 0) == ("b2" if found else None)
