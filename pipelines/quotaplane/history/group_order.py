"""Sorts the files of large tables by resource group, so that queries about one group are fast.

A round's file has rows of all groups. This module rewrites the files of a day as *runs*: a run has
each row once, in the order of ``SORTED``, in files with a range of groups each. A reader skips
other files by the statistics in the log, and other row groups by those in the file.

A past day becomes one run. Today's new files become a run together with the runs that are no
larger, so a day has few runs and a row is rewritten few times.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, Schema

from quotaplane.deltalog.log import inside
from quotaplane.deltalog.rewrite import MOST_WRITER_VERSION, NewFile, commit_rewrite
from quotaplane.errors import HistoryError
from quotaplane.history.spill_folder import spill_folder
from quotaplane.texts import utc_text

SORTED: Final = ("resource_group", "broker", "epoch", "seq")
PREFIX: Final = "sorted-"
"""Names of sorted files: the prefix, the run, the number of the file in it."""
ROW_GROUP: Final = 40_000
"""Rows of a Parquet row group, the least that a reader of one group reads. Each row group adds half
a kilobyte per column to the file's metadata."""
FILE_ROWS: Final = 2_000_000
MEMORY: Final = "2GB"

_STATISTICS: Final = ("epoch", "seq", "round_at", "resource_group")
_SETTLES: Final = timedelta(hours=1)
"""Time after midnight in which the job may still write rounds of the day before."""
_MOST_S: Final = 1200.0
"""Seconds after which no further day is begun; the next run continues."""
_SAMPLE: Final = 20_000
_ATTEMPTS: Final = 20


@dataclass(frozen=True)
class _File:
    path: str
    rows: int

    @property
    def run(self) -> str | None:
        """The run that the file belongs to; None: it is not sorted."""
        name = self.path.rpartition("/")[2]
        return name.removeprefix(PREFIX).partition("-")[0] if name.startswith(PREFIX) else None


def can_sort(opened: DeltaTable) -> bool:
    """Whether the table is of the kind that the job makes."""
    protocol = opened.protocol()
    return bool(
        protocol.min_reader_version <= 1 and protocol.min_writer_version <= MOST_WRITER_VERSION
    )


def sort_by_group(
    opened: DeltaTable,
    folder: Path,
    now: datetime,
    check: Callable[[Sequence[str]], None] = lambda _: None,
) -> int:
    """Sort unsorted files; returns the number of replaced ones.

    Only for a table that the caller has claimed against other rewrites (see ``maintenance``). Other
    writers may append meanwhile.

    Args:
        opened: the table, partitioned by ``date``; its newest version is loaded again and again.
        folder: the table's folder.
        now: the time.
        check: takes the files before they are sorted, and raises if one is damaged.

    Raises:
        HistoryError: a file can't be read or written.
    """
    begun = time.monotonic()
    replaced = 0
    for day, files in sorted(_by_day(opened).items(), reverse=True):
        ends = datetime.combine(day, datetime.min.time(), timezone.utc) + timedelta(days=1)
        chosen = to_sort(files, is_over=now >= ends + _SETTLES)
        if chosen and time.monotonic() - begun < _MOST_S:
            check([file.path for file in chosen])
            _rewrite(opened, folder, day, chosen)
            replaced += len(chosen)
    return replaced


def to_sort(files: Sequence[_File], *, is_over: bool) -> list[_File]:
    """The files of a day that should become one run.

    >>> new, small = _File("date=2026-03-01/part-1.parquet", 5), _File("sorted-a-0.parquet", 4)
    >>> large = _File("sorted-b-0.parquet", 10)
    >>> to_sort([large, new, small], is_over=False) == [new, small]
    True
    >>> len(to_sort([large, new, small], is_over=True)), to_sort([large], is_over=True)
    (3, [])
    """
    runs: dict[str, list[_File]] = {}
    chosen = []
    for file in files:
        if file.run is None:
            chosen.append(file)
        else:
            runs.setdefault(file.run, []).append(file)
    if not chosen and (len(runs) <= 1 or not is_over):
        return []
    rows = sum(file.rows for file in chosen)
    for run in sorted(runs.values(), key=lambda run: sum(file.rows for file in run)):
        of_run = sum(file.rows for file in run)
        if not is_over and of_run > rows:
            break
        chosen += run
        rows += of_run
    return chosen


def _by_day(opened: DeltaTable) -> dict[date, list[_File]]:
    listed = pa.RecordBatchReader.from_stream(opened.get_add_actions(flatten=True)).read_all()
    days: dict[date, list[_File]] = {}
    for path, rows, day in zip(
        listed["path"].to_pylist(),
        listed["num_records"].to_pylist(),
        listed["partition.date"].to_pylist(),
        strict=True,
    ):
        days.setdefault(day, []).append(_File(inside(path), rows or 0))
    return days


def _rewrite(opened: DeltaTable, folder: Path, day: date, files: Sequence[_File]) -> None:
    schema = pa.schema(Schema.to_arrow(opened.schema()))
    columns = pa.schema([field for field in schema if field.name != "date"])
    made: list[NewFile] = []
    committed = False
    try:
        with _database() as database:
            for file in written(database, folder, day, columns, [f.path for f in files]):
                made.append(file)
        if sum(file.rows for file in made) != _rows_of(folder, files):
            raise HistoryError(f"history table {folder.name}: sorting {day} lost rows")
        committed = _commit(opened, folder, day, files, made)
    except duckdb.Error as error:
        text = str(error).partition("\n")[0]
        raise HistoryError(f"history table {folder.name}: sorting {day}: {text}") from None
    finally:
        if not committed:
            for file in made:
                with suppress(OSError):
                    (folder / file.path).unlink()


def _commit(
    opened: DeltaTable,
    folder: Path,
    day: date,
    files: Sequence[_File],
    made: Sequence[NewFile],
) -> bool:
    partition = {"date": day.isoformat()}
    removed = {file.path: partition for file in files}
    for _ in range(_ATTEMPTS):
        opened.update_incremental()
        live = {file.path for file in _by_day(opened).get(day, ())}
        if not live.issuperset(removed):
            return False  # another program rewrote or expired them; the next run tries again
        if commit_rewrite(folder, opened.version() + 1, removed, made):
            opened.update_incremental()
            return True
    raise HistoryError(f"history table {folder.name}: too many writers, try again")


def written(
    database: duckdb.DuckDBPyConnection,
    folder: Path,
    day: date,
    columns: pa.Schema,
    paths: Sequence[str],
) -> Iterator[NewFile]:
    """Write the rows of files as one run, in a file for each range of groups.

    A range has about ``FILE_ROWS`` rows, so it is sorted in memory.
    """
    database.register("no_rows", columns.empty_table())
    database.execute("SET VARIABLE files = $files", {"files": [str(folder / p) for p in paths]})
    database.execute(
        "CREATE OR REPLACE TEMP VIEW unsorted AS SELECT * FROM no_rows UNION ALL BY NAME "
        "SELECT * FROM read_parquet(getvariable('files'), union_by_name = true, "
        "hive_partitioning = false)"
    )
    run = uuid.uuid4().hex
    for number, (begin, end) in enumerate(_ranges(database)):
        yield write_file(
            database,
            folder,
            NewFile(f"date={day}/{PREFIX}{run}-{number}.parquet", {"date": str(day)}, 0, {}, {}),
            "SELECT * FROM unsorted WHERE ($1 IS NULL OR resource_group >= $1) "
            f"AND ($2 IS NULL OR resource_group < $2) ORDER BY {', '.join(SORTED)}",
            [begin, end],
        )


def write_file(
    database: duckdb.DuckDBPyConnection,
    folder: Path,
    file: NewFile,
    query: str,
    values: Sequence[Any] = (),
) -> NewFile:
    """Write the rows of a query to a file; returns it with its statistics."""
    path = folder / file.path
    path.parent.mkdir(exist_ok=True)
    if values:
        # COPY takes no parameters.
        for place, value in enumerate(values, 1):
            query = query.replace(f"${place}", "NULL" if value is None else _quoted(value))
    database.execute(
        f"COPY ({query}) TO {_quoted(str(path))} (FORMAT parquet, COMPRESSION zstd, "
        f"COMPRESSION_LEVEL 1, ROW_GROUP_SIZE {ROW_GROUP})"
    )
    wanted = ", ".join(f"min({c}), max({c})" for c in _STATISTICS)
    (row,) = database.execute(
        f"SELECT count(*), {wanted} FROM read_parquet($path, hive_partitioning = false)",
        {"path": str(path)},
    ).fetchall()
    ends = [_as_json(value) for value in row[1:]]
    return NewFile(
        file.path,
        file.partition,
        row[0],
        dict(zip(_STATISTICS, ends[::2], strict=True)),
        dict(zip(_STATISTICS, ends[1::2], strict=True)),
    )


def _ranges(database: duckdb.DuckDBPyConnection) -> list[tuple[str | None, str | None]]:
    """Ranges of groups with about as many rows each; None: from the first, up to the last one.

    The end of a range is not part of it.
    """
    ((total,),) = database.execute("SELECT count(*) FROM unsorted").fetchall()
    parts = -(-total // FILE_ROWS)
    if parts <= 1:
        return [(None, None)]
    sample = database.execute(
        f"SELECT resource_group FROM unsorted USING SAMPLE reservoir({_SAMPLE} ROWS)"
    ).fetchall()
    names = sorted(name for (name,) in sample)
    bounds = sorted({names[part * len(names) // parts] for part in range(1, parts)} - {names[0]})
    return list(zip([None, *bounds], [*bounds, None], strict=True))


def _rows_of(folder: Path, files: Iterable[_File]) -> int:
    """The number of rows in the files, by their own metadata."""
    with _database() as database:
        ((rows,),) = database.execute(
            "SELECT sum(num_rows) FROM parquet_file_metadata($files)",
            {"files": [str(folder / file.path) for file in files]},
        ).fetchall()
    return int(rows or 0)


@contextmanager
def _database() -> Iterator[duckdb.DuckDBPyConnection]:
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
            yield database
        finally:
            database.close()


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return utc_text(value, "microseconds")
    return value


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
