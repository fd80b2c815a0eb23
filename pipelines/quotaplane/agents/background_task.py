"""A task with an event loop of its own, in a thread beside the program that needs it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from typing import Final

_PATIENCE_S: Final = 5.0


class BackgroundTask:
    """How the task says that it has begun, and learns that it is to end."""

    def __init__(self) -> None:
        self._cancel: Future[Callable[[], None]] = Future()
        self._ended = threading.Event()

    @property
    def running(self) -> bool:
        """The context has not ended. Python before 3.12 may lose a cancellation that coincides
        with a result, so the task asks, too.
        """
        return not self._ended.is_set()

    def started(self) -> None:
        """The task has begun, and the context with it; called once, in the task."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def cancel() -> None:
            loop.call_soon_threadsafe(task.cancel)

        self._cancel.set_result(cancel)

    def failed(self, error: BaseException) -> None:
        """The task ended before it had begun."""
        if not self._cancel.done():
            self._cancel.set_exception(error)

    def wait(self) -> Callable[[], None]:
        """Wait until the task has begun; returns a function that ends it."""
        cancel = self._cancel.result()

        def end() -> None:
            self._ended.set()
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended
                cancel()

        return end


@contextlib.contextmanager
def background_task(name: str, main: Callable[[BackgroundTask], Awaitable[None]]) -> Iterator[None]:
    """Run a task within this context, which begins once the task calls ``BackgroundTask.started``.

    Raises:
        BaseException: what the task raised before that.
    """
    task = BackgroundTask()

    async def awaited() -> None:
        await main(task)

    def run() -> None:
        try:
            with contextlib.suppress(asyncio.CancelledError):
                asyncio.run(awaited())
        except BaseException as error:  # raised in the thread that waits
            task.failed(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    end = task.wait()
    try:
        yield
    finally:
        end()
        thread.join(_PATIENCE_S)
