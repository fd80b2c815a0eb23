"""Where the history's tables are, and how they are made, opened and kept."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from quotaplane.deltalog.durable import COMMIT_ONLY, Synced
from quotaplane.deltalog.log import find_fault, local_folder
from quotaplane.errors import ConfigError, HistoryError
from quotaplane.history.tables import RESOURCE_GROUPS, TABLES, Table
from quotaplane.settings import History

WRITERS: Final = ".writers.lock"
"""In the history's folder: all that write to it lock it together, ``doctor --mend`` for itself."""

DOCTOR: Final = "run `quotaplane doctor`, which says what is lost and how to mend it"


def table_uri(history: History, name: str) -> str:
    """Where a table is.

    >>> table_uri(History(path="/data/history/"), "usage")
    '/data/history/usage'
    """
    return f"{history.path.rstrip('/')}/{name}"


def place(history: History) -> str:
    """Where the history is, as people should read it: a local path is absolute.

    >>> place(History(path="s3://bucket/history"))
    's3://bucket/history'
    """
    return str(local_folder(history.path) or history.path)


def storage_options(history: History) -> dict[str, str] | None:
    """The object store's options, for the deltalake package; None if there are none."""
    return {k: v.get_secret_value() for k, v in history.storage_options.items()} or None


def require_history(history: History, advice: str = "") -> None:
    """Return if there is a history.

    Raises:
        ConfigError: there is none: the path is wrong, or nothing has made it yet. ``advice`` says
            how to make one, where that is the command's to do.
        HistoryError: it can't be reached.
    """
    if not _is_history(history):
        advice = advice or "the quota job or `quotaplane groups put --init` creates one"
        raise ConfigError(
            f"there is no history at {place(history)} (no table {RESOURCE_GROUPS.name}): "
            f"check --conf or --history; {advice}"
        )


def ensure_history(history: History) -> None:
    """Create the tables if there is no history.

    Raises:
        HistoryError: it can't be reached or made.
    """
    if not _is_history(history):
        ensure_tables(history)


def _is_history(history: History) -> bool:
    uri = table_uri(history, RESOURCE_GROUPS.name)
    try:
        return DeltaTable.is_deltatable(uri, storage_options(history))
    except (DeltaError, OSError) as error:
        raise HistoryError(f"history at {place(history)}: {one_line(error)}") from None


def _ignore(_: str) -> None:
    pass


def ensure_tables(history: History, say: Callable[[str], None] = _ignore) -> None:
    """Create the tables that are absent, check those that are there, add columns they lack.

    Args:
        history: where they are.
        say: is given a line if tables were created: a wrong path shows by it.

    Raises:
        HistoryError: a table has another schema, or can't be reached.
    """
    created = []
    for table in TABLES.values():
        uri = table_uri(history, table.name)
        try:
            # Another process may be doing the same: whoever comes second just opens the table.
            # With retries its creation would be committed again, as version 1 with another table
            # id, and a change-feed stream that began in between would stop.
            if not DeltaTable.is_deltatable(uri, storage_options(history)):
                DeltaTable.create(
                    uri,
                    Schema.from_arrow(table.schema),
                    partition_by=list(table.partition_by),
                    name=table.name,
                    description=table.comment,
                    configuration=table.properties,
                    storage_options=storage_options(history),
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
                created.append(table.name)
        except (DeltaError, OSError) as error:
            if not _exists(uri, history):
                raise HistoryError(f"history table {table.name}: {one_line(error)}") from None
        opened = open_to_write(history, table.name)
        if table.name in created:
            keep(Synced(uri), opened, table.name, before=-1)
    if created:
        say(f"history: created the tables {', '.join(created)} at {place(history)}")


def _exists(uri: str, history: History) -> bool:
    try:
        return DeltaTable.is_deltatable(uri, storage_options(history))
    except (DeltaError, OSError):
        return False


def open_table(history: History, name: str) -> DeltaTable:
    """Open a table at its newest version; it may lack columns of ``Table.since_later``.

    Raises:
        HistoryError: it is missing, can't be read, or is not what this version writes.
    """
    uri = table_uri(history, name)
    try:
        # Of a log that a power loss cut off, delta-rs and Spark read what is left, silently.
        fault = find_fault(uri)
        if fault is not None:
            raise HistoryError(f"history table {name} at {uri}: {fault}; {DOCTOR}")
        opened = DeltaTable(uri, storage_options=storage_options(history))
    except TableNotFoundError:
        raise HistoryError(
            f"history table {name} at {uri}: there is none; the job or "
            "`quotaplane groups put --init` creates it"
        ) from None
    except (DeltaError, OSError, ValueError) as error:
        raise HistoryError(f"history table {name} at {uri}: {one_line(error)}") from None
    difference = _difference(TABLES[name], opened)
    if difference:
        raise HistoryError(f"history table {name} at {uri}: {difference}")
    return opened


def open_to_write(history: History, name: str) -> DeltaTable:
    """Open a table at its newest version; what it lacks of ``Table.since_later`` is added first.

    Raises:
        HistoryError: it is missing, can't be written, or is not what this version writes.
    """
    opened = open_table(history, name)
    lacking = _lacking(name, opened)
    if not lacking:
        return opened
    fields = Schema.from_arrow(pa.schema([TABLES[name].schema.field(c) for c in lacking])).fields
    try:
        # Tried once: whoever comes second finds the columns there, and must not add them again.
        once = CommitProperties(max_commit_retries=0)
        opened.alter.add_columns(
            list(fields), commit_properties=once, post_commithook_properties=COMMIT_ONLY
        )
    except (DeltaError, OSError) as error:
        opened = open_table(history, name)
        if _lacking(name, opened):
            raise HistoryError(f"history table {name}: {one_line(error)}") from None
        return opened
    return open_table(history, name)


def keep(synced: Synced, table: DeltaTable, name: str, *, before: int) -> None:
    """Return when what was committed to a table is on the disk, and may be acknowledged.

    ``before`` is a version that was there before the caller's own commits.

    Raises:
        HistoryError: the disk did not take it. Trying again is of no use: the system forgets what
            it could not write.
    """
    try:
        synced.upto(table.version(), before=before)
    except OSError as error:
        raise HistoryError(
            f"history table {name}: version {table.version()} is committed but the disk did not "
            f"keep it ({error}); check the disk, then {DOCTOR}"
        ) from None


@contextmanager
def writing(history: History) -> Iterator[None]:
    """Hold off ``quotaplane doctor --mend`` while something writes to a history.

    Raises:
        HistoryError: it is being mended.
    """
    with _locked(history, fcntl.LOCK_SH) as free:
        if not free:
            raise HistoryError(
                f"history at {place(history)}: `quotaplane doctor --mend` is at work; try again "
                "when it has ended"
            )
        yield


@contextmanager
def nobody_writing(history: History) -> Iterator[bool]:
    """Hold off all that write to a history; False if something is writing to it already.

    Always True where that can't be told: on object stores, and on file systems without locks.
    """
    with _locked(history, fcntl.LOCK_EX) as free:
        yield free


@contextmanager
def _locked(history: History, how: int) -> Iterator[bool]:
    folder = local_folder(history.path)
    with ExitStack() as stack:
        free = True
        try:
            if folder is not None:
                file = stack.enter_context((folder / WRITERS).open("a"))
                fcntl.flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            free = False
        except OSError:  # no locks here, or no folder; the write itself says what is wrong
            pass
        yield free


def _lacking(name: str, opened: DeltaTable) -> list[str]:
    there = {field.name for field in opened.schema().fields}
    return [c for c in TABLES[name].schema.names if c not in there]


def _difference(table: Table, opened: DeltaTable) -> str:
    there = {f.name: str(f.type) for f in opened.schema().fields}
    wanted = {f.name: str(f.type) for f in Schema.from_arrow(table.schema).fields}
    for name, kind in wanted.items():
        if name not in there:
            if name in table.since_later:
                continue
            return f"column {name} is missing"
        if there[name] != kind:
            return f"column {name} is {there[name]}, expected {kind}"
    for name in there.keys() - wanted.keys():
        return f"column {name} is not one that this version writes"
    partitions = tuple(opened.metadata().partition_columns)
    if partitions != table.partition_by:
        return f"partitioned by {partitions}, expected {table.partition_by}"
    return ""


def one_line(error: BaseException) -> str:
    """The first line of an error's text: delta-rs appends stack frames and advice."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
