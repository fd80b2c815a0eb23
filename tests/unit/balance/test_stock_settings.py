"""Pulsar's settings: checks, deprecated spellings, the table in the docs."""

from __future__ import annotations

import re

import pytest

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
