"""Usage that limits were not decided with: what has it, and what must not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.query.audit import load_audit
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.settings import History
from tests.histories import make_history
from tests.unit.history.history_cases import NAN, NOON_MS, limits, rounds, usage

NOON = datetime.fromtimestamp(NOON_MS / 1000, timezone.utc)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DuckDBEngine]:
    """b1's limit is 10. The job was down from second 10 to second 100, and records that at 110."""
    history = History(path=str(tmp_path / "history"))
    make_history(history)
    reports = [(0, 8.0, 0, True), (5, 8.0, 5, True), (120, NAN, 120, True)]
    reports += [(20 + 5 * n, 50.0, 110, False) for n in range(12)]
    with HistoryWriter(history, "checkpoint-1") as writer:
        tables: dict[str, Any] = {"limits": limits([("b1", "g", 10.0)]), "rounds": rounds()}
        writer.append_round(Round(1, 0, NOON_MS - 1000), tables)
        for seq, (second, rate, recorded, counted) in enumerate(
            sorted(reports, key=lambda each: each[2]), start=1
        ):
            at_ms = NOON_MS + 1000 * second
            rows = usage([("b1", "g", rate)], at_ms, throttled=2.0, window_ms=5000)
            rows = rows.append_column("counted", [[counted] * len(rows)])
            writer.append("usage", rows, Round(1, seq, NOON_MS + 1000 * recorded))
    with DuckDBEngine(history) as found:
        yield found


def asked(engine: DuckDBEngine, name: str, **options: Any) -> list[dict[str, Any]]:
    audit = load_audit(name)
    answer = engine.ask(audit.sql, audit.values(options), since=NOON - timedelta(minutes=1))
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def test_brokers_are_not_accused_of_what_they_used_while_the_job_was_away(
    engine: DuckDBEngine,
) -> None:
    """But "unchanged" refers to the report before, which did not count: that is 50."""
    (run,) = asked(engine, "exceeded")
    assert (run["first_at"], run["reports"]) == (NOON + timedelta(seconds=120), 1)
    assert run["worst_used_per_s"] == 50.0
    assert asked(engine, "starvation", rounds=2) == []


def test_amounts_have_all_of_it_at_the_time_when_it_was_used(engine: DuckDBEngine) -> None:
    (row,) = asked(engine, "top_consumers")
    # From 5 s before each report until the next one's window; the second counts 2 windows more.
    assert row["used"] == pytest.approx(8 * 10 + 8 * 10 + 50 * 60 + 50 * 25 + 50 * 5)
    sql = "SELECT sum(used) FROM usage_amounts WHERE reported_at <= :until"
    until = NOON + timedelta(seconds=60)
    ((before,),) = engine.ask(sql, until=until).rows
    assert before == pytest.approx(8 * 10 + 8 * 10 + 50 * 45)


def test_the_newest_refusals_are_not_those_of_a_report_that_was_recorded_late(
    engine: DuckDBEngine,
) -> None:
    sql = "SELECT max(report_no), count_if(NOT counted) FROM usage_and_limits"
    assert engine.ask(sql).rows == [(3, 12)]
