"""A quick check of each of the history's tables: it exists, and is whole according to its log."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from quotaplane.deltalog.log import commit_time
from quotaplane.errors import HistoryError
from quotaplane.history.store import has_table, one_line, open_table
from quotaplane.history.tables import TABLES, Table
from quotaplane.settings import History


class TableState(NamedTuple):
    """The state of a table."""

    table: str
    exists: bool
    version: int | None
    """The newest one."""
    committed_at: datetime | None
    """When it was committed, UTC."""
    files: int | None
    """Live data files."""
    bytes: int | None
    """Their size."""
    fault: str | None
    """The fault that was found; None: none."""


def table_health(history: History) -> list[TableState]:
    """The state of every table; reads their logs, and no rows."""
    return [_state(history, table) for table in TABLES.values()]


def _state(history: History, table: Table) -> TableState:
    try:
        if not has_table(history, table.name):
            return TableState(table.name, False, None, None, None, None, "is missing")
        opened = open_table(history, table.name)
        files = pa.table(opened.get_add_actions())
        (last,) = opened.history(1)
        at = None if last.get("timestamp") is None else commit_time(last)
    except (HistoryError, DeltaError, OSError, ValueError) as error:
        return TableState(table.name, True, None, None, None, None, one_line(error))
    size = pc.sum(files["size_bytes"]).as_py() if len(files) else 0
    return TableState(table.name, True, opened.version(), at, len(files), size or 0, None)
