"""Tasks write the rows of large tables themselves; the history does not show it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from quotaplane.arrow import unpack
from quotaplane.history.disk_mark import DiskMark, leave_mark
from quotaplane.history.tables import STAMP_COLUMNS
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.quota.state import ShardState
from quotaplane.settings import History
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.quota.program import quota_program
from quotaplane.streams.quota.recorded_program import RecordedProgram
from quotaplane.streams.shard_program import Batch, Output
from quotaplane.streams.sink import written_by_tasks
from quotaplane.streams.task_files import FILES, NOT_WRITTEN, TaskFiles
from tests.unit.history.conftest import make_history
from tests.unit.history.history_cases import NOON_MS, read
from tests.unit.streams.shard_cases import SETTINGS, group_changes, packed, usage_report

BATCH = Batch(0, 3, NOON_MS)
STAMP = Round(1, BATCH.seq, BATCH.now_ms)
LARGE = QuotaSpec.tables_of_tasks


def outputs_of_a_round() -> Sequence[Output]:
    program = RecordedProgram(quota_program(SETTINGS, epoch=1), records=True)
    arrived = {"groups": group_changes("g"), "reports": packed(usage_report(), at_ms=NOON_MS)}
    _, outputs = program.run(ShardState(), arrived, BATCH)
    return outputs


def taken(
    history: History,
    outputs: Sequence[Output],
    least_bytes: int = 0,
    mark: DiskMark | None = None,
) -> list[Output]:
    files = TaskFiles(history, 1, LARGE, least_bytes, mark)
    return list(files.without_written(outputs, BATCH))


def rows_of(history: History, outputs: Sequence[Output]) -> dict[str, list[dict[str, object]]]:
    """The history of a round with these outputs."""
    made = {o.kind: unpack(o.payload)[0] for o in outputs if o.kind in LARGE}
    files = written_by_tasks([o.payload for o in outputs if o.kind == FILES])
    with HistoryWriter(history, "checkpoint-1") as writer:
        writer.append_round(STAMP, made, files)
    return {name: read(history, name).to_pylist() for name in LARGE}


@pytest.fixture
def tables(history: History) -> None:
    """The empty tables of the history."""
    make_history(history)


def test_the_history_is_the_same(tmp_path: Path) -> None:
    one, other = (History(path=str(tmp_path / name)) for name in ("one", "other"))
    for history in (one, other):
        make_history(history)
    outputs = outputs_of_a_round()
    in_files = taken(one, outputs)
    assert [output.kind for output in in_files if output.kind in LARGE] == []
    found, wanted = rows_of(one, in_files), rows_of(other, outputs)
    assert found == wanted
    assert all(wanted.values())
    assert {*STAMP_COLUMNS} - {"date"} <= wanted["recording"][0].keys()


@pytest.mark.usefixtures("tables")
def test_the_other_outputs_stay_as_they_are(history: History) -> None:
    outputs = outputs_of_a_round()
    others = [output for output in outputs if output.kind not in LARGE]
    assert {output.kind for output in others} >= {"messages", "counts", "brokers"}
    *left, files = taken(history, outputs)
    assert left == others
    assert written_by_tasks([files.payload]).keys() == {*LARGE}


@pytest.mark.usefixtures("tables")
def test_rows_of_small_rounds_go_to_the_driver(history: History) -> None:
    """It writes those of all shards into one file."""
    outputs = outputs_of_a_round()
    assert taken(history, outputs, QuotaSpec.least_bytes_of_tasks) == [*outputs]


@pytest.mark.usefixtures("tables")
def test_files_of_all_shards_are_committed_together(history: History) -> None:
    outputs = outputs_of_a_round()
    payloads = [taken(history, outputs)[-1].payload for _ in range(3)]
    with HistoryWriter(history, "checkpoint-1") as writer:
        writer.append_round(STAMP, {}, written_by_tasks(payloads))
    (rows,) = (table for kind, table in outputs if kind == "usage")
    assert isinstance(rows, pa.Table)
    assert read(history, "usage").num_rows == 3 * len(rows)


def test_a_disk_that_fails_leaves_it_to_the_driver(tmp_path: Path) -> None:
    """Its error says what is wrong with the disk; that of a task would be one of Spark's."""
    (tmp_path / "history").write_text("no folder")
    outputs = outputs_of_a_round()
    *left, why = taken(History(path=str(tmp_path / "history")), outputs)
    assert left == [*outputs]
    assert why.kind == NOT_WRITTEN
    assert b"does not exist or you don't have access" in why.payload


@pytest.mark.usefixtures("tables")
def test_the_tasks_of_another_machine_write_only_on_the_same_disk(history: History) -> None:
    outputs = outputs_of_a_round()
    mark = leave_mark(history, "quota")
    assert mark is not None
    assert any(output.kind == FILES for output in taken(history, outputs, mark=mark))
    next_one = leave_mark(history, "quota")
    assert next_one is not None
    assert next_one.file == mark.file, "a start leaves no further file"
    assert taken(history, outputs, mark=mark) == outputs, "as if the folder were another one"
    next_one.file.unlink()
    assert taken(history, outputs, mark=next_one) == outputs


def test_a_store_needs_no_mark() -> None:
    assert leave_mark(History(path="s3://bucket/history"), "quota") is None
