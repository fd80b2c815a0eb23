"""What a running job says, a line each, with the time: ready, status, warnings, the end.

Lines are only queued where they arise; one thread prints them, and the status every ten seconds.
So a line is printed while a batch hangs, and a terminal that takes nothing stops no batch.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Final

from quotaplane.streams.status import JobStatus
from quotaplane.terminal import one_line, write_line

STATUS_EVERY_S: Final = 10.0
_MAX_TEXT: Final = 2000
_MAX_QUEUED: Final = 100
"""Lines that wait while the terminal takes nothing; the oldest are dropped."""
_END_PATIENCE_S: Final = 2.0


class JobLines:
    """The lines of one job; before ``start`` and after ``end`` each is printed where it arises."""

    def __init__(
        self,
        status: JobStatus,
        *,
        write: Callable[[str], None] = write_line,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.status = status
        self._write, self._now, self._clock = write, now, clock
        self._queue: deque[str] = deque(maxlen=_MAX_QUEUED)
        self._wake = threading.Condition()
        self._queued = False
        self._status_due_s = clock() + STATUS_EVERY_S
        self._thread = threading.Thread(target=self._print, name="job-lines", daemon=True)

    @classmethod
    def silent(cls, status: JobStatus) -> JobLines:
        """Lines that nobody sees."""
        return cls(status, write=lambda _: None)

    def start(self) -> None:
        """Begin to print the status."""
        self._queued = True
        self._thread.start()

    def say(self, kind: str, text: str) -> None:
        """Print a line soon; what is odd in ``text`` is written out, what is too long cut."""
        stamp = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        line = f"{stamp} quotaplane: {kind}: {one_line(text, _MAX_TEXT)}"
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
        """Print what is left and the last line; waits for that, but not for a stuck terminal."""
        self.say("ended", f"{why}; {self.status.total()}")
        with self._wake:
            self._queued = False
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(_END_PATIENCE_S)

    def take_due(self) -> list[str]:
        """The lines to print now, the status among them when it is due."""
        with self._wake:
            now_s = self._clock()
            due = self._queued and now_s >= self._status_due_s
            if due:
                self._status_due_s += STATUS_EVERY_S
                if self._status_due_s <= now_s:  # after a long pause one line is enough
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
