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
from quotaplane.history.cached_table import CachedTable
from quotaplane.history.disk_reserve import with_reserve
from quotaplane.history.store import keep, not_written, table_uri, writing
from quotaplane.history.tables import CHECKPOINT_INTERVAL, Table
from quotaplane.settings import History

WHY: Final = "userMetadata"
"""The key of a commit's reason: Delta's own for notes, which its tools show."""

_VAIN_ATTEMPTS: Final = 20
"""Most attempts that fail though nobody else has changed the table meanwhile."""
_PATIENCE_S: Final = 120.0
"""While others change the table it is tried for so long. Of four writers without a pause on an
object store, where an attempt takes a second, one may lose 60 times in a row. A longer wait after
each loss would be no help: who has just won would win again meanwhile."""
MOST_SMALL_FILES: Final = 32
"""Each change adds a file and reads all of them, so as many are made one."""
SMALL_BYTES: Final = 1 << 20
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


class Turns:
    """The attempts of one change: whether it is tried again, and after which pause.

    >>> turns = Turns(0.0)
    >>> turns.begin(version=7, now_s=0.0)
    >>> 0.0 <= turns.wait_s(now_s=0.8) <= 0.2
    True
    """

    def __init__(self, now_s: float) -> None:
        self._first_s = self._begun_s = now_s
        self._version = -1
        self._in_vain = 0

    def begin(self, version: int, now_s: float) -> None:
        """Begin an attempt on this version of the table."""
        self._in_vain = self._in_vain + 1 if version == self._version else 0
        self._version, self._begun_s = version, now_s

    def wait_s(self, now_s: float) -> float | None:
        """The pause after an attempt that failed; None: give up."""
        if self._in_vain == _VAIN_ATTEMPTS or now_s - self._first_s > _PATIENCE_S:
            return None
        # Writers in step would collide again and again.
        return random.uniform(0, (now_s - self._begun_s) / 4)


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
        done, opened = attempted(history, table, lambda t: (once(t), t), synced, sleep)
        _compact_if_due(opened, table, synced)
        return done


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
    turns, newest = Turns(time.monotonic()), CachedTable(history, table.name)

    def on_newest() -> tuple[DeltaTable, int, _Done]:
        try:
            opened = newest.open()
            turns.begin(opened.version(), time.monotonic())
            return opened, opened.version(), once(opened)
        except again:
            raise
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise not_written(history, table.name, error) from None

    while True:
        try:
            opened, before, done = with_reserve(history, on_newest)
        except again as error:
            wait_s = turns.wait_s(time.monotonic())
            if wait_s is None:
                raise not_written(history, table.name, error) from None
            sleep(wait_s)
            continue
        # Also if nothing had to be changed: the newest commit may be another writer's. Without the
        # reserve: it is committed, and ``once`` must not run on its own commit.
        keep(synced, opened, table.name, before=before)
        _checkpoint_if_due(opened, table_uri(history, table.name), before)
        return done


def _compact_if_due(opened: DeltaTable, table: Table, synced: Synced) -> None:
    before, sizes = opened.version(), pa.table(opened.get_add_actions())["size_bytes"]
    if sum(size < SMALL_BYTES for size in sizes.to_pylist()) < MOST_SMALL_FILES:
        return
    # The change is made already; if this fails, or another writer was first, a later change does it
    with suppress(DeltaError, OSError):
        opened.optimize.compact(
            target_size=SMALL_BYTES,
            writer_properties=_PROPERTIES,
            post_commithook_properties=COMMIT_ONLY,
        )
    keep(synced, opened, table.name, before=before)


def _checkpoint_if_due(table: DeltaTable, uri: str, before: int) -> None:
    if table.version() // CHECKPOINT_INTERVAL > before // CHECKPOINT_INTERVAL:
        # The change is made already; if this fails, the next checkpoint makes up for it.
        with suppress(DeltaError, OSError):
            checkpoint(table, uri)
