"""Appending a round to the history: by the deltalake package, on the driver, once and only once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import datetime, timezone
from types import TracebackType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    CommitProperties,
    DeltaTable,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import DeltaError

from quotaplane.deltalog.durable import COMMIT_ONLY, Synced, checkpoint
from quotaplane.errors import HistoryError
from quotaplane.history.store import keep, one_line, open_table, table_uri, writing
from quotaplane.history.tables import (
    APPENDED,
    CHECKPOINT_INTERVAL,
    ROUNDS,
    STAMP_COLUMNS,
    TABLES,
    TIMESTAMP,
    Table,
)
from quotaplane.model import Round
from quotaplane.settings import History

_ATTEMPTS: Final = 5
# Quickest of those tried (docs/adr/0004); `maintain` writes the files again with ZSTD.
_PROPERTIES: Final = WriterProperties(compression="LZ4_RAW")
_LATEST_MS: Final = 253_402_300_799_000
"""The end of the year 9999: later times can be stored but not printed by much."""


def stamped(table: Table, rows: pa.Table, stamp: Round) -> pa.Table:
    """Rows as the table has them.

    ``rows`` has the table's columns without the stamp (epoch, seq, at, date); those that are there
    ``since_later`` may be absent, which stands for null. A timestamp column
    ``x`` is given as ``x_ms``: epoch milliseconds, int64; a negative one becomes null (Kafka's "no
    time") and one past the year 9999 is cut to that. NaN and infinite rates become null. Strings
    may be dictionary arrays.

    Raises:
        HistoryError: a column is missing, unknown, of another type, or null where it must not be.
    """
    at = datetime.fromtimestamp(stamp.now_ms / 1000, tz=timezone.utc)
    constants = {"epoch": stamp.epoch, "seq": stamp.seq, "at": at, "date": at.date()}
    sources = {
        field.name: f"{field.name}_ms" if field.type == TIMESTAMP else field.name
        for field in table.schema
        if field.name not in STAMP_COLUMNS
    }
    absent = table.since_later.difference(rows.column_names)
    unknown = sorted(set(rows.column_names) ^ (set(sources.values()) - absent))
    if unknown:
        problem = "unknown column" if unknown[0] in rows.column_names else "missing column"
        raise HistoryError(f"rows for history table {table.name}: {problem} {unknown[0]}")
    columns = []
    for field in table.schema:
        if field.name in constants:
            value = pa.scalar(constants[field.name], field.type)
            columns.append(pa.repeat(value, rows.num_rows))
            continue
        if field.name in absent:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = _converted(rows.column(sources[field.name]), field, table)
        if not field.nullable and column.null_count:
            raise HistoryError(f"rows for history table {table.name}: {field.name} has a null")
        columns.append(column)
    # Without their comments: a table of an earlier version keeps its own, and takes no others.
    fields = [
        pa.field(field.name, column.type, field.nullable)
        for field, column in zip(table.schema, columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _converted(column: pa.ChunkedArray, field: pa.Field, table: Table) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind) and kind.value_type == field.type:
        return column
    try:
        if field.type == TIMESTAMP:
            known = pc.if_else(pc.greater_equal(column, 0), column, None)
            latest = pc.min_element_wise(known, pa.scalar(_LATEST_MS), skip_nulls=False)
            return latest.cast(pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP)
        if pa.types.is_floating(field.type):
            return pc.if_else(pc.is_finite(column), column, None).cast(field.type)
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise HistoryError(
            f"rows for history table {table.name}: {field.name}: {one_line(error)}"
        ) from None


class HistoryWriter:
    """Appends rounds to ``tables``. One per job; not to be shared by threads.

    ``last``: the table with a row for each round, which is written after all others: a round that
    is there is complete.

    Each append carries (``app_id``, seq) as the Delta transaction, so a replayed round adds
    nothing. ``app_id`` must change with the checkpoint: batch ids start again at 0 there.
    Tables stay open, and other processes may write to them or compact them meanwhile. What is
    appended is on the disk before ``append`` returns.

    Raises:
        HistoryError: a table is missing or is not what this version writes (``ensure_tables``).
    """

    def __init__(
        self,
        history: History,
        app_id: str,
        tables: Sequence[Table] = APPENDED,
        last: Table | None = ROUNDS,
    ) -> None:
        self._history = history
        self._app_id = app_id
        self._last = None if last is None else last.name
        self._tables: dict[str, DeltaTable] = {}
        self._opened_at: dict[str, int] = {}
        self._newest: dict[str, int | None] = {}
        self._synced: dict[str, Synced] = {}
        self._resources = ExitStack()
        self._resources.enter_context(writing(history))
        for table in tables:
            self._open(table.name)
        self._pool = ThreadPoolExecutor(max(len(tables), 1), thread_name_prefix="history")
        self._resources.callback(self._pool.shutdown)

    def __enter__(self) -> HistoryWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the threads go; nothing is left unwritten."""
        self._resources.close()

    def last_seq(self, name: str | None = None) -> int | None:
        """The newest seq that was appended under this ``app_id``; None before any.

        ``name``: of a table; by default the last one (None if there is none).
        """
        name = name or self._last
        if name is None:
            return None
        self._open(name)
        return self._newest[name]

    def append_round(self, stamp: Round, tables: Mapping[str, pa.Table]) -> None:
        """Append a round's rows by table name: all at once, then the last table's.

        Empty tables are not written. What was already appended is left out table by table, so a
        round that was cut off half-way is completed by its replay.

        Raises:
            HistoryError: something could not be written; replaying the round is safe.
        """
        unknown = sorted(tables.keys() - self._tables.keys())
        if unknown:
            raise HistoryError(f"history has no table {unknown[0]} to append to")
        first = [name for name in tables if name != self._last]
        # list(): an exception of any append surfaces here, before the round is called complete.
        list(self._pool.map(lambda name: self.append(name, tables[name], stamp), first))
        if self._last is not None and self._last in tables:
            self.append(self._last, tables[self._last], stamp)

    def append(self, name: str, rows: pa.Table, stamp: Round) -> bool:
        """Append rows to one table (see ``stamped``); False if they were there already or empty."""
        if rows.num_rows == 0:
            return False
        data = stamped(TABLES[name], rows, stamp)
        commit = CommitProperties(app_transactions=[Transaction(self._app_id, stamp.seq)])
        for attempt in range(1, _ATTEMPTS + 1):
            done = self._newest[name]
            if done is not None and done >= stamp.seq:
                return False
            try:
                write_deltalake(
                    self._tables[name],
                    data,
                    mode="append",
                    writer_properties=_PROPERTIES,
                    commit_properties=commit,
                    post_commithook_properties=COMMIT_ONLY,
                )
            except (DeltaError, OSError) as error:
                # Plain conflicts are retried inside; what comes here is a stale handle, another
                # writer with our app_id, or a broken table, which opening it again tells apart.
                if attempt == _ATTEMPTS:
                    raise HistoryError(f"history table {name}: {one_line(error)}") from None
                self._open(name)
                continue
            keep(self._synced[name], self._tables[name], name, before=self._opened_at[name])
            self._newest[name] = stamp.seq
            self._checkpoint_if_due(name)
            return True
        raise AssertionError("unreachable")

    def _checkpoint_if_due(self, name: str) -> None:
        table = self._tables[name]
        if table.version() // CHECKPOINT_INTERVAL <= self._opened_at[name] // CHECKPOINT_INTERVAL:
            return
        # The rows are there, whatever happens here; the next checkpoint due makes up for it.
        with suppress(DeltaError, OSError):
            checkpoint(table, table_uri(self._history, name))
        # A handle replays all commits since the checkpoint it was opened at, each time: one that
        # is never opened again gets slower by 0.25 ms with every append.
        self._open(name)

    def _open(self, name: str) -> None:
        table = open_table(self._history, name)
        try:
            self._newest[name] = table.transaction_version(self._app_id)
        except (DeltaError, OSError) as error:
            raise HistoryError(f"history table {name}: {one_line(error)}") from None
        # What is told to be there already may be another's commit, or one of a run that was killed.
        synced = self._synced.setdefault(name, Synced(table_uri(self._history, name)))
        keep(synced, table, name, before=table.version())
        self._tables[name] = table
        self._opened_at[name] = table.version()
