"""Event loops of asyncio without real input, threads or waiting."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

CALL_S: Final = 0.002
"""Time that a call in a thread takes."""
_Answer = TypeVar("_Answer")


class _NothingToRead(selectors.SelectSelector):
    """A selector that never waits: its loop lets the time pass."""

    def __init__(self, loop: LoopWithoutInput) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        self._loop.let_pass(timeout)
        return []


class LoopWithoutInput(asyncio.SelectorEventLoop):
    """A loop that reads nothing; what would run in a thread is called by the loop itself."""

    def __init__(self) -> None:
        super().__init__(_NothingToRead(self))

    def let_pass(self, seconds: float | None) -> None:
        """Nothing is to do for so long; None: for ever."""

    def _make_self_pipe(self) -> None:
        pass

    def _close_self_pipe(self) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call ``func`` a little later, in place of a thread."""
        future = self.create_future()

        def call() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(CALL_S, call)
        return future


class VirtualLoop(LoopWithoutInput):
    """A loop whose time passes only while everything waits."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__()

    def let_pass(self, seconds: float | None) -> None:
        """Set the clock forward."""
        if seconds is None:
            raise RuntimeError("everything waits for something that never happens")
        self.now_s += seconds

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self.now_s


def run_virtually(work: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Like ``asyncio.run``, in virtual time: an hour takes as long as the work in it.

    >>> async def waits() -> float:
    ...     await asyncio.sleep(3600)
    ...     return asyncio.get_running_loop().time()
    >>> run_virtually(waits())
    3600.0
    """
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
