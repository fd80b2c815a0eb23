"""Tables are made once, and those that are not ours are refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from quotaplane.errors import HistoryError
from quotaplane.history.ddl import write_all
from quotaplane.history.store import ensure_tables, one_line, open_table, storage_options
from quotaplane.history.tables import APPENDED, RESOURCE_GROUPS, ROUNDS, TABLES
from quotaplane.model import RATE_COLUMNS
from quotaplane.settings import History
from tests.unit.repo.pages import ROOT

DDL = ROOT / "schemas" / "tables"


def test_the_ddl_says_what_the_job_writes(tmp_path: Path) -> None:
    write_all(tmp_path)
    made, kept = (
        {f.name: f.read_text("utf-8") for f in where.iterdir()} for where in (tmp_path, DDL)
    )
    assert kept == made, "run: python -m quotaplane.history.ddl schemas/tables"
    assert made.keys() == {f"{name}.sql" for name in TABLES}


def test_tables_are_made_with_schema_comments_partitions_and_properties(history: History) -> None:
    ensure_tables(history)
    for table in TABLES.values():
        made = DeltaTable(f"{history.path}/{table.name}")
        assert made.schema() == Schema.from_arrow(table.schema)
        assert made.metadata().description == table.comment
        assert made.metadata().partition_columns == list(table.partition_by)
        assert made.metadata().configuration == table.properties
        assert all(field.metadata[b"comment"] for field in table.schema)
    assert RESOURCE_GROUPS.properties["delta.enableChangeDataFeed"] == "true"
    assert APPENDED[-1] is ROUNDS


def test_several_processes_may_make_them_at_once_and_again(history: History) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: ensure_tables(history), range(4)))
    ensure_tables(history)
    assert {open_table(history, name).version() for name in TABLES} == {0}


def test_a_missing_table_is_one_clear_line(history: History) -> None:
    with pytest.raises(HistoryError, match=r"^history table usage at .*/usage: does not exist; "):
        open_table(history, "usage")


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (
            pa.schema([pa.field("resource_group", pa.string(), False)]),
            "column publish_messages_per_s is missing",
        ),
        (
            RESOURCE_GROUPS.schema.set(1, pa.field(RATE_COLUMNS[0], pa.int64())),
            'column publish_messages_per_s is PrimitiveType("long"), '
            'expected PrimitiveType("double")',
        ),
        (
            RESOURCE_GROUPS.schema.append(pa.field("height", pa.float64())),
            "column height is not one that this version writes",
        ),
    ],
)
def test_a_table_with_another_schema_is_refused(
    history: History, schema: pa.Schema, problem: str
) -> None:
    DeltaTable.create(f"{history.path}/resource_groups", Schema.from_arrow(schema))
    with pytest.raises(HistoryError) as refused:
        ensure_tables(history)
    assert str(refused.value).endswith(
        f"/resource_groups: {problem}; this version of quotaplane did not make it: use the version "
        "that did, or another history folder"
    )


def test_a_table_partitioned_otherwise_is_refused(history: History) -> None:
    DeltaTable.create(f"{history.path}/usage", Schema.from_arrow(TABLES["usage"].schema))
    with pytest.raises(HistoryError, match=r"partitioned by \(\), expected \('date',\)"):
        ensure_tables(history)


def test_a_path_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryError, match=r"^history table resource_groups") as refused:
        ensure_tables(History(path=str(tmp_path / "file" / "history")))
    assert "\n" not in str(refused.value)


def test_secrets_reach_the_store_and_nothing_else() -> None:
    history = History(path="s3://bucket/history", storage_options={"AWS_SECRET": "hush"})
    assert storage_options(history) == {"AWS_SECRET": "hush"}
    assert "hush" not in repr(history)
    assert storage_options(History(path="/h")) is None


def test_stack_frames_of_delta_rs_are_cut_off() -> None:
    assert one_line(ValueError("broken\n  0: <unknown>\n")) == "broken"
    assert one_line(ValueError()) == "ValueError"
