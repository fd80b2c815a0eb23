"""Waits for what other processes and threads do."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

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
