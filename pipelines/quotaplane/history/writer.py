"""Appends rounds to the history, exactly once, with the deltalake package on the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any, Final

import pyarrow as pa
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
from quotaplane.history.data_files import Written, delete_files, write_rows
from quotaplane.history.stamped_rows import stamped
from quotaplane.history.store import keep, not_written, open_table, table_uri, writing
from quotaplane.history.table_parts import replaced_by
from quotaplane.history.tables import (
    APPENDED,
    CHECKPOINT_INTERVAL,
    ROUNDS,
    TABLES,
    Table,
    column_properties,
)
from quotaplane.model import Round
from quotaplane.settings import History

_ATTEMPTS: Final = 5
# The fastest codec measured (docs/adr/0004); `maintain` rewrites the files with ZSTD.
_PROPERTIES: Final = WriterProperties(
    compression="LZ4_RAW",
    column_properties=column_properties(),
)
_NOTHING: Final = Written()


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
        self._checkpoints: dict[str, Future[None]] = {}
        """By table; its next append waits, but not what follows its last one (messages)."""
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
        self._end_checkpoint(name)
        self._open(name)
        return self.newest(name, self._app_id)

    def append_round(
        self,
        stamp: Round,
        tables: Mapping[str, pa.Table],
        written: Mapping[str, Written] | None = None,
    ) -> None:
        """Append a round's rows by table name: in parallel, and then the last table's.

        Empty tables are not written. Tables that have the round already are skipped, so a replay
        completes a round that was interrupted. ``written``: rows beside those of ``tables`` that
        are in files already.

        Raises:
            HistoryError: something could not be written; replaying the round is safe.
        """
        written = written or {}
        names = [*tables, *(name for name in written if name not in tables)]
        unknown = sorted({*names} - self._tables.keys())
        if unknown:
            raise HistoryError(f"history has no table {unknown[0]} to append to")

        def append(name: str) -> None:
            self.append(name, tables.get(name), stamp, written=written.get(name, _NOTHING))

        # list() raises an append's exception here, before the last table gets its row.
        list(self._pool.map(append, [name for name in names if name != self._last]))
        if self._last in names:
            append(self._last)

    def append(
        self,
        name: str,
        rows: pa.Table | None,
        stamp: Round,
        of: Transaction | None = None,
        *,
        since: int | None = None,
        written: Written = _NOTHING,
    ) -> bool:
        """Append rows to one table (see ``stamped``); False: it has them already, or no rows.

        Rows of a snapshot table replace others (see ``table_parts.replacing``), also if there are
        none. ``of``: the transaction by which rows beside those of the round are known; ``since``:
        the version of the one before it, 0 for none. ``written``: rows that are in files already.

        Raises:
            HistoryError: the rows can't be written, or another process wrote after ``since``.
        """
        of = of or Transaction(self._app_id, stamp.seq)
        table = TABLES[name]
        if not table.snapshot and not (rows or written.files):
            return False
        # deltalake detects no conflict of two writers with one id, so no retry may hide one.
        retries: dict[str, Any] = {} if since is None else {"max_commit_retries": 0}
        commit = CommitProperties(app_transactions=[of], **retries)
        self._end_checkpoint(name)
        if since is not None:
            self._open(name)
        for attempt in range(1, _ATTEMPTS + 1):
            done = self.newest(name, of.app_id)
            if done is not None and done >= of.version:
                if attempt == 1:  # else the commit that seemed to fail may have been made
                    delete_files(self._history, table, written.files)
                return False
            if since is not None and since != (done or 0):
                raise HistoryError(
                    f"history table {name}: another process writes as {of.app_id}; only one job "
                    "may use this history"
                )
            try:
                if not written.files and rows is not None:
                    self._write(table, stamped(table, rows, stamp), replaced_by(rows), commit)
                else:
                    if rows is not None:
                        written += write_rows(self._history, table, rows, stamp)
                        rows = None
                    self._commit(table, written, commit)
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

    def _write(
        self, table: Table, rows: pa.Table, replaced: Sequence[int], commit: CommitProperties
    ) -> None:
        """Let deltalake write rows: also to an object store, and quicker if they are few."""
        how: dict[str, Any] = {"mode": "append"}
        if table.snapshot:
            values = ", ".join(map(str, replaced))
            how = {"mode": "overwrite", "predicate": f"{table.partition_by[0]} IN ({values})"}
        write_deltalake(
            self._tables[table.name],
            rows,
            **how,
            writer_properties=_PROPERTIES,
            commit_properties=commit,
            post_commithook_properties=COMMIT_ONLY,
        )

    def _commit(self, table: Table, written: Written, commit: CommitProperties) -> None:
        """Add files to a table."""
        how: dict[str, Any] = {"mode": "append"}
        if table.snapshot:
            values = [str(value) for value in written.replaces]
            replaced = [(table.partition_by[0], "in", values)]
            how = {"mode": "overwrite", "partition_filters": replaced}
        opened = self._tables[table.name]
        opened.create_write_transaction(
            [*written.files],
            **how,
            schema=opened.schema(),
            partition_by=[*table.partition_by],
            commit_properties=commit,
            post_commithook_properties=COMMIT_ONLY,
        )
        opened.update_incremental()

    def newest(self, name: str, app_id: str) -> int | None:
        """The newest version that was appended to an open table under this id; None: none yet."""
        if (name, app_id) not in self._newest:
            try:
                self._newest[name, app_id] = self._tables[name].transaction_version(app_id)
            except (DeltaError, OSError) as error:
                raise not_written(self._history, name, error) from None
        return self._newest[name, app_id]

    def _checkpoint_if_due(self, name: str) -> None:
        due = self._opened_at[name] // CHECKPOINT_INTERVAL + 1
        if self._tables[name].version() // CHECKPOINT_INTERVAL >= due:
            self._checkpoints[name] = self._pool.submit(self._checkpoint, name)

    def _end_checkpoint(self, name: str) -> None:
        if (writing := self._checkpoints.pop(name, None)) is not None:
            writing.result()

    def _checkpoint(self, name: str) -> None:
        table = self._tables[name]
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
