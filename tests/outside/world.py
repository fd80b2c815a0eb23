"""The common part of the worlds of Kafka and Pulsar: parts that end together, faults, waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.outside.journal import Exit
from tests.outside.processes import Job, Program, now_ms
from tests.outside.schedule import Fault

_World = TypeVar("_World", bound="World")
_DONE_WITHIN_S: Final = 200.0
_STARTS_WITHIN_S: Final = 400.0


class World:
    """The parts of a run; a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held = ExitStack()
        """The parts that were started."""
        self._threads: dict[str, list[threading.Thread]] = {}
        """Work in the background, by its line."""
        self._failures: list[str] = []
        self.programs: Sequence[Program] = []
        """They are started again when they end."""
        self.job: Job

    def _start(self) -> None:
        """Start all parts."""
        raise NotImplementedError

    def happening(self, fault: Fault) -> Iterator[None]:
        """Begin a fault, or make a change; then, if it lasts, end it."""
        raise NotImplementedError

    def supervise(self) -> None:
        """Start again what has ended."""
        for program in self.programs:
            program.supervise()

    def exits(self) -> list[Exit]:
        """Processes that ended."""
        return sorted(each for program in self.programs for each in program.exits)

    def __enter__(self: _World) -> _World:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._join(60.0)
        self._held.close()

    def later(self, what: str, work: Callable[[], Any], line: str = "") -> None:
        """Do what takes seconds in the background, after what was begun before in its line."""
        threads = self._threads.setdefault(line, [])
        before = threads[-1] if threads else None

        def run() -> None:
            if before is not None:
                before.join()
            try:
                work()
            except Exception as error:
                self._failures.append(f"{what}: {type(error).__name__}: {error}")

        threads.append(threading.Thread(target=run))
        threads[-1].start()

    def settle(self) -> None:
        """Wait until what was begun in the background is done.

        Raises:
            RuntimeError: it failed, or takes too long: then a fault was not what it should be.
        """
        if not self._join(_DONE_WITHIN_S):
            raise RuntimeError(f"work in the background takes longer than {_DONE_WITHIN_S:.0f} s")
        self._threads.clear()
        self._raise()

    def wait(self, for_s: float) -> None:
        """Wait, and supervise meanwhile.

        Raises:
            RuntimeError: work in the background failed.
        """
        until_s = time.monotonic() + for_s
        while (left_s := until_s - time.monotonic()) > 0:
            self.supervise()
            self._raise()
            time.sleep(min(left_s, 0.2))

    def wait_until(self, done: Callable[[], object], what: str) -> None:
        """Wait until ``done()``, after a start.

        Raises:
            RuntimeError: it takes too long; has what the programs said.
        """
        deadline = time.monotonic() + _STARTS_WITHIN_S
        while not done():
            if time.monotonic() > deadline:
                said = [program.said()[-1500:] for program in self.programs]
                raise RuntimeError(f"{what}: {said}")
            self.wait(0.5)

    def play(self, faults: Sequence[Fault], say: Callable[[str], None]) -> None:
        """Let faults begin and end in time; print them, and processes that ended meanwhile."""
        each_happens = [(fault, self.happening(fault)) for fault in faults]
        timeline = [(fault.at_s, "begin", fault, happens) for fault, happens in each_happens]
        timeline += [
            (fault.at_s + fault.for_s, "end", fault, happens)
            for fault, happens in each_happens
            if fault.for_s
        ]
        begun_s, shown = time.monotonic(), 0
        for at_s, what, fault, happens in sorted(timeline, key=lambda each: each[0]):
            self.wait(begun_s + at_s - time.monotonic())
            if fault.kind != "want":
                late_s = time.monotonic() - begun_s - at_s
                late = f" ({late_s:.1f} s late)" if late_s > 1 else ""
                say(f"{at_s:6.1f} s: {what} {fault.kind} {fault.target} {fault.more or ''}{late}")
            next(happens, None)
            for each in self.exits()[shown:]:
                say(f"          {each.process} ended with {each.code}: {each.line[:300]}")
            shown = len(self.exits())

    def until_ready(self, say: Callable[[str], None]) -> int:
        """Wait until the job is ready, or for long; returns the true time."""
        say("no more faults; waiting until the job is ready")
        healed_s = time.monotonic()
        while not self.job.is_ready and time.monotonic() < healed_s + _STARTS_WITHIN_S:
            self.wait(0.2)
        say(f"quiet from now on; the job was ready {time.monotonic() - healed_s:.1f} s later")
        return now_ms()

    def _join(self, within_s: float) -> bool:
        until_s = time.monotonic() + within_s
        threads = [each for line in self._threads.values() for each in line]
        for thread in threads:
            thread.join(max(until_s - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in threads)

    def _raise(self) -> None:
        if self._failures:
            raise RuntimeError(self._failures[0])
