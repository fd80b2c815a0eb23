"""Pulsar's shedders: skips, reasons, what holds for all; tests/jvm compares what they decide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotabalance.planning.cases import parse_balance_case
from quotabalance.planning.decisions import LABELS, Decisions
from quotabalance.stock.leader import Leader, StockCase, decide_rounds, stock_case
from quotabalance.stock.leader_maps import is_never_shed
from quotabalance.stock.remembered_targets import RememberedTargets
from quotabalance.stock.shedders import SHEDDERS, new_shedder
from quotaplane.errors import InputError
from tests.jvm.balance_cases import RESOURCES, Case, random_case


def cluster(usage: dict[str, float], bundles: dict[str, list[float]]) -> dict[str, Any]:
    """Brokers with these usages in per cent, and bundles with these bytes per second."""
    return {
        broker: {
            **{resource: [percent, 100] for resource in RESOURCES},
            "bundles": {
                f"t/{broker}/0x{at:08x}_0x{at + 1:08x}": [size, 0.0, size / 1000, 0.0]
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


def test_threshold_skips_what_is_too_little_to_move() -> None:
    load = cluster({"b1": 90, "b2": 10}, {"b1": [1e6, 1e6], "b2": []})
    (answer,) = decide("ThresholdShedder", [load])
    assert labels(answer) == [("b1", "BelowMinimum"), ("", "Balanced")]


def test_uniforms_rate_rule_wins_even_when_it_then_moves_nothing() -> None:
    load = cluster({"b1": 0, "b2": 0}, {"b1": [1e6] * 4, "b2": [1e3]})
    (answer,) = decide("UniformLoadShedder", [load], minUnloadMessageThroughput=1)
    assert labels(answer) == [("b1", "BelowMinimum")]
    assert "messages/s" in answer.skips[0].reason


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
