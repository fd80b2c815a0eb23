"""Counts messages or requests that are refused, and prints few: a flood must not fill the log."""

from __future__ import annotations

from typing import Final

from quotaplane.agents.failures import Say
from quotaplane.errors import QuotaplaneError

_LINE_EVERY_S: Final = 60.0


class RefusalLog:
    """Refusals of one topic, or for one reason; at most one line a minute.

    >>> log = RefusalLog("plans topic", print)
    >>> for now_s in (0.0, 1.0, 2.0, 61.0):
    ...     log.refuse("p/0@7", QuotaplaneError("not signed"), now_s)
    plans topic: p/0@7 refused: not signed
    plans topic: p/0@7 refused: not signed; 2 more refused since the last such line
    >>> log.count
    4
    """

    def __init__(self, topic: str, say: Say) -> None:
        self._topic, self._say = topic, say
        self.count = 0
        """Messages that were refused since the start."""
        self._said_s: float | None = None
        self._unsaid = 0

    def refuse(self, message: str, error: Exception, now_s: float) -> None:
        """Count a message; ``now_s`` is a monotonic clock's time."""
        self.count += 1
        if self._said_s is not None and now_s < self._said_s + _LINE_EVERY_S:
            self._unsaid += 1
            return
        # A bug is no reason to lose the next messages, but must be visible: name its type.
        kind = "" if isinstance(error, QuotaplaneError) else f"{type(error).__name__}: "
        more = f"; {self._unsaid} more refused since the last such line" if self._unsaid else ""
        self._say(f"{self._topic}: {message} refused: {kind}{error}{more}")
        self._said_s, self._unsaid = now_s, 0
