"""Connections to one DuckDB, one for each query, which end in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

import duckdb

from quotaplane.errors import QueryTimeoutError

ENDED: Final = "the query took too long and was ended; ask for less, for example a shorter time"

_AGAIN_S: Final = 0.1
"""Interval of interrupts until a query ends: between two statements, one has no effect."""
_Result = TypeVar("_Result")


class Sessions:
    """The sessions of one database; methods may be called in several threads."""

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self._database = database
        self._deadline = threading.local()
        self._open: set[duckdb.DuckDBPyConnection] = set()
        self._changed = threading.Condition()
        self._is_closing = False

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Interrupt the queries of this thread after the given number of seconds."""
        self._deadline.at_s = time.monotonic() + seconds
        try:
            yield
        finally:
            del self._deadline.at_s

    @contextmanager
    def session(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection of its own: temporary views are not seen by others.

        Raises:
            QueryTimeoutError: the thread's time is over already, or ``close`` was called.
        """
        at_s = getattr(self._deadline, "at_s", None)
        remaining_s = None if at_s is None else at_s - time.monotonic()
        if remaining_s is not None and remaining_s <= 0:
            raise QueryTimeoutError(ENDED)
        with self._changed:
            if self._is_closing:
                raise QueryTimeoutError(ENDED)
            session = self._database.cursor()
            self._open.add(session)
        ended = threading.Event()
        if remaining_s is not None:
            arguments = (session, remaining_s, ended)
            threading.Thread(target=_interrupt_after, args=arguments, daemon=True).start()
        try:
            yield session
        finally:
            ended.set()
            session.close()
            with self._changed:
                self._open.discard(session)
                self._changed.notify_all()

    def close(self, within_s: float) -> bool:
        """End the queries that run, and begin no others; False: one did not end in time."""
        until = time.monotonic() + within_s
        with self._changed:
            self._is_closing = True
            while self._open and time.monotonic() < until:
                for session in self._open:
                    _interrupt(session)
                self._changed.wait(_AGAIN_S)
            return not self._open


def interruptible(session: duckdb.DuckDBPyConnection, work: Callable[[], _Result]) -> _Result:
    """Run a query so that Ctrl-C ends it: DuckDB itself does not look for signals meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    with ThreadPoolExecutor(1, thread_name_prefix="query") as pool:
        running = pool.submit(work)
        try:
            return running.result()
        except KeyboardInterrupt:
            while not wait([running], _AGAIN_S).done:
                _interrupt(session)
            raise


def _interrupt_after(
    session: duckdb.DuckDBPyConnection, seconds: float, ended: threading.Event
) -> None:
    """End the queries of a session that has not ended by then."""
    ended.wait(seconds)
    while not ended.wait(_AGAIN_S):
        _interrupt(session)


def _interrupt(session: duckdb.DuckDBPyConnection) -> None:
    with suppress(duckdb.ConnectionException):  # closed meanwhile
        session.interrupt()
