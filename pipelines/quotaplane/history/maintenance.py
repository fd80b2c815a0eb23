"""Expires, compacts and vacuums the history's tables. Needs no Spark; safe while the job runs.

The job appends a small file per round and table; each live file slows every later append and query
a little (docs/adr/0004 has the numbers). A commit of the job or of ``quotaplane groups`` in between
at worst makes a step run again. But delta-rs does not detect that two compactions rewrite the same
files, which would duplicate every row. So a run locks a file of the history, and claims each table
by a transaction in its log, for object stores and file systems without locks.

Days of ``usage`` and ``limits`` that are over are sorted on this occasion (see ``group_order``),
but on an object store. In a local folder the bytes of files are compared with their checksums: of
each file once a day, and before it is rewritten, as the damage would be in the new file, too.
"""

from __future__ import annotations

import fcntl
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import chain
from typing import IO, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties
from deltalake.exceptions import CommitFailedError

from quotaplane.console.terminal import warn
from quotaplane.deltalog.checksums import compare
from quotaplane.deltalog.durable import COMMIT_ONLY, Synced, checkpoint
from quotaplane.deltalog.log import local_folder
from quotaplane.deltalog.read import live_paths, read_rows
from quotaplane.errors import DamagedTableError, HistoryError
from quotaplane.history.commits import attempted
from quotaplane.history.group_order import sort_by_group, unsorted_days
from quotaplane.history.store import (
    damaged,
    location_of,
    refuse_damage,
    table_uri,
    writing,
)
from quotaplane.history.tables import (
    RECORDING,
    RESOURCE_GROUPS,
    ROUNDS,
    TABLES,
    USAGE_DAILY,
    Table,
    column_properties,
)
from quotaplane.settings import History
from quotaplane.texts import utc_text

KEEP_DAYS: Final = 30
KEEP_DAILY_DAYS: Final = 400
"""Days for which the usage of whole days is kept: a year and a month."""
CLAIM: Final = "quotaplane-maintain"
CLAIM_MS: Final = 3_600_000
"""Time for which the claim of a killed run holds; one table takes seconds to minutes."""
RELEASED: Final = 0
_LOCK: Final = ".maintain.lock"

_PROPERTIES: Final = WriterProperties(
    compression="ZSTD", compression_level=1, column_properties=column_properties()
)
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Maintained:
    """The maintenance of one table."""

    table: str
    rows_expired: int
    files_compacted: int
    files_deleted: int
    """Files deleted from disk, as no retained version needs them."""
    files: int
    """Live files afterwards."""


def _raised(error: DamagedTableError) -> None:
    raise error


def maintain(
    history: History,
    now: datetime,
    *,
    keep_days: float = KEEP_DAYS,
    report: Callable[[DamagedTableError], None] = _raised,
) -> list[Maintained]:
    """Expire rows older than ``keep_days``, compact and vacuum; quotas never expire.

    Tables with a ``date`` column are expired by whole days, which rewrites no files. The recording
    expires by ``history.recording_days``. Damaged files are not rewritten; ``report`` is called for
    each table that has one.

    Raises:
        HistoryError: a table of the quota job is missing, can't be written, or is being maintained
            by another run.
    """
    before = now - timedelta(days=keep_days)
    recorded = now - timedelta(days=min(history.recording_days, keep_days))
    daily = now - timedelta(days=max(KEEP_DAILY_DAYS, keep_days))
    limits = {RECORDING.name: recorded, USAGE_DAILY.name: daily}
    with writing(history), _only_run(history) as alone:
        done = []
        for table in TABLES.values():
            if table is not RESOURCE_GROUPS:
                expires = limits.get(table.name, before)
                done.append(_maintain(history, table, expires, now, report, alone=alone))
        # Quotas last, as other programs may be changing that table.
        return [*done, _maintain(history, RESOURCE_GROUPS, before, now, report, alone=alone)]


@contextmanager
def _only_run(history: History) -> Iterator[bool]:
    """Keep other runs out by a lock; yields False where there are no locks.

    Raises:
        HistoryError: another run has it.
    """
    folder = local_folder(history.path)
    with ExitStack() as stack:
        alone = False
        with suppress(OSError):  # the first commit reports a disk that can't be written
            if folder is not None:
                file = stack.enter_context((folder / _LOCK).open("a"))
                alone = _taken(file, history)
        yield alone


def _taken(file: IO[str], history: History) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise HistoryError(
            f"history at {location_of(history)}: another `maintain` is working on it; try again "
            "when it has ended"
        ) from None
    return True


def _maintain(
    history: History,
    table: Table,
    before: datetime,
    now: datetime,
    report: Callable[[DamagedTableError], None],
    *,
    alone: bool,
) -> Maintained:
    uri = table_uri(history, table.name)
    synced = Synced(uri)

    def retried(work: Callable[[DeltaTable], _Result]) -> _Result:
        # On disk before the next step deletes files that this one replaced.
        return attempted(history, table, work, synced, again=(CommitFailedError,))

    def finish(opened: DeltaTable) -> int:
        checkpoint(opened, uri)
        return len(opened.file_uris())

    with _claimed(table, retried, alone=alone):
        expired = compacted = 0
        by_day = "date" in table.partition_by
        if by_day:
            expired = retried(lambda t: _expire(t, table, before))
        try:
            retried(lambda t: _check(history, t, table, now))
            if not by_day and "round_at" in table.schema.names and not table.snapshot:
                expired = retried(lambda t: _expire(t, table, before))
            compacted = retried(lambda t: _compact(t, table, history, now))
        except DamagedTableError as error:
            report(error)
        # A full vacuum also deletes files that a killed writer left behind, but it would delete
        # change data as well. So tables with a change feed get the other kind, which deletes only
        # files that the log has removed.
        full = not table.has_change_feed
        deleted = retried(
            lambda t: t.vacuum(dry_run=False, full=full, post_commithook_properties=COMMIT_ONLY)
        )
    files = retried(finish)
    return Maintained(table.name, expired, compacted, len(deleted), files)


@contextmanager
def _claimed(
    table: Table, retried: Callable[[Callable[[DeltaTable], None]], None], *, alone: bool
) -> Iterator[None]:
    """Claim a table against other runs.

    The claim is an app transaction whose version is the time (ms) at which it ends; 0 = released.
    ``alone``: no other run is working, so a claim that is found is of one that was killed, or that
    could not release it.
    """

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
        # If two runs claim at once, the second commit fails, and that run comes here again.
        now_ms = time.time() * 1000
        claimed_until_ms = opened.transaction_version(CLAIM) or 0
        if claimed_until_ms > now_ms and not alone:
            until = f"{datetime.fromtimestamp(claimed_until_ms / 1000, tz=timezone.utc):%H:%M:%S}Z"
            raise HistoryError(
                f"history table {table.name}: another `maintain` is working on it; if that was "
                f"killed, try again after {until}"
            )
        commit(opened, int(now_ms) + CLAIM_MS)

    retried(claim)
    try:
        yield
    finally:
        retried(lambda opened: commit(opened, RELEASED))


def _check(history: History, opened: DeltaTable, table: Table, now: datetime) -> None:
    """Compare with their checksums the files that are due, and those that may be rewritten now."""
    folder = local_folder(table_uri(history, table.name))
    if folder is None:
        return
    live = live_paths(opened)
    fault = compare(folder, live, int(now.timestamp() * 1000))
    if fault is not None:
        raise damaged(history, table.name, fault)
    if table.by_group:
        refuse_damage(history, table.name, chain.from_iterable(unsorted_days(live).values()))
        return
    days = Counter(path.rpartition("/")[0] for path in live)
    several = (path for path in live if days[path.rpartition("/")[0]] > 1)
    refuse_damage(history, table.name, several if table.partition_by else live)


def _expire(opened: DeltaTable, table: Table, before: datetime) -> int:
    if "date" in table.partition_by:
        predicate = f"date < DATE '{before:%Y-%m-%d}'"
    else:
        predicate = f"round_at < '{utc_text(before, 'microseconds')}'"
    if table is ROUNDS:
        # The newest round stays, however old, as the next epoch is derived from it.
        ats = read_rows(opened, ["round_at"])["round_at"]
        if len(ats):
            predicate += f" AND round_at < '{utc_text(pc.max(ats).as_py(), 'microseconds')}'"
    deleted = opened.delete(predicate, post_commithook_properties=COMMIT_ONLY)
    return int(deleted["num_deleted_rows"] or 0)


def _compact(opened: DeltaTable, table: Table, history: History, now: datetime) -> int:
    """Compact files; returns the number of replaced ones."""
    folder = local_folder(table_uri(history, table.name))
    size_bytes = _size_bytes(opened)
    if folder is not None and shutil.disk_usage(folder).free < size_bytes:
        # It writes the rows anew before the old files go; this run only makes room.
        warn(
            f"history table {table.name}: not compacted, as less than its {size_bytes} bytes are "
            "free; run `quotaplane maintain` again when there is more space"
        )
        return 0
    if table.by_group and folder is not None:
        return sort_by_group(opened, folder, now)
    done = opened.optimize.compact(
        writer_properties=_PROPERTIES, post_commithook_properties=COMMIT_ONLY
    )
    return int(done["numFilesRemoved"])


def _size_bytes(opened: DeltaTable) -> int:
    """Size of the live data files."""
    files = pa.table(opened.get_add_actions())
    return pc.sum(files["size_bytes"]).as_py() or 0 if len(files) else 0
