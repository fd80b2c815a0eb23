"""The Parquet files that make up a Delta table now, as its log lists them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from quotaplane.deltalog.log import inside

_READABLE: Final = 1
"""The Delta reader version of tables whose live rows are the rows of their files; later ones have
deletion vectors, or columns by other names."""

_CUT_OFF: Final = 32
"""Names of this many characters or more may be cut off in statistics."""

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
    group: str | None = None,
) -> list[str]:
    """The paths of a table's files, without those that have nothing of a time or of a group.

    Args:
        table: the table.
        folder: the table's local folder.
        since: files whose statistics say that all rounds were earlier are left out.
        until: the same of later ones.
        group: files whose statistics say that they lack this resource group are left out.

    Raises:
        OSError: one of the files is outside the folder.
    """
    # Most functions of pyarrow would import pandas, which takes a quarter of a second.
    listed = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    kept = [True] * len(listed)
    if "max.round_at" in listed.column_names:
        first, last = (_microseconds(listed[f"{end}.round_at"]) for end in ("min", "max"))
        if "min.published_at" in listed.column_names:  # reports may be recorded much later
            published = _microseconds(listed["min.published_at"])
            first = [
                a if b is None else min(a or b, b) for a, b in zip(first, published, strict=True)
            ]
        begin, end = (None if moment is None else _of(moment) for moment in (since, until))
        kept = _overlap(first, last, begin, end)
    if group is not None and "max.resource_group" in listed.column_names:
        least, most = (listed[f"{end}.resource_group"].to_pylist() for end in ("min", "max"))
        # Statistics may have only the beginning of a long name.
        most = [None if name is None or len(name) >= _CUT_OFF else name for name in most]
        of_group = _overlap(least, most, group, group)
        kept = [one and other for one, other in zip(kept, of_group, strict=True)]
    paths = [p for p, is_kept in zip(listed["path"].to_pylist(), kept, strict=True) if is_kept]
    return [str(folder / inside(path)) for path in paths]


def _overlap(
    least: Sequence[Any], most: Sequence[Any], begin: Any | None, end: Any | None
) -> list[bool]:
    """Which of the ranges have a value from ``begin`` to ``end``; those without an end may have."""
    return [
        (begin is None or high is None or high >= begin)
        and (end is None or low is None or low <= end)
        for low, high in zip(least, most, strict=True)
    ]


def _microseconds(times: pa.ChunkedArray) -> list[int | None]:
    found: list[int | None] = times.cast(pa.int64()).to_pylist()
    return found


def _of(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)
