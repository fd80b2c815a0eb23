"""Where the history's tables are, and how they are made and opened."""

from __future__ import annotations

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from quotaplane.errors import HistoryError
from quotaplane.history.tables import TABLES, Table
from quotaplane.settings import History


def table_uri(history: History, name: str) -> str:
    """Where a table is.

    >>> table_uri(History(path="/data/history/"), "usage")
    '/data/history/usage'
    """
    return f"{history.path.rstrip('/')}/{name}"


def storage_options(history: History) -> dict[str, str] | None:
    """The object store's options, for the deltalake package; None if there are none."""
    return {k: v.get_secret_value() for k, v in history.storage_options.items()} or None


def ensure_tables(history: History) -> None:
    """Create the tables that are absent, check those that are there, add columns they lack.

    Raises:
        HistoryError: a table has another schema, or can't be reached.
    """
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
        except (DeltaError, OSError) as error:
            if not _exists(uri, history):
                raise HistoryError(f"history table {table.name}: {one_line(error)}") from None
        open_to_write(history, table.name)


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
        opened = DeltaTable(uri, storage_options=storage_options(history))
    except TableNotFoundError:
        raise HistoryError(
            f"history table {name} at {uri}: there is none; the job or "
            "`quotaplane groups put` creates it"
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
        opened.alter.add_columns(list(fields), commit_properties=once)
    except (DeltaError, OSError) as error:
        opened = open_table(history, name)
        if _lacking(name, opened):
            raise HistoryError(f"history table {name}: {one_line(error)}") from None
        return opened
    return open_table(history, name)


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
