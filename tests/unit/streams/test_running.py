"""What a job says and counts around each batch."""

from __future__ import annotations

import time
from typing import Any

import pytest

from quotaplane.errors import NoUsableReportsError
from quotaplane.streams.batch_attempts import open_attempts
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.lifecycle import RunningQuery
from quotaplane.streams.skipped_batches import SingleBatch
from quotaplane.streams.status import JobStatus
from tests.unit.streams.test_attempts import Folder


class Job(RunningQuery):
    """Its batches are called here in place of Spark."""

    def __init__(self, folder: Folder, alone: SingleBatch | None = None) -> None:
        self.said: list[str] = []
        lines = JobLines(JobStatus((), (), time.monotonic), write=self.said.append)
        super().__init__(open_attempts(folder, "quota", None), lines=lines)  # type: ignore[arg-type]
        self.alone = alone

    def run(self, seq: int, sink: Any = lambda outputs, seq: None) -> None:
        self._guarded(sink, "reads this")(None, seq)  # type: ignore[arg-type]


def test_a_job_is_ready_once() -> None:
    job = Job(Folder())
    batch = job._guarded(lambda outputs, seq: None, "reads this")
    for seq in range(7, 10):
        batch(None, seq)  # type: ignore[arg-type]
    (line,) = job.said
    assert line.endswith(" quotaplane: ready: reads this; begins with round 7")
    assert "rounds=3 " in job.lines.status.total()


def test_a_batch_that_runs_alone_is_not_the_stream() -> None:
    job = Job(Folder(), SingleBatch(7))
    job.run(7)
    assert job.said == []
    assert "rounds=1 " in job.lines.status.total()


def test_a_job_that_ends_for_unusable_reports_does_not_blame_the_batch() -> None:
    """Neither the batch nor the round is counted; however often it is started, none is refused."""
    folder = Folder()
    folder.begun = 0
    for _ in range(5):
        job = Job(folder)

        def sink(outputs: Any, seq: int) -> None:
            raise NoUsableReportsError("0 of 9 reports")

        with pytest.raises(NoUsableReportsError):
            job.run(0, sink)
        job.attempts.excuse()
        assert "rounds=0 " in job.lines.status.total()
