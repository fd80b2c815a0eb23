"""A job's output lines with timestamps: ready, status, warnings, the end.

Callers only queue lines; one thread prints them, and a status line every ten seconds. So lines
still appear while a batch hangs, and a blocked terminal stops no batch.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Final

from quotaplane.agents.conditions import Conditions
from quotaplane.console.terminal import one_line, write_line
from quotaplane.streams.status import JobStatus
from quotaplane.texts import utc_text

STATUS_EVERY_S: Final = 10.0
_MAX_TEXT: Final = 2000
_MAX_QUEUED: Final = 100
"""Lines that wait while the terminal blocks; the oldest are dropped."""
END_PATIENCE_S: Final = 2.0


class JobLines:
    """The lines of one job; before ``start`` and after ``end`` each is printed immediately."""

    def __init__(
        self,
        status: JobStatus,
        *,
        write: Callable[[str], None] = write_line,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        clock: Callable[[], float] = time.monotonic,
        end_patience_s: float = END_PATIENCE_S,
    ) -> None:
        self.status = status
        self.conditions = Conditions(self.warn, lambda text: self.say("recovered", text), clock)
        status.wrong_now = self.conditions.active
        self._write, self._now, self._clock = write, now, clock
        self._end_patience_s = end_patience_s
        self._queue: deque[str] = deque(maxlen=_MAX_QUEUED)
        self._wake = threading.Condition()
        self._queued = False
        self._status_due_s = clock() + STATUS_EVERY_S
        self._thread = threading.Thread(target=self._print, name="job-lines", daemon=True)

    @classmethod
    def silent(cls, status: JobStatus) -> JobLines:
        """Lines that are not printed."""
        return cls(status, write=lambda _: None)

    def start(self) -> None:
        """Start the printing thread."""
        self._queued = True
        self._thread.start()

    def say(self, kind: str, text: str) -> None:
        """Print a line soon; control characters in ``text`` are escaped, long texts cut."""
        line = f"{utc_text(self._now())} quotaplane: {kind}: {one_line(text, _MAX_TEXT)}"
        with self._wake:
            if self._queued:
                self._queue.append(line)
                self._wake.notify()
                return
        self._write(line)

    def warn(self, text: str) -> None:
        """Print a warning soon."""
        self.say("warning", text)

    def end(self, why: str) -> None:
        """Print the queued lines and the last one; waits ``end_patience_s`` for the terminal."""
        self.say("ended", f"{why}; {self.status.total()}")
        with self._wake:
            self._queued = False
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(self._end_patience_s)

    def take_due(self) -> list[str]:
        """The lines to print now, with the status line if it is due."""
        with self._wake:
            now_s = self._clock()
            due = self._queued and now_s >= self._status_due_s
            if due:
                self._status_due_s += STATUS_EVERY_S
                if self._status_due_s <= now_s:  # one line is enough after a long pause
                    self._status_due_s = now_s + STATUS_EVERY_S
        if due:
            self.say("status", self.status.period())
        with self._wake:
            lines = list(self._queue)
            self._queue.clear()
        return lines

    def _print(self) -> None:
        goes_on = True
        while goes_on:
            with self._wake:
                if self._queued and not self._queue:
                    self._wake.wait(max(self._status_due_s - self._clock(), 0.0))
                goes_on = self._queued
            for line in self.take_due():
                self._write(line)
