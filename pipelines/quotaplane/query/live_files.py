"""The Parquet files that make up a Delta table now, as its log lists them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

_READABLE: Final = 1
"""The Delta reader version of tables whose live rows are the rows of their files; later ones have
deletion vectors, or columns by other names."""


def is_plain(table: DeltaTable) -> bool:
    """Whether the table's rows are the rows of its files, so that any Parquet reader may read it.

    The job's own tables are. Another writer may turn on deletion vectors or column mapping.
    """
    return bool(table.protocol().min_reader_version <= _READABLE)


def live_files(
    table: DeltaTable,
    folder: Path,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[str]:
    """The paths of a table's files, without those whose rounds are all outside a time range.

    Args:
        table: the table.
        folder: the table's local folder.
        since: files whose statistics say that all rounds were earlier are left out.
        until: the same of later ones.
    """
    # pa.table() would import pandas, a quarter of a second.
    listed = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    if "max.round_at" in listed.column_names and listed.num_rows:
        # A file without statistics is kept.
        if since is not None:
            listed = listed.filter(_at_least(listed["max.round_at"], since))
        if until is not None:
            listed = listed.filter(pc.invert(_after(listed["min.round_at"], until)))
    return [str(folder / path) for path in listed["path"].to_pylist()]


def _at_least(times: pa.ChunkedArray, since: datetime) -> pa.ChunkedArray:
    return pc.fill_null(pc.greater_equal(times, pa.scalar(since, times.type)), True)


def _after(times: pa.ChunkedArray, until: datetime) -> pa.ChunkedArray:
    return pc.fill_null(pc.greater(times, pa.scalar(until, times.type)), False)
