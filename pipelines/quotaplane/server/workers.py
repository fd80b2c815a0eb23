"""Threads for the disk: a read or write that hangs must not stop the event loop.

Reads, queries, writes and the checks of ``/readyz`` have threads of their own: if one kind hangs,
the others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from quotaplane.server.refusals import AnswerError

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

    def close(self, within_s: float = 1.0) -> bool:
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
