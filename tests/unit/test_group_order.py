"""``maintain`` sorts usage and limits by group: no row is lost, few files are read for a group."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from quotaplane.deltalog.rewrite import commit_rewrite
from quotaplane.errors import HistoryError
from quotaplane.history import group_order
from quotaplane.history.group_order import PREFIX, sort_by_group
from quotaplane.history.maintenance import maintain
from quotaplane.history.store import ensure_tables
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.query.live_files import live_files
from quotaplane.settings import History
from tests.unit.history_cases import DAY_MS, NOON_MS, limits, read, usage

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
GROUPS = [f"tenant-{place}/orders" for place in range(8)]


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Rounds of yesterday and today, six each; every round has all groups, the last ones first."""
    made = History(path=str(tmp_path))
    ensure_tables(made)
    add(made, range(12))
    return made


def add(history: History, seqs: range) -> None:
    with HistoryWriter(history, "checkpoint-1") as writer:
        for seq in seqs:
            rows = [("b", group, float(seq)) for group in reversed(GROUPS)]
            stamp = Round(1, seq, NOON_MS - (1 - seq // 6) * DAY_MS + seq)
            writer.append_round(stamp, {"usage": usage(rows), "limits": limits(rows)})


def opened(history: History, name: str = "usage") -> DeltaTable:
    return DeltaTable(Path(history.path) / name)


def rows_of(history: History, name: str) -> pa.Table:
    return read(history, name).sort_by([("seq", "ascending"), ("resource_group", "ascending")])


def test_a_run_has_every_row_in_order(history: History) -> None:
    before = {name: rows_of(history, name) for name in ("usage", "limits")}
    maintain(history, NOON)
    for name, rows in before.items():
        assert rows_of(history, name) == rows
        files = opened(history, name).file_uris()
        assert len(files) == 2  # one a day
        for file in files:
            assert Path(file).name.startswith(PREFIX)
            found = duckdb.sql(f"SELECT resource_group, seq FROM '{file}'").fetchall()
            assert found == sorted(found)


def test_files_without_a_group_are_not_read(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_order, "FILE_ROWS", 12)
    maintain(history, NOON)
    table, folder = opened(history), Path(history.path) / "usage"
    all_files = live_files(table, folder)
    assert len(all_files) == 8  # a day has 48 rows
    of_group = live_files(table, folder, group=GROUPS[3])
    assert len(of_group) == 2
    assert live_files(table, folder, group="tenant-9/none") == []
    with DuckDBEngine(history) as engine:
        for name in GROUPS:
            sql = "SELECT count(*) FROM usage WHERE resource_group = :name"
            assert engine.ask(sql, {"name": name}, group=name).rows == [(12,)]


def test_new_rounds_become_a_run_and_runs_of_a_size_become_one(history: History) -> None:
    maintain(history, NOON)
    add(history, range(12, 18))  # the day after
    next_day = NOON + timedelta(days=1)
    done = {kept.table: kept for kept in maintain(history, next_day)}
    assert done["usage"].files_compacted == 6
    assert len(opened(history).file_uris()) == 3
    assert rows_of(history, "usage")["seq"].to_pylist() == [s for s in range(18) for _ in GROUPS]
    done = {kept.table: kept for kept in maintain(history, next_day)}
    assert done["usage"].files_compacted == 0


def test_rounds_that_are_written_meanwhile_stay(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, late = commit_rewrite, iter([range(12, 14)])

    def slow(*args: object) -> bool:
        for seqs in late:
            add(history, seqs)
        return commit(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(group_order, "commit_rewrite", slow)
    assert sort_by_group(opened(history), Path(history.path) / "usage", NOON) == 12
    assert rows_of(history, "usage")["seq"].to_pylist() == [s for s in range(14) for _ in GROUPS]


def test_files_that_somebody_else_rewrote_are_left(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = group_order.written

    def slow(*args: object) -> object:
        yield from made(*args)  # type: ignore[arg-type]
        opened(history).optimize.compact()

    monkeypatch.setattr(group_order, "written", slow)
    sort_by_group(opened(history), Path(history.path) / "usage", NOON)
    assert rows_of(history, "usage")["seq"].to_pylist() == [s for s in range(12) for _ in GROUPS]
    names = {path.name for path in Path(history.path, "usage").rglob(f"{PREFIX}*")}
    assert names == set()  # nothing is left behind


def test_a_failure_is_one_line_and_leaves_the_table_as_it_was(history: History) -> None:
    file = Path(opened(history).file_uris()[0])
    file.write_bytes(b"PAR1")
    version = opened(history).version()
    with pytest.raises(HistoryError, match=r"history table usage: sorting 2026-0") as error:
        sort_by_group(opened(history), Path(history.path) / "usage", NOON)
    assert "\n" not in str(error.value)
    assert opened(history).version() in (version, version + 1)  # the other day may be sorted
