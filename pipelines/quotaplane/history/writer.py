"""Appends rounds to the history, exactly once, with the deltalake package on the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import datetime, timezone
from typing import Any, Final

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
from quotaplane.history.store import keep, not_written, one_line, open_table, table_uri, writing
from quotaplane.history.table_parts import replaced_by
from quotaplane.history.tables import (
    APPENDED,
    CHECKPOINT_INTERVAL,
    ROUNDS,
    STAMP_COLUMNS,
    TABLES,
    TIMESTAMP,
    Table,
    column_properties,
)
from quotaplane.model import Round
from quotaplane.settings import History
from quotaplane.texts import LATEST_MS

_ATTEMPTS: Final = 5
# The fastest codec measured (docs/adr/0004); `maintain` rewrites the files with ZSTD.
_PROPERTIES: Final = WriterProperties(
    compression="LZ4_RAW",
    column_properties=column_properties(),
)


def stamped(table: Table, rows: pa.Table, stamp: Round) -> pa.Table:
    """Convert rows to the table's schema, and add the stamp (epoch, seq, round_at, date).

    ``rows`` has the table's other columns; nullable ones may be absent and become null.
    A timestamp column ``x`` is given as ``x_ms`` (epoch milliseconds, int64): a negative one
    (Kafka's "no time") becomes null, one past the year 9999 is cut to that. NaN and infinite rates
    become null. Strings may be dictionary arrays.

    Raises:
        HistoryError: a column is missing, unknown, of another type, or null where it must not be.
    """
    at = datetime.fromtimestamp(stamp.now_ms / 1000, tz=timezone.utc)
    constants = {"epoch": stamp.epoch, "seq": stamp.seq, "round_at": at, "date": at.date()}
    sources = {
        field.name: f"{field.name}_ms" if field.type == TIMESTAMP else field.name
        for field in table.schema
        if field.name not in STAMP_COLUMNS
    }
    absent = {
        name
        for name, source in sources.items()
        if source not in rows.column_names and table.schema.field(name).nullable
    }
    wanted = {source for name, source in sources.items() if name not in absent}
    unknown = sorted(set(rows.column_names) ^ wanted)
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
    # Without comments: a table keeps those that it was made with and refuses others.
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
            latest = pc.min_element_wise(known, pa.scalar(LATEST_MS), skip_nulls=False)
            return latest.cast(pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP)
        if pa.types.is_floating(field.type):
            return pc.if_else(pc.is_finite(column), column, None).cast(field.type)
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise HistoryError(
            f"rows for history table {table.name}: {field.name}: {one_line(error)}"
        ) from None


def _replaced(table: Table, rows: pa.Table) -> dict[str, Any]:
    """Arguments of ``write_deltalake`` by which a snapshot's rows replace others."""
    values = ", ".join(map(str, replaced_by(rows)))
    return {"mode": "overwrite", "predicate": f"{table.partition_by[0]} IN ({values})"}


class HistoryWriter:
    """Appends rounds to tables. One per job; not thread-safe.

    An append carries (``app_id``, seq) as its Delta transaction, so a replayed round adds nothing.
    Tables stay open; other processes may write to them or compact them. Rows are on the disk when
    ``append`` returns.

    Args:
        history: the tables' location.
        app_id: must change with the checkpoint, where batch ids start again at 0.
        tables: the tables to write.
        last: the table with one row per round. It is written after all others, so a round that has
            a row there is complete.

    Raises:
        HistoryError: a table is missing or has another schema (see ``ensure_tables``).
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
        self._newest: dict[tuple[str, str], int | None] = {}
        """By table and ``app_id``; those that are not here must be looked up."""
        self._synced: dict[str, Synced] = {}
        self._resources = ExitStack()
        self._resources.enter_context(writing(history))
        for table in tables:
            self._open(table.name)
        self._pool = ThreadPoolExecutor(max(len(tables), 1), thread_name_prefix="history")
        self._resources.callback(self._pool.shutdown)

    def __enter__(self) -> HistoryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the threads; all appends have completed by then."""
        self._resources.close()

    def last_seq(self, name: str | None = None) -> int | None:
        """The newest seq that was appended under this ``app_id``; None = none yet.

        ``name`` is a table, by default the last one (None if there is none).
        """
        name = name or self._last
        if name is None:
            return None
        self._open(name)
        return self.newest(name, self._app_id)

    def append_round(self, stamp: Round, tables: Mapping[str, pa.Table]) -> None:
        """Append a round's rows by table name: in parallel, and then the last table's.

        Empty tables are not written. Tables that have the round already are skipped, so a replay
        completes a round that was interrupted.

        Raises:
            HistoryError: something could not be written; replaying the round is safe.
        """
        unknown = sorted(tables.keys() - self._tables.keys())
        if unknown:
            raise HistoryError(f"history has no table {unknown[0]} to append to")
        first = [name for name in tables if name != self._last]
        # list() raises an append's exception here, before the last table gets its row.
        list(self._pool.map(lambda name: self.append(name, tables[name], stamp), first))
        if self._last is not None and self._last in tables:
            self.append(self._last, tables[self._last], stamp)

    def append(
        self,
        name: str,
        rows: pa.Table,
        stamp: Round,
        of: Transaction | None = None,
        *,
        since: int | None = None,
    ) -> bool:
        """Append rows to one table (see ``stamped``); False: it has them already, or no rows.

        Rows of a snapshot table replace others (see ``table_parts.replacing``), also if there are
        none. ``of``: the transaction by which rows beside those of the round are known; ``since``:
        the version of the one before it, 0 for none.

        Raises:
            HistoryError: the rows can't be written, or another process wrote after ``since``.
        """
        of = of or Transaction(self._app_id, stamp.seq)
        table = TABLES[name]
        if rows.num_rows == 0 and not table.snapshot:
            return False
        how: dict[str, Any] = {"mode": "append"}
        if table.snapshot:
            how = _replaced(table, rows)
        data = stamped(table, rows, stamp)
        # deltalake detects no conflict of two writers with one id, so no retry may hide one.
        retries: dict[str, Any] = {} if since is None else {"max_commit_retries": 0}
        commit = CommitProperties(app_transactions=[of], **retries)
        if since is not None:
            self._open(name)
        for attempt in range(1, _ATTEMPTS + 1):
            done = self.newest(name, of.app_id)
            if done is not None and done >= of.version:
                return False
            if since is not None and since != (done or 0):
                raise HistoryError(
                    f"history table {name}: another process writes as {of.app_id}; only one job "
                    "may use this history"
                )
            try:
                write_deltalake(
                    self._tables[name],
                    data,
                    **how,
                    writer_properties=_PROPERTIES,
                    commit_properties=commit,
                    post_commithook_properties=COMMIT_ONLY,
                )
            except (DeltaError, OSError) as error:
                # deltalake retries plain conflicts itself. This is a stale handle, another writer
                # with our app_id, or a broken table; opening the table again shows which.
                if attempt == _ATTEMPTS:
                    raise not_written(self._history, name, error) from None
                self._open(name)
                continue
            keep(self._synced[name], self._tables[name], name, before=self._opened_at[name])
            self._newest[name, of.app_id] = of.version
            self._checkpoint_if_due(name)
            return True
        raise AssertionError("unreachable")

    def newest(self, name: str, app_id: str) -> int | None:
        """The newest version that was appended to an open table under this id; None: none yet."""
        if (name, app_id) not in self._newest:
            try:
                self._newest[name, app_id] = self._tables[name].transaction_version(app_id)
            except (DeltaError, OSError) as error:
                raise not_written(self._history, name, error) from None
        return self._newest[name, app_id]

    def _checkpoint_if_due(self, name: str) -> None:
        table = self._tables[name]
        if table.version() // CHECKPOINT_INTERVAL <= self._opened_at[name] // CHECKPOINT_INTERVAL:
            return
        # A failure loses nothing but speed: the next checkpoint makes up for it.
        with suppress(DeltaError, OSError):
            checkpoint(table, table_uri(self._history, name))
        # A handle replays all commits since the checkpoint at which it was opened. So one that is
        # never opened again gets slower by 0.25 ms with every append.
        self._open(name)

    def _open(self, name: str) -> None:
        table = open_table(self._history, name)
        for key in [key for key in [*self._newest] if key[0] == name]:
            del self._newest[key]
        # The newest commit may be another writer's or a killed run's, so it may not be on the disk.
        synced = self._synced.setdefault(name, Synced(table_uri(self._history, name)))
        keep(synced, table, name, before=table.version())
        self._tables[name] = table
        self._opened_at[name] = table.version()
