"""Pulsar's own shedders and ours on the same random clusters: the same moves in the same order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from quotabalance.planning.cases import parse_balance_case
from quotabalance.stock.average_shedder import AvgShedder
from quotabalance.stock.interface import StockRound
from quotabalance.stock.leader import decide_rounds, stock_case
from quotabalance.stock.placements import AvgPlacement, BundleAsked, MessageRates
from quotabalance.stock.shedders import new_shedder
from quotabalance.stock.stock_settings import DECLARED, StockSettings, java_type
from tests.jvm.balance_cases import RESOURCES, Case, random_case
from tests.jvm.pulsar_classes import ask_pulsar

pytestmark = pytest.mark.nightly

CLASSES = ("OverloadShedder", "ThresholdShedder", "UniformLoadShedder", "AvgShedder")
OTHER_CATEGORIES = {
    "defaultNumberOfNamespaceBundles",
    "failureDomainsEnabled",
    "preferLaterVersions",
    "statsUpdateFrequencyInSecs",
}


def our_answers(cls: str, case: Case) -> list[dict[str, Any]]:
    """Moves of each round in order; AvgShedder's targets of these, and all that it remembers."""
    parsed = stock_case(parse_balance_case(case, "case"))
    shedder = new_shedder(cls, parsed.settings)
    answers = []
    for round_, decisions in decide_rounds(parsed, shedder):
        moves = [[move.source, move.bundle] for move in decisions.moves]
        targets, planned = {}, {}
        if isinstance(shedder, AvgShedder):
            names = round_.load.bundles
            place = {name: at for at, name in enumerate(names)}
            for _, bundle in moves:
                targets[bundle] = _target(shedder, round_, place[bundle])
            known = ((name, shedder.targets.get(round_, at)) for at, name in enumerate(names))
            planned = {name: broker for name, broker in known if broker}
        answers.append({"moves": moves, "targets": targets, "planned": planned})
    return answers


def _target(shedder: AvgShedder, round_: StockRound, bundle: int) -> str:
    """The broker that the shedder's placement gives a bundle, if all of them are candidates."""
    brokers = round_.load.brokers
    placement = AvgPlacement(StockSettings(), shedder.targets)
    placement.begin(round_)
    no_rates = MessageRates(np.zeros(0), lambda _: 0.0)
    (target,) = placement.offer(
        np.arange(len(brokers)), no_rates, BundleAsked(round_, bundle)
    ).tolist()
    return brokers[target]


def moves_if_equal(cases: Sequence[Case]) -> Counter[str]:
    """Compare the answers of one JVM with ours; the number of moves of each class."""
    answers = ask_pulsar("PulsarShedders", [{**case, "classes": CLASSES} for case in cases])
    moves: Counter[str] = Counter()
    for number, (case, answer) in enumerate(zip(cases, answers, strict=True)):
        for cls in CLASSES:
            rounds = zip(our_answers(cls, case), answer[cls], strict=True)
            for turn, (ours, theirs) in enumerate(rounds):
                assert ours == theirs, f"{cls}, case {number}, round {turn}"
                moves[cls] += len(theirs["moves"])
    return moves


def test_shedders_decide_as_pulsars() -> None:
    random, moves = np.random.default_rng(2), Counter[str]()
    for _ in range(30):
        moves += moves_if_equal([random_case(random) for _ in range(100)])
    # The clusters are such that all of them have something to do.
    assert all(moves[cls] > 3_000 for cls in CLASSES), moves


def test_ties_in_large_maps_are_in_pulsars_order() -> None:
    """Bundles with equal loads, and a table that grew nine times while it was filled."""
    random = np.random.default_rng(1)
    rates = random.integers(1, 4, (6000, 4)) * 1e6
    names = [
        f"t{at % 7}/ns{at % 91}/0x{at * 65537:08x}_0x{at * 65537 + 1:08x}" for at in range(6000)
    ]
    brokers = [f"b{at}:8080" for at in range(30)]
    owner = random.integers(0, 30 * 29, 6000) % (1 + random.integers(0, 30, 6000))
    rounds = []
    for first in (0, 2500, 1000):
        bundles: dict[str, dict[str, list[float]]] = {name: {} for name in brokers}
        for at in range(first, 6000 - first // 5):
            bundles[brokers[int(owner[at])]][names[at]] = rates[at].tolist()
        rounds.append(
            {
                name: {**{key: [90 - 2 * at, 100] for key in RESOURCES}, "bundles": bundles[name]}
                for at, name in enumerate(brokers)
            }
        )
    conf = {
        "loadBalancerAvgShedderHitCountHighThreshold": 1,
        "loadBalancerBrokerOverloadedThresholdPercentage": 60,
        "maxUnloadPercentage": 0.9,
    }
    moves = moves_if_equal([{"conf": conf, "rounds": rounds, "recent": []}])
    assert all(moves[cls] > 50 for cls in CLASSES), moves


def test_settings_are_pulsars() -> None:
    (stock,) = ask_pulsar("PulsarShedders", [{"settings": True}])
    theirs = {name for name, (category, _, _) in stock.items() if category == "Load Balancer"}
    assert theirs == DECLARED.keys() - OTHER_CATEGORIES
    for name, setting in DECLARED.items():
        _, java, default = stock[name]
        assert java_type(setting).split("<")[0] == java, name
        if java == "List":
            shown = f"[{', '.join(setting.default)}]"
        elif java == "Optional":
            shown = ""
        else:
            shown = str(setting.default)
        assert (shown.lower() if java == "boolean" else shown) == default, name
