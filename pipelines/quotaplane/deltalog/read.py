"""Reads a table's rows, also safely in processes that end soon afterwards.

Uses the engine of the deltalake package. ``to_pyarrow_dataset``, ``to_pyarrow_table`` and
``to_pandas`` use pyarrow's threads, which call back into Python: a process that ends soon
afterwards sometimes aborts (one in eight was measured; exit code 134).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

_OF_VIEWS: Final = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def read_rows(
    table: DeltaTable, columns: Sequence[str] | None = None, predicate: str | None = None
) -> pa.Table:
    """The rows of a table, in any order.

    Raises:
        DeltaError, OSError, ValueError: they can't be read; pyarrow's errors are subclasses of
        these.
    """
    names = None if columns is None else list(columns)
    return _read(table.scan(columns=names, predicate=predicate))


def read_changes(
    table: DeltaTable,
    since: int,
    upto: int | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """The table's change feed from version ``since`` to ``upto`` (None: the newest), in any order.

    Raises:
        DeltaError, OSError, ValueError: as ``read_rows``.
    """
    names = None if columns is None else list(columns)
    return _read(table.load_cdf(starting_version=since, ending_version=upto, columns=names))


def _read(stream: Any) -> pa.Table:
    rows = pa.RecordBatchReader.from_stream(stream).read_all()
    # Strings arrive as views, which few pyarrow functions support.
    return rows.cast(pa.schema([field.with_type(_plain(field.type)) for field in rows.schema]))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    return _OF_VIEWS.get(kind, kind)
