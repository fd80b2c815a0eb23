"""Queries of the history for requests: in threads of their own, each answer kept for a second."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from quotaplane.server.refusals import AnswerError
from quotaplane.server.workers import Workers
from quotaplane.settings import History

if TYPE_CHECKING:
    from quotaplane.query.duckdb_engine import DuckDBEngine

KEPT_S: Final = 1.0
"""Many pages that show the same make one query a second."""

_MOST_KEPT: Final = 128
_MOST_WAITING: Final = 32


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
        if sum(not kept.task.done() for kept in self._kept.values()) >= _MOST_WAITING:
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
