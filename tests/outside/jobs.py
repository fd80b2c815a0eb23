"""The quota jobs of a run, one after the other; and faults of their processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.outside.processes import Job
from tests.wall_clock import WallClock


class Jobs:
    """All jobs that were started; the last one leads, or will.

    Args:
        folder: of the run, for checkpoints.
        clock: of all jobs.
        conf: gets a job's name, its number from 0 on and its checkpoint; makes its settings file.
    """

    def __init__(
        self, folder: Path, clock: WallClock, conf: Callable[[str, int, Path], Path]
    ) -> None:
        self.all: list[Job] = []
        self._folder, self._clock, self._conf = folder, clock, conf
        self._checkpoints = 0

    @property
    def last(self) -> Job:
        return self.all[-1]

    def start(self, *, new_checkpoint: bool) -> None:
        """Start another job process, which replaces the one before."""
        for job in self.all:
            job.replaced = True
        self._checkpoints += new_checkpoint
        number = len(self.all)
        name = f"job-{number + 1}"
        conf = self._conf(name, number, self._folder / f"checkpoint-{self._checkpoints}")
        self.all.append(Job(name, conf, self._clock))

    def begin(self, kind: str) -> None:
        """Begin a fault: kill, freeze, replace, freeze and replace, twin or new checkpoint."""
        if kind == "kill":
            self.last.kill()
        elif kind == "freeze":
            self.last.freeze()
        elif kind == "new checkpoint":
            self.last.replaced = True
            self.last.kill()
            self.start(new_checkpoint=True)
        else:
            if kind == "freeze and replace":
                self.last.freeze()
            self.start(new_checkpoint=kind != "twin")

    def thaw(self) -> None:
        """No job is frozen any more."""
        for job in self.all:
            job.thaw()

    def kill(self) -> None:
        """Kill all."""
        for job in self.all:
            job.kill()
