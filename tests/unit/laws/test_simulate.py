"""``quotaplane simulate``: its scenarios, PIP-82's cases, and input that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quotaplane.cli.main import main
from quotaplane.laws import LAWS

BASE = {"quota": 100, "brokers": ["a", "b"], "demand": [[80, 20], [80, 60], [80, 60], [80, 60]]}


@pytest.fixture
def simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def run(scenario: object, *options: str) -> tuple[int, Any, str]:
        file = tmp_path / "scenario.json"
        file.write_text(scenario if isinstance(scenario, str) else json.dumps(scenario))
        code = main(["simulate", str(file), *options])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err.replace(str(file), "FILE")

    return run


def test_the_answer_has_each_round_with_the_limit_that_was_in_force(simulate) -> None:
    code, answer, err = simulate(BASE)
    assert (code, err) == (0, "")
    assert answer["law"] == "max_min"
    first, second, third, last = answer["rounds"]
    assert first == {
        "demand": {"a": 80, "b": 20},
        "limit": {"a": None, "b": None},
        "usage": {"a": 80, "b": 20},
    }
    assert sum(second["limit"].values()) <= 100
    assert second["usage"]["b"] == second["limit"]["b"]
    assert third["limit"] == pytest.approx({"a": 50, "b": 50})
    assert last["usage"] == pytest.approx({"a": 50, "b": 50})
    assert answer["figures"]["rounds_to_fair"] == 1


@pytest.mark.parametrize(
    ("throttle", "used"),
    [
        # Of its 80, 5 % are the price of the other's headroom, until that wants more, too.
        (None, [80, 76, 50, 50, 50, 50]),
        ({}, [80, 80, 80, 68, 50, 50]),  # 50 are in the bucket, and 30 a second too much
        ({"law": "sliding_window", "mode": "hard"}, [80, 76, 50, 50, 50, 50]),
    ],
)
def test_limits_are_held_to_ideally_or_by_a_throttle_law(simulate, throttle, used) -> None:
    scenario = {"quota": 100, "brokers": ["a", "b"], "demand": [[80, 20]] + [[80, 60]] * 5}
    code, answer, _ = simulate(
        {**scenario, **({"throttle": throttle} if throttle is not None else {})}
    )
    assert code == 0
    assert [one["usage"]["a"] for one in answer["rounds"]] == pytest.approx(used, abs=2.5)
    assert answer["rounds"][-1]["limit"] == pytest.approx({"a": 50, "b": 50})


def test_strict_limits_never_add_up_to_more_than_the_quota(simulate) -> None:
    demand = [[80, 80, 0]] * 6 + [[80, 80, 60]] * 6 + [[10, 80, 200]] * 6
    scenario = {"quota": 120, "brokers": ["a", "b", "c"], "demand": demand, "loss": 0.1}
    _, answer, _ = simulate({**scenario, "transition": "strict"}, "--seed", "2")
    for this in answer["rounds"]:
        assert sum(this["limit"].values()) <= 120
    assert answer["rounds"][8]["usage"]["c"] == pytest.approx(40, rel=0.02)
    assert list(answer["rounds"][-1]["usage"].values()) == pytest.approx([10, 55, 55], rel=0.05)


@pytest.mark.parametrize("law", LAWS)
def test_every_law_runs_with_noise_loss_and_delay(simulate, law: str) -> None:
    scenario = {**BASE, "demand": [[80, 60]] * 30, "noise": "poisson", "loss": 0.3}
    code, answer, _ = simulate({**scenario, "delay_rounds": 2}, "--law", law, "--seed", "3")
    assert code == 0
    assert answer["law"] == law
    for this in answer["rounds"]:
        for broker, limit in this["limit"].items():
            most = this["demand"][broker] if limit is None else min(this["demand"][broker], limit)
            assert this["usage"][broker] == most
    assert answer["rounds"][29]["limit"]["a"] is not None


def test_a_seed_makes_a_run_repeatable_and_another_one_differs(simulate) -> None:
    noisy = {**BASE, "noise": "poisson", "loss": 0.2}
    assert simulate(noisy, "--seed", "5") == simulate(noisy, "--seed", "5")
    assert simulate(noisy, "--seed", "5")[1] != simulate(noisy, "--seed", "6")[1]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("noise", "variance"),
    [
        ({}, 400),
        ({"dispersion": 4}, 1600),
        ({"counts": 100}, 1600),
        ({"counts": 100, "dispersion": 4}, 6400),
    ],
)
def test_noise_can_be_said_in_counts_and_dispersion(simulate, noise, variance: float) -> None:
    scenario = {"quota": 900, "brokers": ["a", "b"], "demand": [[400, 800]] * 150, "noise": noise}
    code, answer, _ = simulate(scenario)
    demand = [this["demand"]["a"] for this in answer["rounds"]]
    assert code == 0
    assert sum(demand) / 150 == pytest.approx(400, abs=3 * (variance / 150) ** 0.5)
    found = sum((one - 400) ** 2 for one in demand) / 150
    assert found == pytest.approx(variance, rel=0.35)


def test_poisson_is_a_name_for_a_dispersion_of_one(simulate) -> None:
    by_name, by_number = ({**BASE, "noise": noise} for noise in ("poisson", {"dispersion": 1}))
    assert simulate(by_name) == simulate(by_number)


def test_a_round_is_fair_within_the_noise(simulate) -> None:
    """Static gives 50 of the 60 that are fair: too little without noise, fair at 20 % of it."""
    scenario = {"quota": 100, "brokers": ["a", "b"], "demand": [[60, 40]] * 20}
    for noise, fair in (("none", 0.0), ({"counts": 25}, 1.0), ({"counts": 90}, 0.0)):
        _, answer, _ = simulate({**scenario, "noise": noise}, "--law", "static")
        assert answer["figures"]["fair_part"] == fair


def test_counts_too_large_to_draw_are_one_line_that_names_the_field(simulate) -> None:
    demand = [[1e-9, 1e9]]
    code, answer, err = simulate({**BASE, "demand": demand, "noise": {"counts": 1e6}})
    assert (code, answer, err.count("\n")) == (2, None, 1)
    assert "FILE: noise: the largest demand is 1e+24 counts" in err


def test_reports_arrive_so_many_rounds_later(simulate) -> None:
    _, answer, _ = simulate({**BASE, "demand": [[80, 60]] * 6, "delay_rounds": 3})
    unlimited = [this["limit"]["a"] is None for this in answer["rounds"]]
    assert unlimited == [True, True, True, True, False, False]


def test_without_a_report_nobody_is_limited_and_figures_stay_silent(simulate) -> None:
    _, answer, _ = simulate({**BASE, "loss": 1})
    assert all(this["limit"] == {"a": None, "b": None} for this in answer["rounds"])
    assert answer["figures"]["rounds_judged"] == 0
    assert answer["figures"]["utilisation"] is None


def test_loss_does_not_change_what_is_wanted(simulate) -> None:
    noisy = {**BASE, "noise": "poisson"}
    demands = [
        [this["demand"] for this in simulate({**noisy, "loss": loss})[1]["rounds"]]
        for loss in (0, 0.9)
    ]
    assert demands[0] == demands[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"quota": -1}, ["quota", "at least 0"]),
        ({"quota": None}, ["quota", "number"]),
        ({"quota": "100"}, ["quota", "a string"]),
        ({"qouta": 100}, ["qouta", "unknown key"]),
        ({"brokers": []}, ["brokers"]),
        ({"brokers": ["a", ""]}, ["brokers.1"]),
        ({"brokers": ["a", "a"]}, ["brokers.1", "'a' is listed twice"]),
        ({"demand": []}, ["demand"]),
        ({"demand": [[1, 2], [1]]}, ["demand.1", "has 1 number for 2 brokers"]),
        ({"demand": [[1, 2, 3]]}, ["demand.0", "has 3 numbers for 2 brokers"]),
        ({"demand": [[1, -2]]}, ["demand.0.1", "at least 0"]),
        ({"demand": [[1, "2"]]}, ["demand.0.1", "a string"]),
        ({"demand": [[1, 1e300]]}, ["demand.0.1", "at most"]),
        ({"noise": "gauss"}, ["noise", "poisson", "an object", "'gauss'"]),
        ({"noise": None}, ["noise", "not null"]),
        ({"noise": 30}, ["noise", "not a number"]),
        ({"noise": {"count": 30}}, ["noise.count", "unknown key"]),
        ({"noise": {"counts": 0}}, ["noise.counts", "at least 0.01"]),
        ({"noise": {"counts": "30"}}, ["noise.counts", "a string"]),
        ({"noise": {"dispersion": 0.5}}, ["noise.dispersion", "at least 1"]),
        ({"loss": 1.5}, ["loss", "at most 1"]),
        ({"delay_rounds": -1}, ["delay_rounds", "at least 0"]),
        ({"delay_rounds": 1.5}, ["delay_rounds", "whole number"]),
        ({"transition": "slow"}, ["transition"]),
        ({"throttled_told": "no"}, ["throttled_told", "true or false"]),
        ({"throttle": {"law": "bucket"}}, ["throttle.law", "token_bucket"]),
        ({"throttle": {"mode": "firm"}}, ["throttle.mode", "hard"]),
        ({"throttle": {"samples": 0}}, ["throttle.samples", "at least 1"]),
        ({"throttle": {"burst": 5}}, ["throttle.burst", "unknown key"]),
    ],
)
def test_a_wrong_scenario_is_one_line_that_names_the_field(simulate, change, words) -> None:
    code, answer, err = simulate({**BASE, **change})
    assert (code, answer) == (2, None)
    assert err.count("\n") == 1
    assert "FILE: " in err
    for word in words:
        assert word in err


@pytest.mark.parametrize("missing", ["quota", "brokers", "demand"])
def test_a_missing_field_is_named(simulate, missing: str) -> None:
    code, _, err = simulate({name: value for name, value in BASE.items() if name != missing})
    assert code == 2
    assert f"{missing}: is required" in err


@pytest.mark.parametrize(
    ("options", "words"),
    [(("--law", "fairest"), "fairest"), (("--seed", "-1"), "--seed"), (("--seed", "x"), "--seed")],
)
def test_a_wrong_option_is_one_line(simulate, options: tuple[str, str], words: str) -> None:
    code, answer, err = simulate(BASE, *options)
    assert (code, answer, err.count("\n")) == (2, None, 1)
    assert words in err


def test_help_explains_the_scenario_and_the_figures(capsys) -> None:
    assert main(["simulate", "--help"]) == 0
    out = capsys.readouterr().out
    assert '"delay_rounds": 0' in out
    assert "rounds_to_fair" in out
