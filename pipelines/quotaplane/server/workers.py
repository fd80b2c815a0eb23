"""Threads for the disk: a read or write that hangs must not stop the event loop.

Reads, queries, writes and the checks of ``/readyz`` have threads of their own: if one kind hangs,
the others go on. Each answer of a query is kept for a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from quotaplane.server.refusals import AnswerError
from quotaplane.settings import History

if TYPE_CHECKING:
    from quotaplane.query.duckdb_engine import DuckDBEngine

_READERS: Final = 4
_QUERIES: Final = 2
_MOST_WAITING: Final = 64
"""Writes that wait for the one before them; more are refused at once."""

_Done = TypeVar("_Done")


class Repeated(ABC):
    """Work that a thread of its own repeats."""

    thread_name: str

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def repeat(self) -> float:
        """Do the work once; returns the seconds until it is due again."""

    def start(self) -> None:
        """Start the thread, which begins at once."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name=self.thread_name, daemon=True)
        self._thread.start()

    def close(self, within_s: float) -> bool:
        """Stop the thread; False: its last work is still under way.

        The process must not end by itself meanwhile: native code that calls back into Python
        during its shutdown crashes.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join(within_s)
        return self._thread is None or not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._stop.wait(self.repeat())


class Workers:
    """The threads of one server.

    Writes are made one after the other: each is a commit to the same table, and concurrent commits
    conflict and are repeated.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._readers = ThreadPoolExecutor(_READERS, "server-read")
        self._writer = ThreadPoolExecutor(1, "server-write")
        self._queries = ThreadPoolExecutor(_QUERIES, "server-query")
        self._running: set[Future[object]] = set()
        self._writes = 0

    async def read(self, work: Callable[[], _Done]) -> _Done:
        """Run work that only reads.

        Raises:
            AnswerError: it took too long (503).
        """
        return await self._within(
            self._readers, work, "the history could not be read", "try again later"
        )

    async def query(self, work: Callable[[], _Done]) -> _Done:
        """Run a query, which may take seconds of all cores, and ends itself when it takes too long.

        Raises:
            AnswerError: it took too long (503).
        """
        advice = "ask for less, for example a shorter time"
        return await self._within(self._queries, work, "the query was not answered", advice)

    async def write(self, work: Callable[[], _Done]) -> _Done:
        """Run work that writes, after the writes before it.

        Raises:
            AnswerError: it was not done, or that is unknown (503); the reason says which.
        """
        if self._writes >= _MOST_WAITING:
            raise AnswerError(
                503, "too many changes wait to be written; nothing was done", {"Retry-After": "1"}
            )
        self._writes += 1
        try:
            return await self._within(
                self._writer,
                work,
                "the change could not be written",
                "it may still be done: look before you try again",
            )
        finally:
            self._writes -= 1

    async def _within(
        self, threads: ThreadPoolExecutor, work: Callable[[], _Done], what: str, if_begun: str
    ) -> _Done:
        future = threads.submit(work)
        self._running.add(future)  # type: ignore[arg-type]
        future.add_done_callback(self._running.discard)
        waiting = asyncio.wrap_future(future)
        done, _ = await asyncio.wait({waiting}, timeout=self._timeout_s)
        if done:
            return waiting.result()
        begun = not future.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            waiting.cancel()
        outcome = if_begun if begun else "it was not begun: the server is busy"
        raise AnswerError(503, f"{what} within {self._timeout_s:g} s; {outcome}")

    def close(self) -> bool:
        """Accept no more work; False: some still runs and can't be ended."""
        for threads in (self._readers, self._writer, self._queries):
            threads.shutdown(wait=False, cancel_futures=True)
        return not any(future.running() for future in set(self._running))


KEPT_S: Final = 1.0
"""Many pages that show the same make one query a second."""

_MOST_KEPT: Final = 128
_MOST_QUERIES: Final = 32


@dataclass
class _Kept:
    """An answer, or one that is under way."""

    task: asyncio.Task[Any]
    until: float = float("inf")


class Queries:
    """Runs queries with one DuckDB, which is started by the first.

    A query that runs for longer than ``timeout_s`` is ended.
    """

    def __init__(
        self,
        history: History,
        workers: Workers,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._history, self._workers, self._timeout_s = history, workers, timeout_s
        self._clock = clock
        self._lock = threading.Lock()
        self._engine: DuckDBEngine | None = None
        self._kept: dict[Hashable, _Kept] = {}

    async def ask(self, key: Hashable, query: Callable[[DuckDBEngine], Any]) -> Any:
        """The answer of a query; ``key`` says which it is, with all that it depends on.

        Raises:
            InputError: the query asks for what there is not.
            HistoryError: the history can't be read.
            AnswerError: too many wait, or it took too long (503).
        """
        kept = self._kept.get(key)
        if kept is None or kept.until <= self._clock():
            self._forget()
            kept = self._kept[key] = _Kept(
                asyncio.create_task(self._workers.query(lambda: self._run(query)))
            )
            kept.task.add_done_callback(lambda task: self._answered(kept, task))
        return await asyncio.shield(kept.task)

    def _run(self, query: Callable[[DuckDBEngine], Any]) -> Any:
        engine = self._started()
        with engine.within(self._timeout_s):
            return query(engine)

    def _answered(self, kept: _Kept, task: asyncio.Task[Any]) -> None:
        failed = task.cancelled() or task.exception() is not None
        kept.until = self._clock() + (0.0 if failed else KEPT_S)

    def _forget(self) -> None:
        """Make room."""
        now = self._clock()
        self._kept = {key: kept for key, kept in self._kept.items() if kept.until > now}
        if sum(not kept.task.done() for kept in self._kept.values()) >= _MOST_QUERIES:
            raise AnswerError(503, "too many queries wait for their answers", {"Retry-After": "1"})
        while len(self._kept) >= _MOST_KEPT:
            del self._kept[next(iter(self._kept))]

    def _started(self) -> DuckDBEngine:
        """The engine, which the first query starts."""
        from quotaplane.query.duckdb_engine import DuckDBEngine

        with self._lock:
            if self._engine is None:
                self._engine = DuckDBEngine(self._history)
            return self._engine

    def close(self) -> None:
        """Free the memory, and end the queries that run."""
        with self._lock:
            if self._engine is not None:
                self._engine.close()
                self._engine = None
