"""Writes rows of history tables as Parquet files, which a commit then adds to their tables.

The commit may be made elsewhere: the tasks of a micro-batch write the large tables where their rows
are made, and the driver commits the files of all tasks together. A file without a commit is not
part of its table; ``maintain`` deletes it in time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction

from quotaplane.history.stamped_rows import stamped
from quotaplane.history.store import storage_options, table_uri
from quotaplane.history.table_parts import replaced_by
from quotaplane.history.tables import BYTES_COLUMNS, Table
from quotaplane.model import Round
from quotaplane.settings import History

_MOST_WITH_STATISTICS: Final = 32
"""The log has statistics of so many columns of a table: Delta's default."""
_MOST_CHARS: Final = 32
"""A longer text is cut off in statistics."""
_AFTER_ALL: Final = "\U0010ffff"
"""No text with the same beginning is greater than that beginning followed by this character."""


class Written(NamedTuple):
    """Rows of a table that are in files, which a commit may add to it."""

    files: tuple[AddAction, ...] = ()
    """The files, as the commit has them."""
    replaces: tuple[int, ...] = ()
    """The values of a snapshot table's partition column whose rows they replace."""

    def __add__(self, other: Written) -> Written:  # type: ignore[override]
        """Both, for one commit."""
        return Written((*self.files, *other.files), (*self.replaces, *other.replaces))

    def to_json(self) -> dict[str, Any]:
        """As JSON has it, for ``from_json``."""
        return {"files": [vars(file) for file in self.files], "replaces": self.replaces}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Written:
        """As it was before ``to_json``."""
        return cls(tuple(AddAction(**file) for file in found["files"]), tuple(found["replaces"]))


def write_rows(history: History, table: Table, rows: pa.Table, stamp: Round) -> Written:
    """Write rows of a round (see ``stamped``) into new files of a table, one per partition.

    Raises:
        HistoryError: they are not rows of this table.
        OSError: they could not be written; no file is left.
    """
    store, files = _store(history, table), list[AddAction]()
    try:
        for partition, part in _by_partition(table, stamped(table, rows, stamp)):
            inside = "".join(f"{name}={value}/" for name, value in partition.items())
            path = f"{inside}part-{uuid4()}.parquet"
            files.append(AddAction(path, 0, partition, 0, data_change=True, stats=""))
            files[-1] = _written(store, files[-1], part)
    except BaseException:
        delete_files(history, table, files)
        raise
    return Written(tuple(files), tuple(replaced_by(rows)))


def delete_files(history: History, table: Table, files: Iterable[AddAction]) -> None:
    """Delete files that were written but are not committed; those that can't be stay."""
    if files := [*files]:
        with suppress(OSError):
            store = _store(history, table)
            for file in files:
                with suppress(OSError):
                    store.delete_file(file.path)


def _store(history: History, table: Table) -> DeltaStorageHandler:
    """A table's folder, wherever it is, as deltalake reaches it."""
    try:
        return DeltaStorageHandler(table_uri(history, table.name), storage_options(history))
    except DeltaError as error:
        raise OSError(str(error)) from None


def _by_partition(table: Table, rows: pa.Table) -> Iterator[tuple[dict[str, str], pa.Table]]:
    """The values of the partition columns, of which a table has at most one, and their rows."""
    if not table.partition_by:
        if len(rows):
            yield {}, rows
        return
    (name,) = table.partition_by
    values = pc.unique(rows[name])
    for value in values:
        part = rows if len(values) == 1 else rows.filter(pc.equal(rows[name], value))
        yield {name: str(value.as_py())}, part.drop_columns([name])


def _written(store: DeltaStorageHandler, file: AddAction, rows: pa.Table) -> AddAction:
    kinds, found = {field.name: field.type for field in rows.schema}, list[pq.FileMetaData]()
    with store.open_output_stream(file.path) as out:
        pq.write_table(
            rows,
            out,
            compression="lz4",  # the fastest codec measured; `maintain` rewrites files with ZSTD
            # Measured numbers hardly ever repeat, so a dictionary of them would be made in vain.
            use_dictionary=[name for name, kind in kinds.items() if not _is_measured(kind)],
            write_statistics=[name for name in kinds if name not in BYTES_COLUMNS],
            store_schema=False,
            metadata_collector=found,
        )
        size = out.tell()
    return replace(
        file,
        size=size,
        modification_time=time.time_ns() // 1_000_000,
        stats=json.dumps(statistics(found[0], rows.schema.names)),
    )


def _is_measured(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_floating(kind) or types.is_nested(kind) or types.is_binary(kind))


def statistics(written: pq.FileMetaData, columns: Iterable[str]) -> dict[str, Any]:
    """A file's statistics as Delta's log has them: rows, smallest and largest values, nulls.

    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#per-file-statistics
    """
    wanted = {*[*columns][:_MOST_WITH_STATISTICS]}
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for group in map(written.row_group, range(written.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            name, found = column.path_in_schema, column.statistics
            if name not in wanted or found is None:
                continue
            nulls[name] = nulls.get(name, 0) + found.null_count
            if found.has_min_max:
                least[name] = min(least.get(name, found.min), found.min)
                most[name] = max(most.get(name, found.max), found.max)
    return {
        "numRecords": written.num_rows,
        "minValues": {name: _in_log(value) for name, value in least.items()},
        "maxValues": {name: _in_log(value, _AFTER_ALL) for name, value in most.items()},
        "nullCount": nulls,
    }


def _in_log(value: Any, end: str = "") -> Any:
    """A value of statistics as JSON; ``end``: what a text that is cut off ends with.

    >>> from datetime import timezone
    >>> _in_log(datetime(2026, 3, 1, 12, 0, 0, 5000, tzinfo=timezone.utc))
    '2026-03-01T12:00:00.005Z'
    >>> _in_log("x" * 40, end="~")
    'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx~'
    """
    if isinstance(value, datetime):  # all times of the history are whole milliseconds
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, str) and len(value) > _MOST_CHARS:
        return value[:_MOST_CHARS] + end
    return value
