"""Answers queries on the history with DuckDB, in this process: no JVM, no server, no network.

The deltalake package lists a table's live files, and DuckDB reads them. Tables on an object store
are read with the deltalake package, too. Nothing is written, and a query can read nothing but the
history.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime, timezone
from typing import Any, Final

import duckdb
import numpy as np
from deltalake.exceptions import DeltaError
from duckdb.func import SPECIAL

from quotaplane.deltalog.log import local_folder
from quotaplane.errors import HistoryError, InputError, QueryTimeoutError
from quotaplane.history.spill_folder import NAME as SPILL_NAME
from quotaplane.history.spill_folder import spill_folder
from quotaplane.history.store import location_of, one_line, open_table, refuse_damage
from quotaplane.history.tables import LIMITS, TABLES, USAGE, Table
from quotaplane.query.answer import Answer, distinct_names
from quotaplane.query.duckdb_rows import (
    escaped,
    no_rows,
    quoted,
    rows_of_copy,
    rows_of_files,
    type_name,
)
from quotaplane.query.group_feed import GroupFeed
from quotaplane.query.live_files import is_plain, live_files
from quotaplane.query.sessions import ENDED, Sessions, interruptible
from quotaplane.query.sql_functions import FUNCTIONS
from quotaplane.query.sql_text import parameters_in, to_duckdb
from quotaplane.query.views import (
    BEGINNING,
    Sources,
    seen_by,
    sources_of,
    usage_since,
)
from quotaplane.settings import History

MEMORY: Final = "1GB"
"""Most memory of a query; the rest goes to ``SPILL`` in the system's temporary folder."""
SPILL: Final = "10GB"
THREADS: Final = 4

_ENDS_WITHIN_S: Final = 5.0

_MACROS: Final = """
CREATE MACRO unix_millis(instant) AS epoch_ms(instant);
CREATE MACRO timestamp_millis(ms) AS CAST(epoch_ms(CAST(ms AS BIGINT)) AS TIMESTAMPTZ);
CREATE MACRO to_date(instant) AS CAST(instant AS DATE);
CREATE MACRO date_sub(day, days) AS CAST(day AS DATE) - CAST(days AS INTEGER);
CREATE MACRO date_add(day, days) AS CAST(day AS DATE) + CAST(days AS INTEGER);
"""
"""Functions of Spark that DuckDB lacks, or has with other parameters."""


class DuckDBEngine:
    """Answers queries on one history; closes with ``close`` or as a context manager.

    Args:
        history: the tables' location.
        threads: most threads of a query; by default at most ``THREADS``.
        memory: see ``MEMORY``.

    Each query sees the tables as they are when it starts. Queries of several threads may run at the
    same time.
    """

    def __init__(
        self, history: History, *, threads: int | None = None, memory: str = MEMORY
    ) -> None:
        self._history = history
        self._group_feed = GroupFeed(history)
        self._folder = local_folder(history.path)
        self._stack = ExitStack()
        spill = self._stack.enter_context(spill_folder())
        self._database = duckdb.connect(
            config={
                "threads": threads or min(THREADS, os.cpu_count() or 1),
                "memory_limit": memory,
                "temp_directory": str(spill),
                "max_temp_directory_size": SPILL,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                # As Spark sorts.
                "default_null_order": "nulls_first_on_asc_last_on_desc",
                "python_enable_replacements": False,
            }
        )
        self._sessions = Sessions(self._database)
        # Without GLOBAL these would be settings of this session alone.
        self._database.execute("SET GLOBAL TimeZone = 'UTC'")
        # DuckDB's parquet_metadata_cache stays off: it keeps some 30 kB of every file that was ever
        # read, and each round adds files.
        self._database.execute(_MACROS)
        for name, function in FUNCTIONS.items():
            self._database.create_function(
                name,
                function.call,
                list(map(type_name, function.parameters)),
                "VARCHAR",
                null_handling=SPECIAL,
            )
        self._lock()

    def __enter__(self) -> DuckDBEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the memory; queries that run are ended with an error.

        If one does not end in time, its memory is freed when the process ends.
        """
        if self._sessions.close(_ENDS_WITHIN_S):
            self._database.close()
            self._stack.close()

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """Interrupt the queries of this thread after the given number of seconds.

        An interrupted query raises ``QueryTimeoutError``, and so does each that begins later.
        """
        return self._sessions.within(seconds)

    def ask(
        self,
        sql: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        since: datetime = BEGINNING,
        until: datetime | None = None,
        read_since: datetime | None = None,
        group: str | None = None,
    ) -> Answer:
        """Answer a query: one SELECT (``docs/reference/history.md`` says what it may name).

        Args:
            sql: the query; its parameters are ``:name``.
            parameters: values by name; those that the query does not have are not used.
            since: the query is about the time from then on: ``:since``. Views on usage begin
                an hour earlier.
            until: ``:until``; rows of later rounds, reports that were published later, and later
                changes of groups are not seen. None: everything is seen, and ``:until`` is now.
            read_since: files of earlier rounds only need not be read. For a query that asks for
                rounds since then and no earlier ones.
            group: files without this resource group need not be read. For a query that asks for
                rows of this group only.

        Raises:
            InputError: the query is wrong, or needs more memory than it may have.
            HistoryError: a table is missing or can't be read.
        """
        values = {
            **(parameters or {}),
            "since": since,
            "until": until or datetime.now(timezone.utc),
        }
        wanted = parameters_in(sql)
        with self._sessions.session() as session:
            with _errors(self._history):
                self._register(session, sources_of(sql), since, until, read_since, group)
            with _errors(self._history, of_the_query=True):
                statement = _only_select(session, sql)
                used = {n: v for n, v in values.items() if n in wanted}
                rows = interruptible(session, lambda: session.execute(statement, used).fetchall())
                return Answer(distinct_names([c[0] for c in session.description or ()]), rows)

    def columns(
        self,
        queries: Sequence[str],
        parameters: Mapping[str, Any] | None = None,
        *,
        since: datetime = BEGINNING,
        until: datetime | None = None,
        read_since: datetime | None = None,
        group: str | None = None,
    ) -> list[dict[str, np.ndarray[Any, Any]]]:
        """The answers to queries that see the same versions of the tables, as arrays by column.

        For many rows: a row costs no Python object, but for strings. Null is NaN, or masked if the
        column has no floats. For the rest see ``ask``; ``since`` and ``until`` are no parameters.

        Raises:
            InputError, HistoryError: as ``ask``.
        """
        given = parameters or {}
        with self._sessions.session() as session:
            with _errors(self._history):
                sources = sources_of(" ".join(queries))
                self._register(session, sources, since, until, read_since, group)
            with _errors(self._history, of_the_query=True):
                found = []
                for sql in queries:
                    values = {n: given[n] for n in parameters_in(sql) & given.keys()}
                    found.append(session.sql(to_duckdb(sql), params=values or None).fetchnumpy())
        return [
            {
                name: column.filled(np.nan) if _has_nulls(column) else np.asarray(column)
                for name, column in columns.items()
            }
            for columns in found
        ]

    def _lock(self) -> None:
        """Let queries read the history's folder and nothing else."""
        if self._folder is not None:
            # Paths are also checked as they are written, with escaped special characters.
            folder = f"{self._folder}/"
            allowed = ", ".join(quoted(path) for path in {folder, escaped(folder)})
            self._database.execute(f"SET allowed_directories = [{allowed}]")
        self._database.execute("SET enable_external_access = false")
        self._database.execute("SET lock_configuration = true")

    def _register(
        self,
        session: duckdb.DuckDBPyConnection,
        sources: Sources,
        since: datetime,
        until: datetime | None,
        read_since: datetime | None,
        group: str | None,
    ) -> None:
        for name in sources.tables:
            from_then = read_since
            if name == USAGE.name and name not in sources.named:
                from_then = usage_since(since)
            rows = self._rows(session, TABLES[name], from_then, until, group)
            condition = ""
            if until is not None and "round_at" in TABLES[name].schema.names:
                condition = f" WHERE {seen_by(until, name)}"
            session.execute(f"CREATE TEMP VIEW {name} AS SELECT * FROM ({rows}){condition}")
        for name, feed in self._group_feed.tables(sources.feeds, until).items():
            session.register(name, feed)
        for view in sources.views:
            session.execute(f"CREATE TEMP VIEW {view.name} AS {to_duckdb(view.since(since))}")

    def _rows(
        self,
        session: duckdb.DuckDBPyConnection,
        table: Table,
        since: datetime | None,
        until: datetime | None,
        group: str | None,
    ) -> str:
        """A query for the rows of a table."""
        opened = open_table(self._history, table.name)
        if self._folder is None or not is_plain(opened):
            return rows_of_copy(session, table, opened, since, until, group)
        folder = self._folder / table.name
        files = live_files(opened, folder, since=since, until=until, group=group)
        if table is LIMITS:
            names = (os.path.relpath(file, folder) for file in files)
            refuse_damage(self._history, table.name, names)
        if not files:
            return no_rows(table)
        session.execute(
            f"SET VARIABLE {table.name}_files = $files", {"files": list(map(escaped, files))}
        )
        return rows_of_files(table)


def _has_nulls(column: np.ndarray[Any, Any]) -> bool:
    """Whether a column of numbers has nulls."""
    return isinstance(column, np.ma.MaskedArray) and column.dtype.kind == "f"


def _only_select(session: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    statements = session.extract_statements(to_duckdb(sql))
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise InputError("a query must be one SELECT, which may begin with WITH")
    return statements[0]


@contextmanager
def _errors(history: History, *, of_the_query: bool = False) -> Iterator[None]:
    """Turn errors of DuckDB and of the deltalake package into ours, of one line."""
    try:
        yield
    except duckdb.InterruptException:
        raise QueryTimeoutError(ENDED) from None
    except duckdb.OutOfMemoryException as error:
        raise InputError(
            f"the query needs more memory than it may have: {_first_line(error)}; ask for less, "
            "for example with --since"
        ) from None
    except duckdb.IOException as error:
        if SPILL_NAME in str(error):
            raise InputError(
                f"the query needs more memory and more disk than there is: "
                f"{_first_line(error)}; ask for less, for example with --since"
            ) from None
        raise HistoryError(f"history at {location_of(history)}: {_first_line(error)}") from None
    except duckdb.Error as error:
        if of_the_query and not _is_of_a_file(error):
            raise InputError(f"SQL: {_first_line(error)}") from None
        raise HistoryError(f"history at {location_of(history)}: {_first_line(error)}") from None
    except (DeltaError, OSError) as error:
        raise HistoryError(f"history at {location_of(history)}: {one_line(error)}") from None


def _is_of_a_file(error: duckdb.Error) -> bool:
    return ".parquet" in str(error)


def _first_line(error: duckdb.Error) -> str:
    """The problem, and the line of the query that has it."""
    lines = str(error).splitlines()
    where = [line for line in lines[1:] if line.startswith("LINE ")]
    return f"{lines[0]} ({where[0].replace('LINE ', 'line ', 1)})" if where else lines[0]
