"""The figures and the page of the balance proof, on records made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.balance_proof import __main__ as command
from benchmarks.balance_proof.contenders import CONTENDERS, OUR_BALANCE
from benchmarks.balance_proof.figures import figures, reached
from benchmarks.balance_proof.page import page, results_csv, write
from benchmarks.balance_proof.record import OwnerChange, SceneRecord, changes_in
from benchmarks.balance_proof.scenes import (
    BROKERS,
    BUNDLES,
    FIRST_SHARES,
    HOT_BROKER,
    HOT_SHARE,
    POLICY,
    SCENES,
    TOTAL_PER_S,
    first_owners,
    first_rates,
    hot_rates,
    hot_topics,
    shares_in,
)
from benchmarks.proof_command import read_records, write_records
from quotabalance.planning.options import read_options
from quotabalance.planning.policies import read_policies
from quotabalance.settings import Balance
from quotaplane.errors import ConfigError


def record(contender: str, scene: str, better_from: int | None) -> SceneRecord:
    wanted = [(3.0, 2.0, 1.0)] * 60
    if better_from is not None:
        wanted[better_from:] = [(2.1, 2.0, 1.9)] * (60 - better_from)
    change = OwnerChange(4.0, "proof/orders/0x00000000_0x08000000", 0, 2, 1e6)
    return SceneRecord(
        contender=contender,
        scene=scene,
        wanted=tuple(wanted),
        longest_ms=(1500.0, *[20.0] * 59),
        p99_ms=(10.0,) * 60,
        published=(100,) * 60,
        lost=(0,) * 60,
        changes=(change, change),
        bundles=BUNDLES + 2,
        shares=(1 / 3, 1 / 3, 1 / 3),
    )


ALL = [
    *(record("stock", scene.name, None) for scene in SCENES),
    *(record("ours", scene.name, 20) for scene in SCENES),
]


def test_figures_of_a_run_are_those_computed_by_hand() -> None:
    found = figures(record("ours", "skewed", 20), BUNDLES + 1)
    assert (found.begin, found.seconds_to, found.splits) == (1.5, (20, 20), 1)
    assert found.end == pytest.approx(1.05)
    assert (found.moves, found.repeated, found.moved_mb_per_s) == (2, 1, 2.0)
    assert (found.longest_ms, found.slow_seconds) == (1500.0, 1)
    assert figures(record("stock", "skewed", None), 0).seconds_to == (None, None)


def test_a_goal_is_reached_only_if_it_is_kept() -> None:
    wavering = np.array([2.0] * 5 + [1.0] * 5 + [2.0] * 5 + [1.0] * 20)
    assert reached(wavering, 1.15) == 15


def test_a_topic_without_owner_has_not_changed_hands() -> None:
    seen = [
        (0.0, {"a": (0, "x"), "b": (0, "x")}),
        (1.0, {}),
        (2.0, {"a": (0, "x"), "b": (0, "x")}),
        (3.0, {"a": (1, "x"), "b": (1, "x")}),
    ]
    assert changes_in(seen, {"a": 1.0, "b": 2.0}) == [OwnerChange(3.0, "x", 0, 1, 3.0)]


def test_scenes_are_what_the_page_says() -> None:
    rates, owners = first_rates(), first_owners()
    assert sum(rates.values()) == pytest.approx(TOTAL_PER_S, rel=0.01)
    carried = np.zeros(BROKERS)
    for topic, rate in rates.items():
        carried[owners[topic]] += rate
    assert carried / carried.sum() == pytest.approx(FIRST_SHARES, abs=0.03)
    later = hot_rates()
    hot = sum(later[topic] for topic in hot_topics())
    assert hot / sum(later.values()) == pytest.approx(HOT_SHARE, abs=0.01)


def test_with_a_policy_each_broker_has_a_mean_of_its_own() -> None:
    shares = shares_in(POLICY)
    assert sum(shares) == pytest.approx(1.0)
    assert shares[HOT_BROKER] == HOT_SHARE
    wanted = tuple(100.0 * share for share in shares)
    one = replace(record("ours", "policy", None), shares=shares)
    assert replace(one, wanted=(wanted,)).max_mean().tolist() == [1.0]
    misplaced = tuple(100.0 * share for share in (*shares[1:], shares[0]))
    assert replace(one, wanted=(misplaced,)).max_mean()[0] > 2.0


def test_our_settings_are_valid() -> None:
    balance = Balance.model_validate(dict(OUR_BALANCE))
    assert read_options(balance.options).resources == ()
    assert read_policies(balance.policies).is_excluded("public/quotaplane")


def test_records_and_the_page(tmp_path: Path) -> None:
    write_records(tmp_path, ALL)
    records = read_records(tmp_path, SceneRecord)
    assert records == ALL
    text = page(records, CONTENDERS)
    assert "- quotaplane reached 1.15 in 4 of 4 scenarios." in text
    assert "- Stock Pulsar reached 1.15 in 0 of 4 scenarios; not in: Skewed load (1.50" in text
    assert "| Skewed load | Stock Pulsar | 1.50 → 1.50 | never | never | 2 (1) | 2.00 |" in text
    assert results_csv(records).count("\n") == 1 + 60 * len(ALL)
    write(tmp_path, records, CONTENDERS)
    for scene in SCENES:
        assert (tmp_path / "balance-proof" / f"{scene.name}.svg").read_text().startswith("<svg")


def test_one_contender_is_a_page_too() -> None:
    assert "Stock Pulsar reached" not in page(ALL[len(SCENES) :], CONTENDERS)


def test_unknown_contenders_are_refused() -> None:
    with pytest.raises(
        ConfigError, match="must be one of stock, stock-extensible, ours, ours-extensible, none"
    ):
        command.main(["theirs"])
