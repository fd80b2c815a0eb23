"""A history of an earlier version gets the columns that are new since."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from quotaplane.errors import HistoryError
from quotaplane.history.store import ensure_tables, open_table, table_uri
from quotaplane.history.tables import TABLES
from quotaplane.registry.table import get_group, put_groups
from quotaplane.settings import History
from tests.unit.registry.groups_cases import quota

pytestmark = pytest.mark.slow


def without(history: History, name: str, *absent: str) -> None:
    """Make a table that lacks some columns."""
    table = TABLES[name]
    fields = [field for field in table.schema if field.name not in absent]
    DeltaTable.create(
        table_uri(history, name),
        Schema.from_arrow(pa.schema(fields)),
        partition_by=list(table.partition_by),
        configuration=table.properties,
    )


def test_quotas_go_on_and_may_be_set_in_a_new_dimension(tmp_path: Path) -> None:
    history = History(path=str(tmp_path))
    new = ("request_ms_per_s", "floor_request_ms_per_s")
    without(history, "resource_groups", *new)
    without(history, "usage", "request_ms_per_s", "counter_request_ms", "named_every")
    old = DeltaTable(table_uri(history, "resource_groups"))
    names = [name for name in TABLES["resource_groups"].schema.names if name not in new]
    assert [field.name for field in old.schema().fields] == names
    with pytest.raises(HistoryError, match="column request_ms_per_s is missing"):
        open_table(history, "resource_groups")
    ensure_tables(history)
    put_groups(history, ["g"], quota(1, 2, 3, 4, 5, 6, 7, 8), "ann")
    assert get_group(history, "g")["request_ms_per_s"] == 8.0
    version = open_table(history, "usage").version()
    ensure_tables(history)
    assert open_table(history, "usage").version() == version == 1


def test_a_column_that_no_row_may_lack_can_not_be_added(tmp_path: Path) -> None:
    history = History(path=str(tmp_path))
    without(history, "usage", "broker")
    with pytest.raises(HistoryError, match="column broker is missing"):
        ensure_tables(history)
