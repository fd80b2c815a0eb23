"""Bounds the connections of the server, so that idle ones never use up its open files."""

from __future__ import annotations

import asyncio
import errno
import resource
from collections.abc import Callable
from typing import Any, Final

MOST_CONNECTIONS: Final = 1000
BACKLOG: Final = 128
"""Connections that the kernel keeps until they are accepted; asyncio accepts as many in a row."""
_OTHER_FILES: Final = 256
_ACCEPTED_IN_ADVANCE: Final = 4 * BACKLOG
"""Spare connections: asyncio accepts more of them between the refusal of one and its end."""
_FULL: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

REFUSAL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
    b"Connection: close\r\nContent-Length: 34\r\n\r\n"
    b'{"reason": "too many connections"}'
)


def connections_within(open_files: int) -> int:
    """The most connections with a limit of open files.

    >>> connections_within(20_000), connections_within(1024), connections_within(256)
    (1000, 256, 16)
    """
    return min(MOST_CONNECTIONS, max(16, open_files - _OTHER_FILES - _ACCEPTED_IN_ADVANCE))


def raise_open_files() -> int:
    """Raise the process's limit of open files as far as is needed and allowed; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + _OTHER_FILES + _ACCEPTED_IN_ADVANCE
    if resource.RLIM_INFINITY in (soft, hard) or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    soft = min(hard, wanted)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


class ConnectionBound:
    """Prints one line when connections begin to be refused; again only after all were accepted.

    >>> bound = ConnectionBound(2, print)
    >>> [bound.admits(number) for number in (2, 3, 4)]
    server: 2 connections are open: more are refused (503) until some are closed
    [True, False, False]
    """

    def __init__(self, most: int, say: Callable[[str], None]) -> None:
        self._most, self._say = most, say
        self._is_full = False

    def admits(self, connections: int) -> bool:
        """Whether a new connection may stay; it is among these."""
        if connections > self._most:
            self._full(
                f"{self._most} connections are open: more are refused (503) until some are closed"
            )
            return False
        if connections <= self._most // 2:
            self._is_full = False
        return True

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an error of the event loop: that no connection can be accepted is one line."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _FULL:
            self._full(f"connections can't be accepted: {error.strerror}; check `ulimit -n`")
        else:
            loop.default_exception_handler(context)

    def _full(self, text: str) -> None:
        if not self._is_full:
            self._say(f"server: {text}")
        self._is_full = True
