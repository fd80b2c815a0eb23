"""Rows in files that a commit adds later, maybe from another process."""

from __future__ import annotations

import gc
import json
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from quotaplane.errors import HistoryError
from quotaplane.history.data_files import Written, statistics, write_rows
from quotaplane.history.stamped_rows import stamped
from quotaplane.history.store import open_table
from quotaplane.history.table_parts import replacing
from quotaplane.history.tables import LEASES, LIMITS, TABLES, USAGE
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.settings import History
from tests.unit.history.history_cases import (
    NOON_MS,
    full_round,
    limits,
    read,
    rounds,
    usage,
)

pytestmark = pytest.mark.usefixtures("tables")

STAMP = Round(1, 7, NOON_MS)


def data_of(history: History, name: str) -> list[Path]:
    folder = Path(history.path, name)
    return [file for file in folder.rglob("*.parquet") if "_delta_log" not in file.parts]


def leases(*of_shards: int) -> pa.Table:
    """A snapshot with one row per shard."""
    names = [f"g{shard}" for shard in of_shards]
    rows = pa.table(
        {
            "shard": pa.array(of_shards, pa.int64()),
            "broker": ["b"] * len(names),
            "resource_group": names,
            "broker_status": ["live"] * len(names),
            "has_limit": [False] * len(names),
            "enforced": [True] * len(names),
            "seen_at_ms": pa.array([NOON_MS] * len(names), pa.int64()),
        }
    )
    return replacing(rows, of_shards)


def statistics_in_log(table: DeltaTable) -> dict[str, Any]:
    """The statistics of a table with one file."""
    commits = sorted(Path(table.table_uri.removeprefix("file://"), "_delta_log").glob("*.json"))
    lines = [json.loads(line) for commit in commits for line in commit.read_text().splitlines()]
    (added,) = [line["add"] for line in lines if "add" in line]
    found: dict[str, Any] = json.loads(added["stats"])
    return found


@pytest.mark.parametrize("name", sorted(full_round()))
def test_statistics_are_those_that_deltalake_would_write(
    history: History, name: str, tmp_path: Path
) -> None:
    """With which all readers leave out files that have none of the rows they look for."""
    rows, table = full_round()[name], TABLES[name]
    (file,) = write_rows(history, table, rows, STAMP).files
    write_deltalake(
        tmp_path / "theirs",
        stamped(table, rows, STAMP),
        partition_by=["date"][: len(table.partition_by)],
    )
    ours, theirs = (
        json.loads(file.stats.replace(".000Z", "Z")),
        statistics_in_log(DeltaTable(tmp_path / "theirs")),
    )
    for part in ("minValues", "maxValues", "nullCount"):
        # deltalake counts nulls of bytes and lists, too, which nobody looks for.
        known = ours[part].keys()
        assert known <= theirs[part].keys()
        assert {key: theirs[part][key] for key in known} == ours[part]
    assert ours["minValues"].keys() == theirs["minValues"].keys() - {"raw"}
    assert ours["numRecords"] == theirs["numRecords"] == rows.num_rows


@pytest.mark.parametrize(
    "text", ["", "x" * 31, "x" * 40, "ä\U0010ffff" * 30, "x" * 32 + "\U0010ffff"]
)
def test_long_texts_are_cut_off_on_the_safe_side(text: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"name": [text]}), tmp_path / "file")
    found = statistics(pq.read_metadata(tmp_path / "file"), ["name"])
    assert found["minValues"]["name"] <= text <= found["maxValues"]["name"]
    assert len(found["maxValues"]["name"]) <= 33


def test_only_the_first_columns_have_statistics(history: History) -> None:
    (file,) = write_rows(history, LIMITS, limits([("b", "g", 1.0)]), STAMP).files
    assert len(LIMITS.schema) > 40
    assert len(json.loads(file.stats)["nullCount"]) <= 32


def test_rows_in_files_belong_to_the_table_with_their_commit(history: History) -> None:
    """As JSON they pass from tasks to the driver."""
    made = write_rows(history, USAGE, usage([("b1", "g1", 1.0)]), STAMP)
    assert read(history, "usage").num_rows == 0
    made = Written.from_json(json.loads(json.dumps(made.to_json())))
    with HistoryWriter(history, "checkpoint-1") as writer:
        more = {"usage": usage([("b2", "g1", 2.0)]), "rounds": rounds()}
        writer.append_round(STAMP, more, {"usage": made})
    rows = read(history, "usage").sort_by("broker").to_pylist()
    assert [(row["broker"], row["publish_messages_per_s"]) for row in rows] == [
        ("b1", 1.0),
        ("b2", 2.0),
    ]
    assert {(row["epoch"], row["seq"]) for row in rows} == {(1, 7)}
    assert open_table(history, "usage").version() == 1


def test_a_round_that_runs_again_adds_nothing_and_leaves_no_file(history: History) -> None:
    rows = usage([("b1", "g1", 1.0)])
    with HistoryWriter(history, "checkpoint-1") as writer:
        writer.append_round(STAMP, {}, {"usage": write_rows(history, USAGE, rows, STAMP)})
        again = write_rows(history, USAGE, rows, STAMP)
        assert len(data_of(history, "usage")) == 2
        writer.append_round(STAMP, {}, {"usage": again})
    assert len(data_of(history, "usage")) == 1
    assert read(history, "usage").num_rows == 1


def test_a_commit_that_seems_to_fail_keeps_its_files(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been made: its answer got lost."""
    commit, calls = DeltaTable.create_write_transaction, []

    def lost(table: DeltaTable, *args: Any, **options: Any) -> None:
        commit(table, *args, **options)
        calls.append(table)
        if len(calls) == 1:
            raise OSError("connection lost")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lost)
    with HistoryWriter(history, "checkpoint-1") as writer:
        made = write_rows(history, USAGE, usage([("b1", "g1", 1.0)]), STAMP)
        writer.append_round(STAMP, {"rounds": rounds()}, {"usage": made})
    assert read(history, "usage").num_rows == 1


def test_a_snapshot_in_files_replaces_the_rows_of_its_shards(history: History) -> None:
    later = replace(STAMP, seq=8)
    with HistoryWriter(history, "checkpoint-1") as writer:
        writer.append_round(STAMP, {"leases": leases(0, 1, 2)})
        made = write_rows(history, LEASES, leases(1), later)
        # Of shard 2 no lease is left.
        writer.append_round(
            later, {"leases": replacing(leases(2).slice(0, 0), [2])}, {"leases": made}
        )
    rows = read(history, "leases").sort_by("shard").to_pylist()
    assert [(row["shard"], row["seq"]) for row in rows] == [(0, 7), (1, 8)]


def test_a_failure_leaves_no_file(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    write, calls = pq.write_table, []

    def full(rows: pa.Table, path: str, **options: Any) -> None:
        write(rows, path, **options)
        calls.append(path)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(OSError, match="No space"):
        write_rows(history, LEASES, leases(0, 1, 2), STAMP)
    assert len(calls) == 2
    assert data_of(history, "leases") == []


def test_an_error_of_the_disk_is_one(history: History, capfd: pytest.CaptureFixture[str]) -> None:
    """pyarrow hides it behind one of its own if it is to collect the file's metadata."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_rows(history, USAGE, usage([("b", "g", 1.0)]), STAMP)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    gc.collect()
    assert capfd.readouterr().err == ""


def test_rows_of_another_table_are_refused(history: History) -> None:
    with pytest.raises(HistoryError, match="unknown column"):
        write_rows(history, USAGE, limits([("b", "g", 1.0)]), STAMP)
