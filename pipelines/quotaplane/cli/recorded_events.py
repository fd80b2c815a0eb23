"""Reads recorded request events for a dry run: from a Delta table or Parquet files, sorted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from quotaplane.deltalog.error_text import one_line
from quotaplane.errors import InputError
from quotaplane.history.spill_folder import spill_folder
from quotaplane.query.duckdb_rows import escaped
from quotaplane.throttle.dry_runs import DECIDED

PIECE: Final = 1_000_000
"""Events in memory at a time."""
_MEMORY: Final = "1GB"
"""Most memory for sorting; the rest goes to the system's temporary folder."""

_TIMES: Final = frozenset(
    (
        *("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"),
        *("timestamp with time zone", "timestamptz_ns"),
    )
)
_NUMBERS: Final = frozenset(
    (
        *("tinyint", "smallint", "integer", "bigint", "hugeint"),
        *("utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"),
        *("float", "double", "decimal"),
    )
)
_KINDS: Final = {
    "entity": ({"varchar"}, "a string"),
    "at": (_TIMES, "a timestamp"),
    "units": (_NUMBERS, "a number"),
    "dimension": ({"varchar"}, "a string"),
    "position": ({"varchar"}, "a string"),
}
_NEEDED: Final = ("entity", "at", "units")
_ADDED: Final = ("at_ms", "reason", *DECIDED.names)


@contextmanager
def recorded_events(path: str) -> Iterator[Iterator[pa.Table]]:
    """Events in pieces, as ``throttle.dry_runs.answer`` takes them; the first piece is empty.

    Of an entity's events with equal times, the one with the lower ``position`` comes first (shorter
    texts, then alphabetical order, so that offsets are in numeric order); without positions, the
    one with fewer units.

    Args:
        path: a Delta table, a Parquet file, or a folder of Parquet files. Times without a time zone
            are in UTC.

    Raises:
        InputError: it can't be read, or a column is missing, has another type, or the name of a
            column that is added.
        HistoryError: the temporary folder can't be made.
    """
    with spill_folder() as spill:
        database = duckdb.connect(
            config={
                "memory_limit": _MEMORY,
                "temp_directory": str(spill),
                "autoinstall_known_extensions": False,
            }
        )
        try:
            database.execute("SET TimeZone = 'UTC'")
            yield _sorted(database, _source(database, path))
        except (duckdb.Error, DeltaError, OSError, pa.ArrowException) as error:
            raise InputError(f"{path}: can't be read: {one_line(error)}") from None
        finally:
            database.close()


def _source(database: duckdb.DuckDBPyConnection, path: str) -> duckdb.DuckDBPyRelation:
    if not Path(path).is_file() and DeltaTable.is_deltatable(path):
        rows = pa.RecordBatchReader.from_stream(DeltaTable(path).scan())
        return database.from_arrow(rows)
    files = f"{escaped(path)}/**/*.parquet" if Path(path).is_dir() else escaped(path)
    return database.read_parquet(files)


def _sorted(
    database: duckdb.DuckDBPyConnection, events: duckdb.DuckDBPyRelation
) -> Iterator[pa.Table]:
    names = events.columns
    _check(dict(zip(names, (kind.id for kind in events.types), strict=True)))
    columns = {name: _quoted(name) for name in names}
    columns |= {
        "at_ms": 'epoch_ms(CAST("at" AS TIMESTAMPTZ))',
        # A column of nothing but null has no type yet.
        "entity": "CAST(entity AS VARCHAR)",
        "dimension": f"CAST({'dimension' if 'dimension' in names else 'NULL'} AS VARCHAR)",
    }
    shown = ", ".join(f"{value} AS {_quoted(name)}" for name, value in columns.items())
    tie = "length(position), position" if "position" in names else "units"
    database.register("events", events)
    ordered = database.sql(f"SELECT {shown} FROM events ORDER BY entity, dimension, at_ms, {tie}")
    reader = ordered.to_arrow_reader(PIECE)
    yield reader.schema.empty_table()
    for batch in reader:
        yield pa.Table.from_batches([batch])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _check(kinds: dict[str, str]) -> None:
    """Raise if the columns, by name with their types, are not those of events."""
    for name in kinds:
        # DuckDB ignores the case of column names, Arrow does not.
        if name.lower() in _KINDS and name not in _KINDS:
            raise InputError(f"events: column {name} must be called {name.lower()}")
        if name.lower() in _ADDED:
            raise InputError(f"events: column {name} has the name of a column that is added")
    for name, (allowed, wanted) in _KINDS.items():
        if name in kinds and kinds[name] not in (*allowed, "null"):
            raise InputError(f"events: column {name} must be {wanted}, not {kinds[name]}")
        if name not in kinds and name in _NEEDED:
            raise InputError(f"events: column {name} is missing")
