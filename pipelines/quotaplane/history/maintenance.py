"""Keeping the history small and quick: expire, compact, vacuum. No Spark, safe beside the job.

The job appends a small file a round and table; each live file makes every later append and every
query a little slower (docs/adr/0004 has the numbers). What the job, or ``quotaplane groups``,
commits meanwhile at worst makes a step here be taken again. But delta-rs does not notice that two
compactions rewrite the same files, and every row would be there twice: so a run first claims a
table, by a transaction in its log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final, TypeVar

import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from quotaplane.deltalog.durable import COMMIT_ONLY, Synced, checkpoint
from quotaplane.deltalog.read import read_rows
from quotaplane.errors import HistoryError
from quotaplane.history.store import (
    keep,
    one_line,
    open_table,
    storage_options,
    table_uri,
    writing,
)
from quotaplane.history.tables import APPENDED, RESOURCE_GROUPS, ROUNDS, THROTTLED, Table
from quotaplane.settings import History

KEEP_DAYS: Final = 30
CLAIM: Final = "quotaplane-maintain"
CLAIM_MS: Final = 3_600_000
"""How long a claim holds that nobody gave back; tidying one table takes seconds to minutes."""
RELEASED: Final = 0

_ATTEMPTS: Final = 10
_PROPERTIES: Final = WriterProperties(compression="ZSTD", compression_level=1)
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Kept:
    """What was done to one table."""

    table: str
    rows_expired: int
    files_compacted: int
    files_deleted: int
    """From disk: no version that is still kept needs them."""
    files: int
    """Live ones, afterwards."""


def maintain(history: History, now: datetime, *, keep_days: float = KEEP_DAYS) -> list[Kept]:
    """Expire rows older than ``keep_days`` and tidy up each table; quotas are never expired.

    Tables with a ``date`` column lose whole days, which costs next to nothing.

    Raises:
        HistoryError: a table of the quota loop is missing, or one can't be written, or is being
            maintained by another run.
    """
    before = now - timedelta(days=keep_days)
    with writing(history):
        kept = [_maintain(history, table, before) for table in APPENDED]
        options = storage_options(history)
        for table in THROTTLED:
            # A history of an earlier version has none until a job adds them.
            if DeltaTable.is_deltatable(table_uri(history, table.name), options):
                kept.append(_maintain(history, table, before))
        # Quotas last: theirs is the table that others may be changing.
        return [*kept, _maintain(history, RESOURCE_GROUPS, before)]


def _maintain(history: History, table: Table, before: datetime) -> Kept:
    uri = table_uri(history, table.name)
    synced = Synced(uri)

    def retried(work: Callable[[DeltaTable], _Result]) -> _Result:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                opened = open_table(history, table.name)
                before = opened.version()
                result = work(opened)
                # Before the next step deletes what this one has replaced.
                keep(synced, opened, table.name, before=before)
                return result
            except CommitFailedError as error:
                if attempt == _ATTEMPTS:
                    raise HistoryError(f"history table {table.name}: {one_line(error)}") from None
            except (DeltaError, OSError) as error:
                raise HistoryError(f"history table {table.name}: {one_line(error)}") from None
        raise AssertionError("unreachable")

    def finish(opened: DeltaTable) -> int:
        checkpoint(opened, uri)
        return len(opened.file_uris())

    with _claimed(table, retried):
        expired = 0
        if "at" in table.schema.names:
            expired = retried(lambda t: _expire(t, table, before))
        compacted = retried(
            lambda t: t.optimize.compact(
                writer_properties=_PROPERTIES, post_commithook_properties=COMMIT_ONLY
            )
        )
        # A full vacuum also finds what a killed writer left behind, but takes change data for
        # leftovers: the quotas get the other kind, which deletes only what the log says is gone.
        full = table is not RESOURCE_GROUPS
        deleted = retried(
            lambda t: t.vacuum(dry_run=False, full=full, post_commithook_properties=COMMIT_ONLY)
        )
    files = retried(finish)
    return Kept(table.name, expired, int(compacted["numFilesRemoved"]), len(deleted), files)


@contextmanager
def _claimed(
    table: Table, retried: Callable[[Callable[[DeltaTable], None]], None]
) -> Iterator[None]:
    """Hold a table against other runs: the claim's version is when it ends, 0 when it is over."""

    def commit(opened: DeltaTable, until_ms: int) -> None:
        opened.create_write_transaction(
            [],
            mode="append",
            schema=opened.schema(),
            partition_by=list(table.partition_by),
            commit_properties=CommitProperties(app_transactions=[Transaction(CLAIM, until_ms)]),
            post_commithook_properties=COMMIT_ONLY,
        )

    def claim(opened: DeltaTable) -> None:
        # Of two that see no claim and make one, the second's commit fails: it comes here again.
        now_ms = time.time() * 1000
        taken_ms = opened.transaction_version(CLAIM) or 0
        if taken_ms > now_ms:
            until = f"{datetime.fromtimestamp(taken_ms / 1000, tz=timezone.utc):%H:%M:%S}Z"
            raise HistoryError(
                f"history table {table.name}: another maintain is at it; if that was killed, "
                f"try again after {until}"
            )
        commit(opened, int(now_ms) + CLAIM_MS)

    retried(claim)
    try:
        yield
    finally:
        retried(lambda opened: commit(opened, RELEASED))


def _expire(opened: DeltaTable, table: Table, before: datetime) -> int:
    if "date" in table.partition_by:
        predicate = f"date < DATE '{before:%Y-%m-%d}'"
    else:
        predicate = f"at < '{_text(before)}'"
    if table is ROUNDS:
        # The newest round stays, however old: the next epoch is counted from it.
        ats = read_rows(opened, ["at"])["at"]
        if len(ats):
            predicate += f" AND at < '{_text(pc.max(ats).as_py())}'"
    deleted = opened.delete(predicate, post_commithook_properties=COMMIT_ONLY)
    return int(deleted["num_deleted_rows"] or 0)


def _text(at: datetime) -> str:
    return f"{at.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%S.%f}Z"
