"""Settings of the balance job: defaults, mistakes, and Pulsar's broker.conf."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import yaml

from quotabalance.job.program import balance_program
from quotabalance.settings import Balance
from quotabalance.strategy_settings import notices_of
from quotaplane.errors import ConfigError
from quotaplane.settings import load_settings, parse_settings
from tests.unit.repo.pages import ROOT

EPOCH = 7


def test_reports_that_are_gone_before_the_next_round_are_refused() -> None:
    assert balance_program(Balance(round_interval_s=3599.0), EPOCH)
    with pytest.raises(ConfigError, match=r"balance.round_interval_s: 3600 s is too long"):
        balance_program(Balance(round_interval_s=3600.0), EPOCH)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"options": {"start": 1}}, "balance.options.start: unknown key"),
        ({"options": {"start_above": -1}}, "balance.options.start_above: Input should be greater"),
        ({"policies": {"isolation": [{}]}}, "balance.policies.isolation.0.namespaces: Field"),
    ],
)
def test_wrong_settings_are_found_before_anything_starts(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        balance_program(Balance(**changes), EPOCH)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"loads_topic": "reports"}, "balance.loads_topic: the topic 'reports' is already used"),
        ({"plans_topic": "load-reports"}, "already used as balance.loads_topic"),
        ({"plans_topic": ".."}, "balance.plans_topic: '..' can't be the name of a topic"),
        ({"mode": "yes"}, "balance.mode: must be 'propose' or 'auto'"),
    ],
)
def test_topics_and_times_must_fit_together(section: dict[str, Any], message: str) -> None:
    raw = {"transport": {"kind": "delta", "path": "t"}, "history": {"path": "h"}, "checkpoint": "c"}
    with pytest.raises(ConfigError) as error:
        parse_settings(raw | {"balance": section})
    assert message in str(error.value)


def test_the_settings_file_shows_the_defaults() -> None:
    settings = load_settings(ROOT / "conf" / "balance.yaml")
    assert settings.balance == Balance()
    shown = yaml.safe_load((ROOT / "conf" / "balance.yaml").read_text())
    assert shown["balance"].keys() == Balance.model_fields.keys()
    balance_program(settings.balance, EPOCH)


@pytest.mark.parametrize(
    ("changes", "text", "error"),
    [
        (
            {"broker_conf": "/nowhere/broker.conf"},
            None,
            "/nowhere/broker.conf: can't be read: No such",
        ),
        ({}, "minUnloadMessage=ten", r"broker.conf line 1: minUnloadMessage is 'ten'"),
        (
            {"strategy": "ThresholdShedder"},
            "loadBalancerLoadPlacementStrategy=Best",
            r"balance.broker_conf: Pulsar has no placement 'Best'",
        ),
        ({"options": {"max_bundle_topics": 0}}, "", "balance.options.max_bundle_topics: Input"),
    ],
)
def test_a_wrong_broker_conf_is_named_in_one_line(
    tmp_path: Path, changes: dict[str, Any], text: str | None, error: str
) -> None:
    (tmp_path / "broker.conf").write_text(text or "")
    given = {"broker_conf": str(tmp_path / "broker.conf"), **changes}
    with pytest.raises(ConfigError, match=error):
        balance_program(Balance(**given), EPOCH)


def test_limits_of_a_broker_conf_are_options_unless_these_are_given(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        "loadBalancerNamespaceBundleMaxTopics=100\nloadBalancerNamespaceMaximumBundles=512\n"
        "maxUnloadPercentage=0.5\nloadBalancerNamespaceBundleMaxSessions=-1\n"
    )
    balance = Balance(broker_conf=str(file), options={"max_bundle_topics": 7})
    options = balance_program(balance, EPOCH).options
    assert (options.max_bundle_topics, options.max_bundles_per_namespace) == (7, 512)
    assert options.max_bundle_sessions == 0
    (line,) = notices_of(balance)
    assert line == f"{file}: without effect on quotaplane here: maxUnloadPercentage"


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(
        ValueError, match="there is no such strategy; expected quotaplane, Overload"
    ):
        Balance(strategy="DeviationShedder")


def test_the_program_that_goes_to_executors_has_no_secret() -> None:
    signing = {"keys": {"a": "0123456789abcdef" * 2}, "sign_with": "a"}
    balance = Balance.model_validate({"signing": signing})
    assert balance.signing is not None
    assert balance_program(balance, EPOCH).balance.signing is None
    assert b"0123456789abcdef" not in pickle.dumps(balance_program(balance, EPOCH))
