"""What commands that run until a signal share: signals, and status lines of JSON."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, Final

from quotaplane.errors import OutputError

_STATUS_EVERY_S: Final = 10.0


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


def print_line(line: dict[str, Any], *, stamped: bool = False) -> None:
    """Print a line of JSON to stdout; ``stamped``: with the time."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    head = {"at": now} if stamped else {}
    print(json.dumps({**head, **line}, ensure_ascii=False), flush=True)
