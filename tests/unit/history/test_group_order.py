"""``maintain`` sorts days of usage and limits by group: no row is lost, few files are read."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError

from quotaplane.errors import HistoryError
from quotaplane.history import group_order
from quotaplane.history.group_order import is_sorted, sort_by_group
from quotaplane.history.maintenance import maintain
from quotaplane.history.store import ensure_tables
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.query.live_files import live_files
from quotaplane.settings import History
from tests.unit.history.history_cases import DAY_MS, NOON_MS, limits, read, usage

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


def files_of(history: History, name: str = "usage") -> list[Path]:
    return sorted(map(Path, opened(history, name).file_uris()))


def test_a_day_that_is_over_has_every_row_in_order(history: History) -> None:
    before = {name: rows_of(history, name) for name in ("usage", "limits")}
    maintain(history, NOON)
    for name, rows in before.items():
        assert rows_of(history, name) == rows
        yesterday, today = files_of(history, name)  # one a day
        assert [is_sorted(file.name) for file in (yesterday, today)] == [True, False]
        found = duckdb.sql(f"SELECT resource_group, seq FROM '{yesterday}'").fetchall()
        assert found == sorted(found)


def test_files_without_a_group_are_not_read(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = WriterProperties(compression="ZSTD", max_row_group_size=6)
    monkeypatch.setattr(group_order, "SORTED_FILES", small)
    maintain(history, NOON + timedelta(days=1))
    yesterday, _ = files_of(history)
    groups = pq.ParquetFile(yesterday).metadata
    place = groups.schema.names.index("resource_group")
    statistics = [
        groups.row_group(number).column(place).statistics for number in range(groups.num_row_groups)
    ]
    assert sum(each.min <= GROUPS[3] <= each.max for each in statistics) == 1
    assert len(statistics) == len(GROUPS)
    assert live_files(opened(history), Path(history.path) / "usage", group="tenant-9/none") == []
    with DuckDBEngine(history) as engine:
        for name in GROUPS:
            sql = "SELECT count(*) FROM usage WHERE resource_group = :name"
            assert engine.ask(sql, {"name": name}, group=name).rows == [(12,)]


@pytest.mark.nightly
def test_a_sorted_day_is_left_and_a_new_day_is_only_compacted(history: History) -> None:
    next_day = NOON + timedelta(days=1)
    maintain(history, next_day)
    before = files_of(history)
    assert all(is_sorted(file.name) for file in before)
    add(history, range(12, 18))  # the day after
    done = {kept.table: kept for kept in maintain(history, next_day)}
    assert done["usage"].files_compacted == 6
    assert files_of(history)[:2] == before
    assert len(files_of(history)) == 3
    assert rows_of(history, "usage")["seq"].to_pylist() == [s for s in range(18) for _ in GROUPS]
    done = {kept.table: kept for kept in maintain(history, next_day)}
    assert done["usage"].files_compacted == 0


@pytest.mark.nightly
def test_late_rounds_of_a_sorted_day_are_sorted_in(history: History) -> None:
    maintain(history, NOON)
    add(history, range(3, 6))
    add(history, range(3))
    with HistoryWriter(history, "checkpoint-2") as writer:
        writer.append_round(
            Round(2, 0, NOON_MS - DAY_MS), {"usage": usage([("b", GROUPS[0], 7.0)])}
        )
    maintain(history, NOON)
    yesterday, _ = files_of(history)
    found = duckdb.sql(f"SELECT resource_group, epoch FROM '{yesterday}'").fetchall()
    assert found == sorted(found)
    assert len(found) == 6 * len(GROUPS) + 1


def test_rounds_that_are_written_meanwhile_stay(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, late = group_order.write_deltalake, iter([range(12, 14), range(6)])

    def slow(*args: object, **options: object) -> None:
        for seqs in late:
            add(history, seqs)
            break
        write(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(group_order, "write_deltalake", slow)
    maintain(history, NOON)
    assert rows_of(history, "usage")["seq"].to_pylist() == [s for s in range(14) for _ in GROUPS]


def test_a_round_of_the_same_day_meanwhile_is_a_conflict_and_no_loss(history: History) -> None:
    stale = opened(history)
    with HistoryWriter(history, "checkpoint-2") as writer:
        writer.append_round(Round(2, 0, NOON_MS - DAY_MS), {"usage": usage([("b", "late", 7.0)])})
    with pytest.raises(CommitFailedError):
        sort_by_group(stale, Path(history.path) / "usage", NOON)
    assert len(rows_of(history, "usage")) == 12 * len(GROUPS) + 1


def test_a_failure_is_one_line_and_leaves_the_table_as_it_was(history: History) -> None:
    yesterday = next(path for path in files_of(history) if "02-28" in str(path))
    yesterday.write_bytes(b"PAR1")
    version = opened(history).version()
    with pytest.raises(HistoryError, match=r"history table usage: sorting 2026-02-28: ") as error:
        sort_by_group(opened(history), Path(history.path) / "usage", NOON)
    assert "\n" not in str(error.value)
    assert opened(history).version() == version
