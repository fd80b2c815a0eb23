"""A violation in an otherwise healthy history is found by its own audit and by no other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from quotaplane.query.answer import Answer
from quotaplane.query.audit import Audit, list_audits, load_audit
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.settings import History
from tests.unit.history.planted_violations import PLANTED, Planted
from tests.unit.query.audit_cases import equal
from tests.unit.sim.recorded_history import at, healthy

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> History:
    history = History(path=str(tmp_path_factory.mktemp("recorded")))
    healthy(history)
    return history


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> History:
    history = History(path=str(tmp_path_factory.mktemp("noisy")))
    healthy(history, is_noisy=True)
    return history


def answers(history: History) -> dict[str, tuple[Audit, Answer]]:
    with DuckDBEngine(history) as engine:
        return {
            audit.name: (audit, engine.ask(audit.sql, audit.values(), until=at(200)))
            for audit in list_audits()
        }


def violations(found: dict[str, tuple[Audit, Answer]]) -> dict[str, int]:
    counts = {name: audit.violations(answer) for name, (audit, answer) in found.items()}
    return {name: count for name, count in counts.items() if count}


def test_a_healthy_history_has_none(recorded: History) -> None:
    found = answers(recorded)
    assert violations(found) == {}
    reported = {name: len(answer.rows) for name, (_, answer) in found.items()}
    assert reported == {
        "changes": 14,
        # of days that are over
        "chargeback": 0,
        # for the leases of the broker that expired
        "conservation": 3,
        # a broker was silent, for less than a minute
        "coverage": 0,
        # a soft group
        "exceeded": 2,
        "oscillation": 0,
        "propagation": 8,
        "silent": 1,
        "soft_exceeded": 1,
        "staleness": 0,
        "starvation": 0,
        "throttled": 6,
        "top_consumers": 5,
    }


@pytest.mark.nightly
def test_strict_limits_are_never_more_than_the_quotas(tmp_path: Path) -> None:
    history = History(path=str(tmp_path / "strict"))
    healthy(history, limits={"transition": "strict"})
    found = answers(history)
    assert found["conservation"][1].rows == []
    assert violations(found) == {}


@pytest.mark.nightly
def test_limits_over_the_quota_are_violations_without_their_setting_only(tmp_path: Path) -> None:
    history = History(path=str(tmp_path / "over"))
    recording = healthy(history, limits={"over": 0.1})
    audit = load_audit("conservation")
    with DuckDBEngine(history) as engine:
        for parameters, violates in (
            (audit.of_settings(recording.settings.limits), False),
            ({}, True),
            ({"over": 0.02}, True),
        ):
            answer = engine.ask(audit.sql, audit.values(parameters), until=at(200))
            assert (audit.violations(answer) > 0) == violates


def test_there_is_one_for_every_audit_that_knows_violations() -> None:
    audits = {audit.name for audit in list_audits() if audit.violation is not None}
    assert {planted.audit for planted in PLANTED} == audits


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.plant.__name__.strip("_"))
def test_a_planted_violation_is_found_by_its_own_audit_alone(
    recorded: History, tmp_path: Path, planted: Planted
) -> None:
    history = History(path=str(shutil.copytree(recorded.path, tmp_path / "planted")))
    planted.plant(history)
    found = answers(history)
    assert violations(found) == {planted.audit: len(planted.rows)}
    audit, answer = found[planted.audit]
    if audit.violation:
        place = answer.columns.index(audit.violation)
        answer = answer._replace(rows=[row for row in answer.rows if row[place]])
    equal(answer, planted.columns, planted.rows)


@pytest.mark.nightly
@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.plant.__name__.strip("_"))
def test_noise_hides_no_planted_violation(noisy: History, tmp_path: Path, planted: Planted) -> None:
    history = History(path=str(shutil.copytree(noisy.path, tmp_path / "planted")))
    planted.plant(history)
    assert planted.audit in violations(answers(history))
