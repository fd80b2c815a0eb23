"""Upgrades the tables of a history that an earlier version made: columns got other names.

Earlier versions had columns that SQL needs quotes for. The rows of a table are written anew under
the new names, in one commit. All versions of ``resource_groups`` are renamed: the checkpoints of
jobs that follow its changes stay valid, and ``quotaplane groups history`` has them all.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from quotaplane.deltalog.checksums import CHECKSUMS
from quotaplane.deltalog.durable import COMMIT_ONLY, Synced
from quotaplane.deltalog.log import (
    LAST_CHECKPOINT,
    LOG,
    UNEXPECTED,
    inside,
    local_folder,
    read_commit,
)
from quotaplane.deltalog.read import read_rows
from quotaplane.errors import HistoryError
from quotaplane.files import fsync
from quotaplane.history.store import (
    keep,
    nobody_writing,
    one_line,
    place,
    storage_options,
    table_uri,
)
from quotaplane.history.table_parts import RENAMED
from quotaplane.history.tables import LIMITS, RESOURCE_GROUPS, TABLES, Table
from quotaplane.laws.reason import REASON_BEGINNINGS
from quotaplane.settings import History

_TEXT: Final = "_reason"


def upgrade(history: History, say: Callable[[str], None]) -> list[str]:
    """Upgrade all tables that need it; returns their names.

    Raises:
        HistoryError: a table can't be read or written, or something is writing to the history.
    """
    with nobody_writing(history) as free:
        if not free:
            raise HistoryError(
                f"history at {place(history)}: a job or a command is writing to it; stop it first"
            )
        return [name for name in TABLES if _upgraded(history, TABLES[name], say)]


def _upgraded(history: History, table: Table, say: Callable[[str], None]) -> bool:
    uri, options = table_uri(history, table.name), storage_options(history)
    folder = local_folder(history.path)
    try:
        if folder is not None:
            _finish_swap(folder / table.name)
        if not DeltaTable.is_deltatable(uri, options):
            return False
        opened = DeltaTable(uri, storage_options=options)
        if not {field.name for field in opened.schema().fields} & RENAMED.keys():
            return False
        before = opened.version()
        if table is RESOURCE_GROUPS and folder is not None:
            rows = _rename_everywhere(folder / table.name)
        else:
            rows = _rewrite(table, opened)
        opened = DeltaTable(uri, storage_options=options)
        keep(Synced(uri), opened, table.name, before=before)
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise HistoryError(f"history table {table.name}: {one_line(error)}") from None
    say(f"upgraded {table.name}: {rows} rows")
    return True


def _rewrite(table: Table, opened: DeltaTable) -> int:
    """Replace all rows in one commit; they are read and written some at a time."""
    schema = pa.schema([field.remove_metadata() for field in table.schema])
    rows = 0
    found = iter(pa.RecordBatchReader.from_stream(opened.scan()))

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in _in_thread(found):
            rows += batch.num_rows
            yield from _renamed(table, pa.Table.from_batches([batch]), schema).to_batches()

    write_deltalake(
        opened,
        pa.RecordBatchReader.from_batches(schema, batches()),
        mode="overwrite",
        schema_mode="overwrite",
        post_commithook_properties=COMMIT_ONLY,
    )
    return rows


def _in_thread(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, read in a thread of its own: deltalake can't read in a thread that it writes in.

    A few wait at a time.
    """
    waiting: Queue[pa.RecordBatch | BaseException | None] = Queue(maxsize=4)

    def read() -> None:
        try:
            for batch in batches:
                waiting.put(batch)
            waiting.put(None)
        except BaseException as error:
            waiting.put(error)

    Thread(target=read, name="upgrade", daemon=True).start()
    while (item := waiting.get()) is not None:
        if isinstance(item, BaseException):
            raise item
        yield item


def _renamed(table: Table, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    rows = rows.rename_columns([RENAMED.get(name, name) for name in rows.column_names])
    columns = []
    for field in schema:
        dimension = field.name.removesuffix("_reason_code")
        if table is LIMITS and field.name == f"{dimension}_reason_code":
            columns.append(_codes(rows, dimension))
        elif field.name in rows.column_names:
            columns.append(rows[field.name].cast(field.type))
        else:
            columns.append(pa.nulls(len(rows), field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _codes(rows: pa.Table, dimension: str) -> pa.Array:
    """The codes of reasons of which only the text was recorded; its numbers are lost."""
    if f"{dimension}{_TEXT}" not in rows.column_names:
        return pa.nulls(len(rows), pa.int32())
    texts = rows[f"{dimension}{_TEXT}"].cast(pa.string())
    codes = np.full(len(rows), -1, np.int32)
    for beginning, code in REASON_BEGINNINGS:
        found = pc.starts_with(texts, beginning).fill_null(False).to_numpy()
        codes[found & (codes < 0)] = code
    return pa.array(codes, mask=codes < 0)


def _rename_everywhere(folder: Path) -> int:
    """Rename the columns in all versions of a table: in its log, its data and its change data.

    The renamed table is made beside the old one, which stays as ``NAME.before-upgrade``.
    """
    made = folder.with_name(f"{folder.name}.upgraded")
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(folder, made)
    for file in made.rglob("*.parquet"):
        if LOG not in file.relative_to(made).parts:
            rows = pq.read_table(file)
            names = [RENAMED.get(name, name) for name in rows.column_names]
            pq.write_table(rows.rename_columns(names), file, compression="zstd")
    for commit in (made / LOG).glob("*.json"):
        with _named_if_damaged(commit):
            read_commit(commit)
            lines = commit.read_text("utf-8").splitlines()
            actions = [_renamed_action(json.loads(line), made) for line in lines if line.strip()]
        commit.write_text("".join(json.dumps(each) + "\n" for each in actions), "utf-8")
    for file in (made / LOG).glob("*.checkpoint.parquet"):
        with _named_if_damaged(file):
            rows = pq.read_table(file)
            kept = [_renamed_action(action, made) for action in rows.to_pylist()]
        pq.write_table(pa.Table.from_pylist(kept, rows.schema), file)
    (made / LOG / LAST_CHECKPOINT).unlink(missing_ok=True)  # has the checkpoint's size and checksum
    (made / LOG / CHECKSUMS).unlink(missing_ok=True)
    for path in (*made.rglob("*"), made):
        fsync(path)
    folder.rename(folder.with_name(f"{folder.name}.before-upgrade"))
    _finish_swap(folder)
    return len(read_rows(DeltaTable(folder)))


@contextmanager
def _named_if_damaged(file: Path) -> Iterator[None]:
    """A file of the log that can't be read as one is an error with its name.

    Raises:
        OSError: it is damaged.
    """
    try:
        yield
    except UNEXPECTED as error:
        # Those of ``read_commit`` are sentences.
        problem = error if type(error) is ValueError else "is damaged"
        raise OSError(f"{LOG}/{file.name} {problem}") from None


def _finish_swap(folder: Path) -> None:
    """Put the renamed table in its place; an upgrade may have been killed just before that."""
    made = folder.with_name(f"{folder.name}.upgraded")
    if made.exists() and not folder.exists():
        made.rename(folder)
        fsync(folder.parent)


def _renamed_action(action: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A line of a commit, or a row of a checkpoint, under the new names and with the new sizes."""
    metadata = action.get("metaData")
    if metadata:
        schema = json.loads(metadata["schemaString"])
        for field in schema["fields"]:
            field["name"] = RENAMED.get(field["name"], field["name"])
        metadata["schemaString"] = json.dumps(schema)
    for kind in ("add", "cdc", "remove"):
        file = action.get(kind)
        if not file:
            continue
        path = folder / inside(unquote(file["path"]))
        if "size" in file and path.exists():
            file["size"] = path.stat().st_size
        if file.get("stats"):
            file["stats"] = json.dumps(_renamed_keys(json.loads(file["stats"])))
    return action


def _renamed_keys(stats: dict[str, Any]) -> dict[str, Any]:
    return {
        kind: {RENAMED.get(name, name): value for name, value in values.items()}
        if isinstance(values, dict)
        else values
        for kind, values in stats.items()
    }
