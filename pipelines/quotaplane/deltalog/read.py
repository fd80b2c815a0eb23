"""Reads a table's rows, also safely in processes that end soon afterwards.

Uses the engine of the deltalake package. ``to_pyarrow_dataset``, ``to_pyarrow_table`` and
``to_pandas`` use pyarrow's threads, which call back into Python: a process that ends soon
afterwards sometimes aborts (one in eight was measured; exit code 134).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from quotaplane.deltalog.checksums import Checksums
from quotaplane.deltalog.error_text import DOCTOR
from quotaplane.deltalog.log import LOG, Log, inside, local_folder, read_commit

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
        DeltaError, OSError, ValueError: as ``read_rows``; OSError: bytes of it are damaged.
    """
    folder = local_folder(table.table_uri)
    if folder is not None:
        last = table.version() if upto is None else upto
        refuse(changes_fault(folder, range(since, last + 1)))
    names = None if columns is None else list(columns)
    return _read(table.load_cdf(starting_version=since, ending_version=upto, columns=names))


def refuse(fault: str | None) -> None:
    """Raise OSError for a fault that was found in a table."""
    if fault is not None:
        raise OSError(f"{fault}; {DOCTOR}")


def live_paths(table: DeltaTable) -> list[str]:
    """The paths of the data files of an opened table, relative to it.

    Raises:
        OSError: one of them is outside the table's folder.
    """
    listed = pa.RecordBatchReader.from_stream(table.get_add_actions()).read_all()
    return [inside(path) for path in listed["path"].to_pylist()]


def changes_fault(folder: Path, versions: Iterable[int]) -> str | None:
    """The first file of some versions whose bytes are damaged, and what is wrong; None: none is.

    Looks at their commits, and at the change data that these name, or the data of those without.
    Versions without a commit are passed over.

    Raises:
        OSError: the disk does not let one be read.
    """
    checksums, log = Checksums(folder), Log(folder, {}, {})
    for version in versions:
        commit = log.commit(version)
        names = [f"{LOG}/{commit.name}"]
        with suppress(FileNotFoundError, ValueError):  # its reader says so
            made = read_commit(commit)
            names += (file.path for file in made.change_data or made.added)
        fault = checksums.first_fault(names)
        if fault is not None:
            return fault
    return None


def _read(stream: Any) -> pa.Table:
    rows = pa.RecordBatchReader.from_stream(stream).read_all()
    # Strings arrive as views, which few pyarrow functions support.
    return rows.cast(pa.schema([field.with_type(_plain(field.type)) for field in rows.schema]))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    return _OF_VIEWS.get(kind, kind)
