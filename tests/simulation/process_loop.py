"""Asynchronous programs in virtual time: each process has an event loop of its own.

``Machines`` decides which loop runs next. A loop may be skipped for a while (a frozen process) or
for ever (a killed one), between any two of its steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import warnings
from asyncio import events
from collections.abc import Coroutine
from typing import Any

from tests.simulation.virtual_time import START_MS, Timeline
from tests.virtual_loop import LoopWithoutInput


class ProcessLoop(LoopWithoutInput):
    """The event loop of one process."""

    def __init__(self, timeline: Timeline, name: str) -> None:
        self._timeline, self.name = timeline, name
        self.frozen_until_ms = 0
        super().__init__()
        # An event at a fraction of a millisecond is due at the next whole one.
        self._clock_resolution = 0.0011
        self.errors: list[BaseException] = []
        self._dead: list[asyncio.Task[Any]] = []

    def time(self) -> float:
        """Seconds since the run began, which also pass while the process is frozen."""
        return (self._timeline.now_ms - START_MS) / 1000

    def due_ms(self) -> float:
        """When the process has something to do; inf: never."""
        if self._ready:  # type: ignore[attr-defined]
            due_ms = float(self._timeline.now_ms)
        elif self._scheduled:  # type: ignore[attr-defined]
            when_s = self._scheduled[0]._when  # type: ignore[attr-defined]
            due_ms = math.ceil(when_s * 1000 - 1e-6) + START_MS
        else:
            return math.inf
        return max(due_ms, self.frozen_until_ms)

    def step(self) -> None:
        """Run everything that is ready."""
        events._set_running_loop(self)
        try:
            self._run_once()  # type: ignore[attr-defined]
        finally:
            events._set_running_loop(None)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start the process's main program; an exception of it is kept in ``errors``."""
        task = self.create_task(work)

        def ended(done: asyncio.Task[None]) -> None:
            if not done.cancelled() and (error := done.exception()) is not None:
                self.errors.append(error)

        task.add_done_callback(ended)

    def kill(self) -> None:
        """End the process at once; nothing of it runs any more."""
        self._dead = list(asyncio.all_tasks(self))
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]
        self.close()

    def bury(self) -> None:
        """Close what the killed process left; else Python does it later, and complains."""
        events._set_running_loop(self)
        before = warnings.filters[:]
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            for task in self._dead:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(RuntimeError, asyncio.CancelledError):
                    task.get_coro().close()  # type: ignore[union-attr]
        finally:
            warnings.filters[:] = before  # type: ignore[index]
            events._set_running_loop(None)


class Machines:
    """Runs the events of a timeline and the steps of processes in the order of their times."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.loops: list[ProcessLoop] = []
        self._killed: list[ProcessLoop] = []
        self.failure: Exception | None = None
        """Ends the run, also if a process handled it."""

    def start(self, name: str) -> ProcessLoop:
        """A new process."""
        loop = ProcessLoop(self.timeline, name)
        self.loops.append(loop)
        return loop

    def kill(self, loop: ProcessLoop) -> None:
        """End a process."""
        self.loops = [each for each in self.loops if each is not loop]
        self._killed.append(loop)
        loop.kill()

    def end(self) -> None:
        """End all processes; the run is over."""
        for loop in list(self.loops):
            self.kill(loop)
        for loop in self._killed:
            loop.bury()

    def run_until(self, end_ms: int) -> None:
        """Run all that is due up to a time."""
        timeline = self.timeline
        while True:
            loop = min(self.loops, key=ProcessLoop.due_ms, default=None)
            loop_ms = math.inf if loop is None else loop.due_ms()
            event_ms = timeline.due_ms()
            if min(loop_ms, event_ms) > end_ms:
                timeline.now_ms = max(timeline.now_ms, end_ms)
                return
            if event_ms <= loop_ms:
                timeline.run_until(int(event_ms))
            else:
                assert loop is not None
                timeline.now_ms = max(timeline.now_ms, int(loop_ms))
                loop.step()
                if self.failure is not None:
                    raise self.failure
                if loop.errors:
                    raise loop.errors[0]
