"""Pulsar's own shedders and ours on the same random clusters: the same moves in the same order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from quotabalance.stock.stock_settings import DECLARED, java_type
from tests.jvm.balance_cases import Case, random_case
from tests.jvm.pulsar_shedders import ask_pulsar, compare, compare_answers

pytestmark = pytest.mark.nightly

CLASSES = ("OverloadShedder", "ThresholdShedder", "UniformLoadShedder", "AvgShedder")
OTHER_CATEGORIES = {
    "defaultNumberOfNamespaceBundles",
    "failureDomainsEnabled",
    "preferLaterVersions",
    "statsUpdateFrequencyInSecs",
}


class Asked(NamedTuple):
    """Cases and answers of one JVM for all tests of this file."""

    cases: Sequence[Case]
    answers: Sequence[Any]
    settings: Mapping[str, Sequence[str]]


@pytest.fixture(scope="module")
def asked() -> Asked:
    random = np.random.default_rng(0)
    cases = [random_case(random, brokers=12, bundles=60) for _ in range(100)]
    cases.append(many_ties())
    lines = [{**case, "classes": CLASSES} for case in cases]
    *answers, settings = ask_pulsar("PulsarShedders.java", [*lines, {"settings": True}])
    return Asked(cases, answers, settings)


def test_shedders_decide_as_pulsars(asked: Asked) -> None:
    compared = compare_answers(CLASSES, asked.cases[:-1], asked.answers[:-1])
    assert not compared.differences, "\n".join(compared.differences[:3])
    # The clusters are such that all of them have something to do.
    assert all(compared.moves[cls] > 300 for cls in CLASSES), compared.moves


def test_ties_in_large_maps_are_in_pulsars_order(asked: Asked) -> None:
    compared = compare_answers(CLASSES, asked.cases[-1:], asked.answers[-1:])
    assert not compared.differences, compared.differences[0][:3000]
    assert all(compared.moves[cls] > 50 for cls in CLASSES), compared.moves


def many_ties() -> Case:
    """Bundles with equal loads, and a table that grew nine times while it was filled."""
    random = np.random.default_rng(1)
    rates = random.integers(1, 4, (6000, 4)) * 1e6
    names = [f"t{at % 7}/ns{at % 91}/0x{at * 65537 % 2**32:08x}_0xffffffff" for at in range(6000)]
    brokers = [f"b{at}:8080" for at in range(30)]
    owner = random.integers(0, 30 * 29, 6000) % (1 + random.integers(0, 30, 6000))
    rounds = []
    for first in (0, 2500, 1000):
        bundles: dict[str, dict[str, list[float]]] = {name: {} for name in brokers}
        for at in range(first, 6000 - first // 5):
            bundles[brokers[int(owner[at])]][names[at]] = rates[at].tolist()
        rounds.append(
            {
                name: {
                    **{
                        resource: [90 - 2 * at, 100]
                        for resource in (
                            *("cpu", "memory", "directMemory"),
                            *("bandwidthIn", "bandwidthOut"),
                        )
                    },
                    "bundles": bundles[name],
                }
                for at, name in enumerate(brokers)
            }
        )
    conf = {
        "loadBalancerAvgShedderHitCountHighThreshold": 1,
        "loadBalancerBrokerOverloadedThresholdPercentage": 60,
        "maxUnloadPercentage": 0.9,
    }
    return {"conf": conf, "rounds": rounds, "recent": []}


def test_settings_are_pulsars(asked: Asked) -> None:
    stock = asked.settings
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


def test_shedders_decide_as_pulsars_for_thousands_of_clusters() -> None:
    random = np.random.default_rng(2)
    for _ in range(30):
        compared = compare(CLASSES, [random_case(random) for _ in range(100)])
        assert not compared.differences, "\n".join(compared.differences[:3])
