"""The Parquet files that make up a Delta table now, as its log lists them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable

_READABLE: Final = 1
"""The Delta reader version of tables whose live rows are the rows of their files; later ones have
deletion vectors, or columns by other names."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


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
    # Most functions of pyarrow would import pandas, which takes a quarter of a second.
    listed = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    paths = listed["path"].to_pylist()
    if "max.round_at" in listed.column_names:
        first, last = (_microseconds(listed[f"{end}.round_at"]) for end in ("min", "max"))
        begin, end = (None if moment is None else _of(moment) for moment in (since, until))
        # A file without statistics is read.
        paths = [
            path
            for path, least, most in zip(paths, first, last, strict=True)
            if (begin is None or most is None or most >= begin)
            and (end is None or least is None or least <= end)
        ]
    return [str(folder / path) for path in paths]


def _microseconds(times: pa.ChunkedArray) -> list[int | None]:
    found: list[int | None] = times.cast(pa.int64()).to_pylist()
    return found


def _of(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
