"""Locates, creates, opens and locks the history's tables."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Final

from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from quotaplane.deltalog.checksums import Checksums
from quotaplane.deltalog.durable import Synced
from quotaplane.deltalog.error_text import DOCTOR, with_advice
from quotaplane.deltalog.error_text import one_line as one_line  # for all that use this module
from quotaplane.deltalog.faults import find_fault
from quotaplane.deltalog.log import local_folder
from quotaplane.deltalog.read import live_paths
from quotaplane.errors import ConfigError, DamagedTableError, HistoryError
from quotaplane.history.tables import RESOURCE_GROUPS, ROUNDS, TABLES, Table
from quotaplane.parsing.folders import location
from quotaplane.settings import History

WRITERS: Final = ".writers.lock"
"""Lock file in the history's folder: writers share it, ``doctor --mend`` takes it exclusively."""


def table_uri(history: History, name: str) -> str:
    """The URI of a table.

    >>> table_uri(History(path="/data/history/"), "usage")
    '/data/history/usage'
    """
    return f"{history.path.rstrip('/')}/{name}"


def location_of(history: History) -> str:
    """The history's location for messages; a local path is made absolute.

    >>> location_of(History(path="s3://bucket/history"))
    's3://bucket/history'
    """
    return location(history.path)


def storage_options(history: History) -> dict[str, str] | None:
    """The object store's options for the deltalake package; None if there are none."""
    return {k: v.get_secret_value() for k, v in history.storage_options.items()} or None


def require_history(history: History, advice: str = "") -> None:
    """Check that the history exists.

    Raises:
        ConfigError: it does not: the path is wrong, or nothing has created it yet. ``advice`` says
            how to create it with the calling command.
        HistoryError: it can't be reached.
    """
    if not _is_history(history):
        advice = advice or "the quota job or `quotaplane groups put --init` creates one"
        raise ConfigError(
            f"there is no history at {location_of(history)} (no table {RESOURCE_GROUPS.name}): "
            f"check --conf or --history; {advice}"
        )


def ensure_history(history: History) -> None:
    """Create the tables if there is no history.

    Raises:
        HistoryError: it can't be reached or created.
    """
    if not _is_history(history):
        ensure_tables(history)


def _is_history(history: History) -> bool:
    return has_table(history, RESOURCE_GROUPS.name)


def has_table(history: History, name: str) -> bool:
    """Whether the history has a table of this name.

    Raises:
        HistoryError: it can't be reached, or has lost its log, so that it seems to be missing.
    """
    uri = table_uri(history, name)
    try:
        if _has_log(uri, storage_options(history)):
            return True
        fault = find_fault(uri)
    except (DeltaError, OSError) as error:
        raise HistoryError(f"history at {location_of(history)}: {with_advice(error)}") from None
    if fault is not None:
        raise damaged(history, name, fault)
    return False


def _ignore(_: str) -> None:
    pass


def _has_log(uri: str, options: dict[str, str] | None) -> bool:
    if local_folder(uri) is not None:
        return DeltaTable.is_deltatable(uri)
    from deltalake.fs import DeltaStorageHandler  # commands on local disks start sooner without it
    from pyarrow.fs import FileType

    # That function would stop all threads of Python until the store answers; to open the table
    # takes up to a hundred requests.
    try:
        (log,) = DeltaStorageHandler(uri, options).get_file_info(["_delta_log"])
    except TableNotFoundError:
        return False
    return bool(log.type == FileType.Directory)


def ensure_tables(history: History, say: Callable[[str], None] = _ignore) -> None:
    """Create missing tables, and check the others.

    Args:
        history: the tables' location.
        say: prints a line if tables were created, by which a wrong path shows.

    Raises:
        HistoryError: a table has another schema, or can't be reached.
    """
    created = [table.name for table in TABLES.values() if ensure_table(history, table)]
    if created:
        say(f"history: created the tables {', '.join(created)} at {location_of(history)}")


def _add_columns(history: History, table: Table) -> list[str]:
    """Give a table of an earlier version the columns that are new since; returns their names.

    Only columns that may be null, as they are in the rows that are there.
    """
    uri = table_uri(history, table.name)
    if find_fault(uri) is not None:
        return []
    opened = DeltaTable(uri, storage_options=storage_options(history))
    there = {field.name for field in opened.schema().fields}
    new = [field for field in Schema.from_arrow(table.schema).fields if field.name not in there]
    if not new or not all(field.nullable for field in new):
        return []
    before = opened.version()
    opened.alter.add_columns(new)
    keep(Synced(uri), opened, table.name, before=before)
    return [field.name for field in new]


def refuse_lost_groups(history: History) -> None:
    """Check that the table of quotas is there if the history has rounds.

    A job that made an empty one in its place would remove every group's limits.

    Raises:
        HistoryError: it is missing, or the history can't be reached.
    """
    if has_table(history, RESOURCE_GROUPS.name) or not has_table(history, ROUNDS.name):
        return
    if open_table(history, ROUNDS.name).version() > 0:
        raise HistoryError(
            f"history table {RESOURCE_GROUPS.name} at {table_uri(history, RESOURCE_GROUPS.name)}: "
            "is missing, and the history has rounds: with an empty one in its place all quotas "
            "would be lost; restore its folder, or make a new one with `quotaplane groups put "
            "--init` or `quotaplane groups apply --init`"
        )


def ensure_table(history: History, table: Table) -> bool:
    """Create a table if it is missing, else check it and add new columns; True if created.

    Raises:
        HistoryError: it has another schema, or can't be reached.
    """
    uri = table_uri(history, table.name)
    created = False
    try:
        # Another process may create the table at the same time; the second one then opens it.
        # No retries: a retry would commit the creation again, as version 1 with another table id,
        # which would stop a change-feed stream that started in between.
        if not has_table(history, table.name):
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
            created = True
        else:
            _add_columns(history, table)
    except (DeltaError, OSError) as error:
        if created or not _exists(uri, history):
            raise not_written(history, table.name, error) from None
    opened = open_table(history, table.name)
    if created:
        keep(Synced(uri), opened, table.name, before=-1)
    return created


def _exists(uri: str, history: History) -> bool:
    try:
        return _has_log(uri, storage_options(history))
    except (DeltaError, OSError):
        return False


def open_table(history: History, name: str) -> DeltaTable:
    """Open a table at its newest version.

    Raises:
        HistoryError: it is missing, can't be read, is damaged, or has another schema.
    """
    uri = table_uri(history, name)
    try:
        # delta-rs and Spark would silently read what a power loss left of a log.
        fault = find_fault(uri)
        if fault is not None:
            raise damaged(history, name, fault)
        opened = DeltaTable(uri, storage_options=storage_options(history))
    except TableNotFoundError:
        raise HistoryError(
            f"history table {name} at {uri}: does not exist; the job or "
            "`quotaplane groups put --init` creates it"
        ) from None
    except (DeltaError, OSError, ValueError) as error:
        raise not_written(history, name, error) from None
    difference = _difference(TABLES[name], opened)
    if difference:
        raise HistoryError(
            f"history table {name} at {uri}: {difference}; this version of quotaplane did not "
            "make it: use the version that did, or another history folder"
        )
    if TABLES[name].is_current:
        refuse_damage(history, name, live_paths(opened))
    return opened


def refuse_damage(history: History, name: str, paths: Iterable[str]) -> None:
    """Check the bytes of some of a table's files, before they are read.

    ``paths`` are relative to the table. Nothing is checked on an object store.

    Raises:
        DamagedTableError: they are not those that were written.
        HistoryError: the disk does not let one be read.
    """
    folder = local_folder(table_uri(history, name))
    if folder is None:
        return
    try:
        fault = Checksums(folder).first_fault(paths)
    except OSError as error:
        raise not_written(history, name, error) from None
    if fault is not None:
        raise damaged(history, name, fault)


def damaged(history: History, name: str, fault: str) -> DamagedTableError:
    """The error of a table in which a fault was found: a file, and what is wrong with it."""
    place = table_uri(history, name)
    return DamagedTableError(f"history table {name} at {place}: {fault}; {DOCTOR}")


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn the errors of reading a table's rows into ours, of one line.

    Raises:
        HistoryError: they can't be read.
    """
    try:
        yield
    except (DeltaError, OSError, ValueError) as error:  # ValueError: all of pyarrow's
        raise HistoryError(f"history table {name}: {one_line(error)}") from None


def keep(synced: Synced, table: DeltaTable, name: str, *, before: int) -> None:
    """Wait until the commits of a table are on the disk, so that they may be acknowledged.

    ``before`` is a version from before the caller's own commits.

    Raises:
        HistoryError: the disk failed. A retry is useless, as the operating system drops data that
            it could not write.
    """
    try:
        synced.upto(table.version(), before=before)
    except OSError as error:
        raise HistoryError(
            f"history table {name}: version {table.version()} is committed but the disk did not "
            f"keep it ({error}); check the disk, then {DOCTOR}"
        ) from None


def not_written(history: History, name: str, error: BaseException) -> HistoryError:
    """The error of a table that could not be read or written, with its place and what to do."""
    return HistoryError(f"history table {name} at {table_uri(history, name)}: {with_advice(error)}")


@contextmanager
def writing(history: History) -> Iterator[None]:
    """Keep ``quotaplane doctor --mend`` out while the caller writes to a history.

    Raises:
        HistoryError: it is being mended.
    """
    with _locked(history, fcntl.LOCK_SH) as free:
        if not free:
            raise HistoryError(
                f"history at {location_of(history)}: `quotaplane doctor --mend` is running; try "
                "again when it has ended"
            )
        yield


@contextmanager
def nobody_writing(history: History) -> Iterator[bool]:
    """Keep writers out of a history; yields False if something is writing to it already.

    Always True on object stores and on file systems without locks.

    Raises:
        HistoryError: the lock file can't be opened, so whether something writes is not known.
    """
    with _locked(history, fcntl.LOCK_EX) as free:
        yield free


@contextmanager
def only_one(history: History, lock: str) -> Iterator[None]:
    """Let one caller at a time in, of all processes that use this lock file of the history.

    There is no lock on object stores and on file systems without locks.
    """
    folder = local_folder(history.path)
    with ExitStack() as stack:
        with suppress(OSError):
            if folder is not None:
                file = stack.enter_context((folder / lock).open("a"))
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _locked(history: History, how: int) -> Iterator[bool]:
    folder = local_folder(history.path)
    with ExitStack() as stack:
        free = True
        try:
            if folder is not None:
                file = stack.enter_context((folder / WRITERS).open("a"))
                with suppress(OSError):  # of a file system without locks
                    free = _taken(file, how)
        except OSError as error:
            # A shared lock: the write itself will report what is wrong with the disk.
            if how == fcntl.LOCK_EX:
                raise HistoryError(
                    f"history at {location_of(history)}: {with_advice(error)}"
                ) from None
        yield free


def _taken(file: IO[str], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _difference(table: Table, opened: DeltaTable) -> str:
    """How the opened table differs from what this version writes; "" = not at all."""
    columns = {f.name: str(f.type) for f in opened.schema().fields}
    wanted = {f.name: str(f.type) for f in Schema.from_arrow(table.schema).fields}
    for name, kind in wanted.items():
        if name not in columns:
            return f"column {name} is missing"
        if columns[name] != kind:
            return f"column {name} is {columns[name]}, expected {kind}"
    for name in columns.keys() - wanted.keys():
        return f"column {name} is not one that this version writes"
    partitions = tuple(opened.metadata().partition_columns)
    if partitions != table.partition_by:
        return f"partitioned by {partitions}, expected {table.partition_by}"
    return ""
