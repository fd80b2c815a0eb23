"""Shared parts of commands that run until a signal: signals, and status lines of JSON."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, Final

from quotaplane.console.answers import json_of
from quotaplane.errors import OutputError
from quotaplane.metrics.readings import Readings
from quotaplane.texts import utc_text

_STATUS_EVERY_S: Final = 10.0
_READ_EVERY_S: Final = 1.0


def stop_at_signal() -> asyncio.Event:
    """An event that SIGTERM or Ctrl-C sets; a second signal ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stopping() -> None:
        stop.set()
        # A second signal gets its default action and ends the process.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping)
    return stop


async def print_status(status: Callable[[], dict[str, Any]]) -> None:
    """Print the status every 10 s, until cancelled.

    The program continues if a line can't be written; its end reports that.
    """
    while True:
        await asyncio.sleep(_STATUS_EVERY_S)
        with contextlib.suppress(OutputError):
            print_line(status(), stamped=True)


class LatestReadings:
    """The last readings of a program's loop, for a thread that serves metrics."""

    def __init__(self) -> None:
        self._latest = Readings()

    def __call__(self) -> Readings:
        """The last readings; empty before the first."""
        return self._latest

    async def follow(self, read: Callable[[], Readings]) -> None:
        """Read every second, until cancelled."""
        while True:
            self._latest = read()
            await asyncio.sleep(_READ_EVERY_S)


def print_line(line: dict[str, Any], *, stamped: bool = False) -> None:
    """Print a line of JSON to stdout; ``stamped``: with the time."""
    head = {"at": utc_text(datetime.now(timezone.utc), "milliseconds")} if stamped else {}
    print(json_of({**head, **line}), flush=True)
