"""The leader around the stock strategies: averages, the grace period, cases; Pulsar's settings."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotabalance.planning.cases import parse_balance_case
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.stock.averages import BundleAverages
from quotabalance.stock.leader import Leader, stock_case
from quotabalance.stock.stock_settings import (
    DECLARED,
    StockSettings,
    java_type,
    settings_table,
    stock_setting_of_text,
    stock_settings,
)
from quotaplane.errors import InputError
from tests.unit.repo.pages import ROOT

NAMES = ("t/a/0x00000000_0xffffffff", "t/b/0x00000000_0xffffffff", "t/c/0x00000000_0xffffffff")


def load_of(sizes: dict[str, float]) -> ClusterLoad:
    return ClusterLoad(
        ("b1",),
        np.zeros((1, 5)),
        np.zeros((1, 5)),
        tuple(sizes),
        np.zeros(len(sizes), np.int64),
        np.array([[size, 0, 0, 0] for size in sizes.values()], np.float64).reshape(-1, 4),
    )


@given(
    st.lists(st.dictionaries(st.sampled_from(NAMES), st.floats(0, 1e12), max_size=3), max_size=30)
)
def test_averages_are_those_of_one_bundle_after_the_other(rounds: list[dict[str, float]]) -> None:
    averages = BundleAverages()
    model: dict[str, tuple[int, float, float]] = {}
    for sizes in rounds:
        got = averages.update(load_of(sizes))
        now = {}
        for name, size in sizes.items():
            count, short, long = model.get(name, (0, 50000.0, 50000.0))
            few, many = min(count + 1, 10), min(count + 1, 1000)
            now[name] = (
                many,
                ((few - 1) * short + size) / few,
                ((many - 1) * long + size) / many,
            )
        model = now
        assert got.samples.tolist() == [count for count, _, _ in model.values()]
        assert got.short_term[:, 0].tolist() == [short for _, short, _ in model.values()]
        assert got.long_term[:, 0].tolist() == [long for _, _, long in model.values()]


def test_counts_of_samples_end_at_10_and_1000() -> None:
    averages = BundleAverages()
    for _ in range(1100):
        averages.update(load_of({NAMES[0]: 1000.0}))
    last = averages.update(load_of({NAMES[0]: 0.0}))
    assert last.samples.tolist() == [1000]
    assert last.short_term[0, 0] == pytest.approx(900)
    assert last.long_term[0, 0] == pytest.approx(999)


def test_a_bundle_counts_as_recent_until_the_grace_period_is_over() -> None:
    leader = Leader(StockSettings(loadBalancerSheddingGracePeriodMinutes=1), [NAMES[2]])
    load = load_of(dict.fromkeys(NAMES, 1.0))
    leader.note_unloaded([NAMES[0]], 0.0)
    assert leader.round(load, 60.0).recent.tolist() == [True, False, True]
    assert leader.round(load, 60.1).recent.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ([], "case: must be an object, not a list"),
        ({"conf": {}}, "case: rounds: is required"),
        ({"rounds": [3]}, r"case: rounds.0: must be an object, not a number"),
        ({"rounds": [], "recent": "x"}, "recent: must be a list, not a string"),
        ({"rounds": [], "conf": {"maxUnload": 1}}, "no setting 'maxUnload'"),
        ({"rounds": [{}, {"b1": {"disk": [1, 2]}}]}, "rounds.1.b1.disk: unknown key"),
        ({"rounds": [{"b1": {"cpu": [1]}}]}, "rounds.0.b1.cpu: "),
        ({"rounds": [{"b1": {"cpu": [True, 1]}}]}, "rounds.0.b1.cpu.0: must be a number"),
        ({"rounds": [{"b1": {"cpu": [10**400, 1]}}]}, "rounds.0.b1.cpu.0: "),
        ({"rounds": [{"b1": {"cpu": [float("nan"), 1]}}]}, "rounds.0.b1.cpu.0: must be a finite"),
        ({"rounds": [{"b1": {"bundles": {"x": [1, 2, 3]}}}]}, "rounds.0.b1.bundles.x: "),
        ({"rounds": [{"b1": {"bundles": {"x": [1, 2, 3, -4]}}}]}, "x.3: must be at least 0"),
        (
            {"rounds": [{b: {"bundles": {"x": [0, 0, 0, 0]}} for b in ("b1", "b2")}]},
            "rounds.0: bundle x: both b1 and b2 report it",
        ),
    ],
)
def test_cases_that_are_wrong_are_refused_by_name(case: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        stock_case(parse_balance_case(case, "case"))


PAGE = ROOT / "docs/explain/balance-stock.md"


def test_the_table_in_the_docs_is_that_of_the_settings() -> None:
    assert settings_table() in PAGE.read_text()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("loadBalancerEnabled", 1),
        ("loadBalancerBrokerMaxTopics", True),
        ("loadBalancerBrokerMaxTopics", 5.0),
        ("loadBalancerBrokerMaxTopics", 2**31),
        ("loadBalancerBrokerMaxTopics", "5"),
        ("loadBalanceSheddingDelayInSeconds", 2**63),
        ("maxUnloadPercentage", float("nan")),
        ("maxUnloadPercentage", 10**400),
        ("maxUnloadPercentage", None),
        ("supportedNamespaceBundleSplitAlgorithms", "range_equally_divide"),
        ("defaultNamespaceBundleSplitAlgorithm", 3),
    ],
)
def test_values_of_a_wrong_type_are_refused(name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"conf: {name} is "):
        stock_settings({name: value})


def test_an_unknown_name_is_refused_with_the_closest_one() -> None:
    with pytest.raises(InputError, match="mean loadBalancerSheddingEnabled"):
        stock_settings({"loadbalancerSheddingEnable": True})


@pytest.mark.parametrize(
    ("current", "deprecated", "holds"),
    [(1.0, 1.0, 1.0), (1.0, 0.4, 0.4), (0.3, 0.4, 0.3), (0.3, 1.0, 0.3), (1.0, 0.0, 0.0)],
)
def test_a_deprecated_weight_holds_unless_the_current_one_is_set(
    current: float, deprecated: float, holds: float
) -> None:
    settings = stock_settings(
        {
            "loadBalancerBandwidthInResourceWeight": current,
            "loadBalancerBandwithInResourceWeight": deprecated,
            "loadBalancerBandwidthOutResourceWeight": current,
            "loadBalancerBandwithOutResourceWeight": deprecated,
        }
    )
    assert (settings.bandwidth_in_weight, settings.bandwidth_out_weight) == (holds, holds)


@pytest.mark.parametrize("name", DECLARED)
def test_each_default_is_read_back_from_its_text(name: str) -> None:
    default = DECLARED[name].default
    text = ",".join(default) if isinstance(default, tuple) else str(default)
    assert stock_setting_of_text(name, "" if default is None else text) == default


def test_texts_that_are_no_value_are_refused() -> None:
    for name, text in (
        ("loadBalancerEnabled", "yes"),
        ("loadBalancerBrokerMaxTopics", "1e3"),
        ("maxUnloadPercentage", "half"),
    ):
        with pytest.raises(InputError, match=name):
            stock_setting_of_text(name, text)


def test_types_are_those_of_the_defaults() -> None:
    assert re.fullmatch("[a-zA-Z<>]+", "".join(java_type(setting) for setting in DECLARED.values()))
    assert StockSettings() == stock_settings({})
