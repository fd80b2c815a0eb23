"""Amounts from light reports: of a group that is named now and then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.settings import History
from tests.histories import make_history
from tests.unit.history.history_cases import NOON_MS, rounds, usage

EVERY = 16
START_MS = NOON_MS + 1
NAMED_AT = (5, 10, 90, 170, 175)
"""Seconds; the broker reports each 5 s, and uses 100 a second until it used 300 in the last."""


def amounts(tmp_path: Path, *, counted: bool, every: int | None) -> list[tuple[float, bool]]:
    history = History(path=str(tmp_path / "history"))
    make_history(history)
    with HistoryWriter(history, "checkpoint-1") as writer:
        writer.append_round(Round(1, 0, NOON_MS), {"rounds": rounds()})
        for seq, second in enumerate(NAMED_AT, start=1):
            rate, at_ms = (300.0 if second == 175 else 100.0), NOON_MS + 1000 * second
            used = 100.0 * second + (1000.0 if second == 175 else 0.0)
            more: dict[str, Any] = {"counter": used} if counted else {}
            rows = usage([("b1", "g", rate)], at_ms, window_ms=5000, started_at_ms=START_MS, **more)
            if every is not None:
                rows = rows.append_column("named_every", [[every]])
            writer.append("usage", rows, Round(1, seq, at_ms))
    with DuckDBEngine(history) as engine:
        sql = "SELECT used, by_counter FROM usage_amounts ORDER BY reported_at"
        return [(float(used), by_counter) for used, by_counter in engine.ask(sql).rows]


def test_counters_of_a_group_that_was_left_out_are_exact(tmp_path: Path) -> None:
    found = amounts(tmp_path, counted=True, every=EVERY)
    assert found == [(500.0, True), (500.0, True), (8000.0, True), (8000.0, True), (1500.0, True)]


def test_without_counters_a_rate_holds_for_as_many_windows_as_it_may_be_left_out(
    tmp_path: Path,
) -> None:
    found = [used for used, _ in amounts(tmp_path, counted=False, every=EVERY)]
    assert found == [500.0, 8000.0, 8000.0, 500.0, 1500.0]


@pytest.mark.parametrize("every", [None, 2])
def test_of_other_reports_it_holds_for_five_windows(tmp_path: Path, every: int | None) -> None:
    found = [used for used, _ in amounts(tmp_path, counted=False, every=every)]
    assert found == [500.0, 3000.0, 3000.0, 500.0, 1500.0]
