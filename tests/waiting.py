"""Waits for what other processes and threads do."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from quotaplane.streams.job import StreamJob

_Found = TypeVar("_Found")


def wait_until(
    done: Callable[[], _Found],
    within_s: float = 300.0,
    *,
    process: subprocess.Popen[bytes] | None = None,
    said: Callable[[], str] = lambda: "",
    every_s: float = 0.05,
) -> _Found:
    """Poll until ``done()``, and return what it gave.

    Raises:
        AssertionError: it took too long, or ``process`` ended; has what that ``said()``.
    """
    deadline = time.monotonic() + within_s
    while not (found := done()):
        code = None if process is None else process.poll()
        if code is not None or time.monotonic() > deadline:
            what = "it took too long" if code is None else f"it ended with exit code {code}"
            raise AssertionError(f"{what}; {said()}")
        time.sleep(every_s)
    return found


def wait_beside(job: StreamJob, done: Callable[[], _Found], within_s: float = 120.0) -> _Found:
    """Poll until ``done()`` while a job of this process runs, and return what it gave."""

    def found() -> _Found:
        found = done()
        assert found or not job.wait(timeout_s=0.05), "the job ended"
        return found

    return wait_until(found, within_s, every_s=0.0)


@contextmanager
def meanwhile(*works: Callable[[threading.Event], object]) -> Iterator[None]:
    """Run functions in threads of their own; each is handed the event that says when to end."""
    over = threading.Event()
    threads = [threading.Thread(target=work, args=(over,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(30)
