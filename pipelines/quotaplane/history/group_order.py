"""Sorts the days of large tables by resource group, so that questions about one group are quick.

A round's file has rows of all groups. A day that is over is written anew, each row once, in the
order of ``SORTED``: a reader leaves out the other files by the statistics in the log, and the other
row groups by those in the file. Sorted files are compressed with ZSTD, all others with LZ4.

``DeltaTable.optimize.z_order`` does not do: it compares the first 16 bytes of a name, so groups of
one cluster or tenant stay unsorted (docs/adr/0025).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, Schema, WriterProperties, write_deltalake

from quotaplane.deltalog.durable import COMMIT_ONLY
from quotaplane.deltalog.read import live_paths
from quotaplane.errors import HistoryError
from quotaplane.history.spill_folder import spill_folder
from quotaplane.history.tables import column_properties

SORTED: Final = ("resource_group", "broker", "epoch", "seq")
MEMORY: Final = "1GB"
SORTED_FILES: Final = WriterProperties(
    compression="ZSTD",
    compression_level=1,
    column_properties=column_properties(),
    max_row_group_size=40_000,
)
"""A reader of one group reads a row group at least. Smaller ones cost more of what it must know of
the file: half a kilobyte a column."""
UNSORTED_FILES: Final = WriterProperties(
    compression="LZ4_RAW", column_properties=column_properties()
)

_SETTLES: Final = timedelta(hours=1)
"""Time after midnight in which the job may still write rounds of the day before."""
_BATCH: Final = 100_000
FILE_BYTES: Final = 32 << 20


def is_sorted(path: str) -> bool:
    """Whether a data file is one of a sorted day.

    >>> is_sorted("date=2026-03-01/part-0-c000.zstd.parquet")
    True
    """
    return path.endswith(".zstd.parquet")


def unsorted_days(paths: Sequence[str]) -> dict[date, list[str]]:
    """All files of the days with files that are not sorted.

    >>> unsorted_days(["date=2026-03-01/a.lz4raw.parquet", "date=2026-02-28/a.zstd.parquet"])
    {datetime.date(2026, 3, 1): ['date=2026-03-01/a.lz4raw.parquet']}
    """
    days: dict[date, list[str]] = {}
    for path in paths:
        folder = path.partition("/")[0]
        days.setdefault(date.fromisoformat(folder.removeprefix("date=")), []).append(path)
    return {day: files for day, files in sorted(days.items()) if not all(map(is_sorted, files))}


def sort_by_group(opened: DeltaTable, folder: Path, now: datetime) -> int:
    """Sort the days that are over, and make few files of the other ones; returns how many were
    replaced.

    Others may append meanwhile. Only for a table that the caller has claimed against other
    rewrites (see ``maintenance``).

    Args:
        opened: the newest version of a table that is partitioned by ``date``.
        folder: the table's folder.
        now: the time.

    Raises:
        CommitFailedError: somebody appended to a day that was being sorted; to be repeated.
        HistoryError: a file can't be read.
        DeltaError, OSError: one can't be written.
    """
    replaced = 0
    current = []
    for day, files in unsorted_days(live_paths(opened)).items():
        ends = datetime.combine(day, datetime.min.time(), timezone.utc) + timedelta(days=1)
        if now >= ends + _SETTLES:
            _sort(opened, folder, day, files)
            replaced += len(files)
        else:
            current.append(day.isoformat())
    if current:
        done = opened.optimize.compact(
            partition_filters=[("date", "in", current)],
            writer_properties=UNSORTED_FILES,
            post_commithook_properties=COMMIT_ONLY,
        )
        replaced += int(done["numFilesRemoved"])
    return replaced


def _sort(opened: DeltaTable, folder: Path, day: date, files: Sequence[str]) -> None:
    nothing = pa.schema(Schema.to_arrow(opened.schema())).empty_table()
    with spill_folder() as spill:
        database = duckdb.connect(
            config={
                "memory_limit": MEMORY,
                "threads": min(2, os.cpu_count() or 1),
                "temp_directory": str(spill),
            }
        )
        try:
            database.execute("SET TimeZone = 'UTC'")
            database.register("nothing", nothing)
            rows = database.read_parquet(
                [str(folder / file) for file in files], union_by_name=True, hive_partitioning=False
            )
            database.register("of_day", rows)
            ordered = database.sql(
                f"SELECT * FROM nothing UNION ALL BY NAME SELECT *, DATE '{day}' AS date "
                f"FROM of_day ORDER BY {', '.join(SORTED)}"
            )
            write_deltalake(
                opened,
                ordered.to_arrow_reader(_BATCH),
                mode="overwrite",
                predicate=f"date = '{day}'",
                target_file_size=FILE_BYTES,
                writer_properties=SORTED_FILES,
                post_commithook_properties=COMMIT_ONLY,
            )
        except duckdb.Error as error:
            text = str(error).partition("\n")[0]
            raise HistoryError(f"history table {folder.name}: sorting {day}: {text}") from None
        finally:
            database.close()
