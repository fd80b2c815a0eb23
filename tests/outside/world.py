"""The common part of the worlds of Kafka and Pulsar: parts end together; background work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, TypeVar

_World = TypeVar("_World", bound="World")
_DONE_WITHIN_S: Final = 200.0


class World:
    """The parts of a run; a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held = ExitStack()
        """The parts that were started."""
        self._threads: dict[str, list[threading.Thread]] = {}
        """Work in the background, by its line."""
        self._failures: list[str] = []

    def _start(self) -> None:
        """Start all parts."""
        raise NotImplementedError

    def supervise(self) -> None:
        """Start again what has ended."""
        raise NotImplementedError

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

    def _join(self, within_s: float) -> bool:
        until_s = time.monotonic() + within_s
        threads = [each for line in self._threads.values() for each in line]
        for thread in threads:
            thread.join(max(until_s - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in threads)

    def _raise(self) -> None:
        if self._failures:
            raise RuntimeError(self._failures[0])
