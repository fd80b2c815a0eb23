"""The end of a micro-batch of the balance job: lines about load reports that stay away."""

from __future__ import annotations

import json

import pytest

from quotabalance.job.plan_finisher import BalanceFinisher
from quotabalance.settings import Balance
from quotaplane.model import Round
from tests.unit.agents.condition_cases import Printed


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now_s = [1000.0]
    monkeypatch.setattr("quotabalance.job.plan_finisher.time.monotonic", lambda: now_s[0])
    return now_s


def test_load_reports_that_stay_away_and_come_again_are_told(clock: list[float]) -> None:
    finisher = BalanceFinisher(Balance(loads_topic="loads"), 1200.0, lambda _: {})
    heard = Printed()

    def lines(after_s: float, reports: int) -> list[tuple[str, str]]:
        clock[0] += after_s
        finisher.begin()
        counts = json.dumps({"reports": reports}).encode()
        finisher.finish(Round(1, 1, 1_790_000_000_000), {"counts": [counts]})
        heard.now_s = clock[0]
        assert not finisher.end(heard.conditions)
        return heard.lines()

    assert lines(0, reports=3) == []
    assert lines(590, reports=0) == []
    ((kind, text),) = lines(10, reports=0)
    assert kind == "warning"
    assert text == (
        "no load reports: none for 600 s; brokers are left out once their numbers are 1200 s old, "
        "and then nothing moves. Check that the collector, or the brokers, run and publish to loads"
    )
    assert lines(60, reports=0) == []
    assert lines(60, reports=3) == [("recovered", "no load reports: over after 120 s")]


def test_a_batch_that_was_never_finished_counts_as_empty(clock: list[float]) -> None:
    finisher, heard = BalanceFinisher(Balance(), 1200.0, lambda _: {}), Printed()
    for after_s in (0.0, 700.0):
        clock[0] += after_s
        finisher.begin()
        finisher.end(heard.conditions)
    said = heard.lines()
    assert [kind for kind, _ in said] == ["warning"]
    assert "since the start 700 s ago" in said[0][1]
