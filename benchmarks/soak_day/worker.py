"""A process that answers questions, and can be killed and started again at any time."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any


class Worker:
    """A process that answers, and can be killed and started again at any time."""

    def __init__(self, name: str, target: Callable[..., None], *arguments: Any) -> None:
        self.name, self._target, self._arguments = name, target, arguments
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=self._target, args=(theirs, *self._arguments), daemon=True
        )
        self.process.start()
        theirs.close()
        self._pipe.recv()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def ask(self, *question: Any) -> Any:
        """Raises EOFError if it was killed meanwhile."""
        self._pipe.send(question)
        return self._pipe.recv()

    def ask_and_kill(self, after_s: float, *question: Any) -> Any:
        """Ask, kill it amid the work, start it again, and ask again."""
        self._pipe.send(question)
        time.sleep(after_s)
        self.kill()
        self.start()
        return self.ask(*question)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self._pipe.close()
