"""Virtual time: a queue of events, and the clock of each machine."""

from __future__ import annotations

import hashlib
import heapq
import math
from collections import deque
from collections.abc import Callable
from typing import Any, Final

START_MS: Final = 1_700_000_000_000

_KEPT: Final = 60
"""Events that the text of a failure shows."""


class Timeline:
    """The events of a run in the order of their times; equal times keep the order of ``at``."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, time_ms: int, event: Callable[[], None]) -> None:
        """Let an event happen at a time, at the earliest now."""
        self._number += 1
        heapq.heappush(self._queue, (max(time_ms, self.now_ms), self._number, event))

    def after(self, wait_ms: int, event: Callable[[], None]) -> None:
        """Let an event happen after a pause."""
        self.at(self.now_ms + wait_ms, event)

    def due_ms(self) -> float:
        """The time of the next event; inf: there is none."""
        return self._queue[0][0] if self._queue else math.inf

    def run_until(self, end_ms: int) -> None:
        """Let all events up to a time happen. An event may call this, too: then it is frozen
        meanwhile, like a process that gets no processor time."""
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, event = heapq.heappop(self._queue)
            event()
        self.now_ms = max(self.now_ms, end_ms)


class Clock:
    """The clock of one machine: it may differ from true time, and be set."""

    def __init__(self, timeline: Timeline, offset_ms: int = 0) -> None:
        self._timeline, self.offset_ms = timeline, offset_ms

    def now_ms(self) -> int:
        return self._timeline.now_ms + self.offset_ms


class Trace:
    """Events of a run: a hash of all, and the last ones as text."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._hash = hashlib.blake2b(digest_size=16)
        self._last: deque[tuple[int, str, tuple[Any, ...]]] = deque(maxlen=_KEPT)
        self.faults: list[str] = []
        self.is_over = False
        """The run is over; what killed processes still say does not count."""

    def note(self, what: str, *details: Any) -> None:
        """Add an event; ``details`` are numbers, texts or bytes."""
        if self.is_over:
            return
        now_ms = self._timeline.now_ms - START_MS
        self._hash.update(repr((now_ms, what, details)).encode())
        self._last.append((now_ms, what, details))

    def fault(self, what: str, *details: Any) -> None:
        """Add a fault, which the text of a failure lists from the beginning."""
        self.note(what, *details)
        now_ms = self._timeline.now_ms - START_MS
        self.faults.append(f"{now_ms / 1000:8.3f} s  {what} {' '.join(map(str, details))}")

    def digest(self) -> str:
        """The hash of all events so far."""
        return self._hash.hexdigest()

    def last_events(self) -> list[str]:
        """The last events, a line each."""
        return [
            f"{at_ms / 1000:8.3f} s  {what} {' '.join(map(_short, details))}"
            for at_ms, what, details in self._last
        ]


def _short(detail: Any) -> str:
    if isinstance(detail, bytes):
        return f"[{len(detail)} bytes {hashlib.blake2b(detail, digest_size=4).hexdigest()}]"
    return str(detail)
