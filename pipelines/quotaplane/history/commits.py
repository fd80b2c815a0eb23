"""Commits of changed rows: optimistic, on the disk before they are acknowledged.

A change is a Delta MERGE by the deltalake package. It fails if another writer committed in between,
and is then repeated on the new version: no change is lost, none is made twice.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError
from deltalake.table import TableMerger

from quotaplane.deltalog.durable import COMMIT_ONLY, Synced, checkpoint
from quotaplane.history.disk_reserve import with_reserve
from quotaplane.history.store import keep, not_written, open_table, table_uri, writing
from quotaplane.history.tables import CHANGES_PER_CHECKPOINT, Table
from quotaplane.settings import History

WHY: Final = "userMetadata"
"""The key of a commit's reason: Delta's own for notes, which its tools show."""

_ATTEMPTS: Final = 20
_PROPERTIES: Final = WriterProperties(compression="ZSTD", compression_level=1)
_Done = TypeVar("_Done")


def merging(
    table: DeltaTable, rows: pa.Table, keys: tuple[str, ...], by: str, why: str | None
) -> TableMerger:
    """A MERGE of rows into a table by its key columns; ``by`` and ``why`` go into its log."""
    noted = {"userName": by} if why is None else {"userName": by, WHY: why}
    return table.merge(
        rows,
        " AND ".join(f"t.{key} = s.{key}" for key in keys),
        source_alias="s",
        target_alias="t",
        writer_properties=_PROPERTIES,
        commit_properties=CommitProperties(custom_metadata=noted),
        post_commithook_properties=COMMIT_ONLY,
    )


def optimistically(
    history: History,
    table: Table,
    once: Callable[[DeltaTable], _Done],
    sleep: Callable[[float], None] = time.sleep,
) -> _Done:
    """Run ``once`` on the table's newest version, and again after a conflict with another writer.

    Raises:
        HistoryError: the table can't be read or written, or other writers change it all the time.
    """
    with writing(history):
        synced = Synced(table_uri(history, table.name))
        return attempted(history, table, once, synced, sleep)


def attempted(
    history: History,
    table: Table,
    once: Callable[[DeltaTable], _Done],
    synced: Synced,
    sleep: Callable[[float], None] = time.sleep,
    *,
    again: tuple[type[DeltaError], ...] = (CommitFailedError, DeltaProtocolError),
) -> _Done:
    """Run ``once`` as ``optimistically`` does, as one of several steps; ``synced``: of them all.

    ``again``: the errors after which it runs again.
    """

    def on_newest() -> tuple[DeltaTable, int, _Done]:
        try:
            opened = open_table(history, table.name)
            return opened, opened.version(), once(opened)
        except again:
            raise
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise not_written(history, table.name, error) from None

    for attempt in range(1, _ATTEMPTS + 1):
        try:
            opened, before, done = with_reserve(history, on_newest)
        except again as error:
            if attempt == _ATTEMPTS:
                raise not_written(history, table.name, error) from None
            # Writers in step would collide again and again.
            sleep(random.uniform(0, 0.02 * min(attempt, 10)))
            continue
        # Also if nothing had to be changed: the newest commit may be another writer's. Without the
        # reserve: it is committed, and ``once`` must not run on its own commit.
        keep(synced, opened, table.name, before=before)
        _checkpoint_if_due(opened, table_uri(history, table.name), before)
        return done
    raise AssertionError("unreachable")


def _checkpoint_if_due(table: DeltaTable, uri: str, before: int) -> None:
    if table.version() // CHANGES_PER_CHECKPOINT > before // CHANGES_PER_CHECKPOINT:
        # The change is made already; if this fails, the next checkpoint makes up for it.
        with suppress(DeltaError, OSError):
            checkpoint(table, uri)
