"""The checks of ``quotaplane doctor`` on a store: each file is there, with its size.

A store keeps what it has acknowledged, so bytes are not compared; a table there can't be mended.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from quotaplane.deltalog.error_text import with_advice
from quotaplane.deltalog.log import LOG
from quotaplane.errors import HistoryError
from quotaplane.history.store import (
    has_table,
    open_table,
    require_history,
    storage_options,
    table_uri,
)
from quotaplane.history.tables import TABLES
from quotaplane.settings import History


class StoredTable(NamedTuple):
    """A table on a store."""

    name: str
    table: DeltaTable | None
    """None: it can't be opened."""
    files: int
    """Data files of its newest version."""
    problems: list[tuple[str, str]]
    """Files, and what is wrong with them."""


def stored_tables(history: History) -> Iterator[StoredTable]:
    """Check each table of a history on a store.

    Raises:
        ConfigError: there is no history.
        HistoryError: the store can't be reached.
    """
    require_history(history)
    for name in TABLES:
        uri = table_uri(history, name)
        if not has_table(history, name):
            yield StoredTable(name, None, 0, [(uri, "is missing")])
            continue
        try:
            table = open_table(history, name)
        except HistoryError as error:
            yield StoredTable(name, None, 0, [(LOG, str(error))])
            continue
        files = pa.RecordBatchReader.from_stream(table.get_add_actions()).read_all()
        there = _sizes(_store(history, uri), "")
        problems = []
        for path, size in zip(*(files[n].to_pylist() for n in ("path", "size_bytes")), strict=True):
            if there.get(path) is None:
                problems.append((path, "is missing"))
            elif there[path] != size:
                problems.append((path, f"has {there[path]} bytes instead of {size}"))
        yield StoredTable(name, table, len(files), problems)


def fetch_checkpoint(history: History, place: str, into: Path) -> bool:
    """Copy what ``checkpoint_findings`` reads of a checkpoint on a store; False: it is empty.

    Raises:
        HistoryError: the store can't be reached.
    """
    try:
        store = _store(history, place)
        wanted = [name for name in _sizes(store, "") if "/" not in name]
        for log in ("offsets", "commits"):
            (into / log).mkdir()
            names = [name.rpartition("/")[2] for name in _sizes(store, log)]
            newest = sorted((name for name in names if name.isdigit()), key=int)[-2:]
            wanted += [f"{log}/{name}" for name in newest]
        for path in wanted:
            with store.open_input_file(path) as file:
                (into / path).write_bytes(file.read())
    except (DeltaError, OSError) as error:
        raise HistoryError(f"checkpoint {place}: {with_advice(error)}") from None
    return bool(wanted)


def _store(history: History, place: str) -> fs.FileSystem:
    return fs.PyFileSystem(DeltaStorageHandler(place, storage_options(history)))


def _sizes(store: fs.FileSystem, folder: str) -> dict[str, int]:
    """The files of a folder, and below it, with their bytes."""
    below = store.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
    return {info.path: info.size for info in below if info.is_file}
