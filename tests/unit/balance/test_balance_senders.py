"""Invented load reports: known brokers' reports are used, and decisions are as without them."""

from __future__ import annotations

from typing import Any

import pytest

from quotabalance.job.plan_finisher import BalanceFinisher
from quotabalance.settings import Balance
from quotaplane.wire.reasons import TOO_MANY_BROKERS
from tests.unit.agents.condition_cases import Printed
from tests.unit.balance.load_report_cases import NOW_MS, load_of
from tests.unit.balance.test_balance_program import BALANCE, Run, payload, rows_of, skewed

GHOSTS = 1000


def ghosts(at_ms: int) -> list[Any]:
    """Brokers that carry next to nothing, so that all bundles seem to belong to them."""
    return [
        load_of(f"a-ghost-{n}", (), at_ms=at_ms, sequence=at_ms, cpu=0.0) for n in range(GHOSTS)
    ]


def decided(max_brokers: int | None, *, attacked: bool) -> tuple[Any, list[str], bytes | None]:
    """The decisions of the second round, the letters' reasons, and the state."""
    run = Run(BALANCE, max_brokers)
    run.batch(NOW_MS, payload(*skewed(1, NOW_MS)))
    reasons: list[str] = []
    outputs: dict[str, list[bytes]] = {}
    for seconds in (30, 60):
        at_ms = NOW_MS + 1000 * seconds
        reports = [*skewed(seconds, at_ms), *(ghosts(at_ms) if attacked else ())]
        outputs = run.batch(at_ms, payload(*reports, now_ms=at_ms))
        for row in rows_of(outputs, "rejected_reports"):
            reasons += [row["reason"]] * row["reports"]
    return rows_of(outputs, "balance_decisions"), reasons, run.blob


def test_beyond_max_brokers_decisions_are_as_without_the_invented_ones() -> None:
    alone, none, state = decided(3, attacked=False)
    assert none == []
    assert {row["kind"] for row in alone} >= {"move"}
    attacked, reasons, same = decided(3, attacked=True)
    assert attacked == alone
    assert same == state
    assert reasons == [TOO_MANY_BROKERS] * 2 * GHOSTS
    unbounded, _, _ = decided(None, attacked=True)
    assert unbounded != alone


@pytest.mark.parametrize("reason", [TOO_MANY_BROKERS, "other_broker", "broker_not_allowed"])
def test_the_balance_job_prints_it_once(reason: str) -> None:
    finisher, heard = BalanceFinisher(Balance(), 1200.0, lambda _: {}), Printed()
    finisher.begin()
    finisher._arrived, finisher._rejected = 5, {reason: 5}
    finisher.end(heard.conditions)
    finisher.end(heard.conditions)
    ((kind, text),) = heard.lines()
    assert (kind, text.endswith(f"Dead letters: {reason}")) == ("warning", True)
