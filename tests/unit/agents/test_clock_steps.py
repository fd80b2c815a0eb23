"""A clock that is set while a job runs: the job says so, and does not stand still."""

from __future__ import annotations

import time

import pytest

from quotaplane.agents.clock_steps import ClockSteps, steady_clock_ms
from quotaplane.streams.batch_attempts import open_attempts
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.lifecycle import RunningQuery, run_until_stopped
from quotaplane.streams.skipped_batches import SingleBatch
from quotaplane.streams.status import JobStatus
from tests.unit.streams.test_attempts import Folder


class Clocks:
    """The wall clock and the boot clock of a host."""

    def __init__(self) -> None:
        self.wall_s, self.boot_s = 1_790_000_000.0, 100.0

    def pass_s(self, seconds: float, *, set_by: float = 0.0) -> None:
        self.wall_s += seconds + set_by
        self.boot_s += seconds

    def steps(self) -> ClockSteps:
        return ClockSteps(lambda: self.wall_s, lambda: self.boot_s)


def test_a_drift_of_a_hundredth_is_no_step() -> None:
    clocks = Clocks()
    steps = clocks.steps()
    for _ in range(1000):
        clocks.pass_s(10.0, set_by=0.1)
        assert steps.check() == 0.0


def test_a_steady_clock_can_not_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = steady_clock_ms()
    began_ms = clock()
    assert began_ms == pytest.approx(time.time() * 1000, abs=60_000)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert began_ms <= clock() < began_ms + 60_000


class Job(RunningQuery):
    """Waits in a query that ends when it is stopped, while its host's clock is set."""

    def __init__(self, clocks: Clocks, set_by: list[float], lines: list[str]) -> None:
        status = JobStatus((), (), time.monotonic)
        attempts = open_attempts(Folder(), "quota", None)  # type: ignore[arg-type]
        super().__init__(attempts, lines=JobLines(status, write=lines.append))
        self._clock, self._clocks, self._set_by = clocks.steps(), clocks, set_by
        self.stopped = False

    def wait(self, timeout_s: float | None = None) -> bool:
        if not self._set_by:
            return True
        self._clocks.pass_s(0.5, set_by=self._set_by.pop(0))
        return False

    def note_progress(self) -> None:
        pass

    def stop(self, patience_s: float = 30.0) -> None:
        self.stopped = True


def run(*set_by: float, alone: SingleBatch | None = None) -> tuple[list[Job], list[str]]:
    """The jobs that were started, and what they printed, while the clock is set by so much."""
    clocks, steps, lines, jobs = Clocks(), list(set_by), list[str](), list[Job]()

    def start(skip: int | None) -> Job:
        jobs.append(Job(clocks, steps, lines))
        jobs[-1].alone = alone if len(jobs) == 1 else None
        return jobs[-1]

    assert run_until_stopped(start) == "Spark ended the query"
    assert all(job.stopped for job in jobs)
    return jobs, [line.partition(" quotaplane: ")[2] for line in lines]


def test_a_clock_that_was_set_back_starts_the_query_again() -> None:
    """Spark sleeps until a time of the wall clock: for an hour."""
    jobs, lines = run(0.0, -3600.0, 0.0, 0.0)
    assert len(jobs) == 2
    assert lines == [
        "warning: this host's clock was set back by 3600 s: Spark would wait for the time it was "
        "before, so the query starts again. Check that NTP runs on this host"
    ]
    assert jobs[0].lines.status.readings().numbers["clock_steps"] == {(): 1}


@pytest.mark.parametrize("step_s", [-1.5, 1.5, 3600.0])
def test_any_other_step_is_printed_only(step_s: float) -> None:
    jobs, (line,) = run(step_s, 0.0)
    assert len(jobs) == 1
    assert line.startswith(f"warning: this host's clock was set {'back' if step_s < 0 else 'forw'}")
    assert "reports are compared with the new time" in line


def test_a_batch_that_runs_alone_waits_for_no_time() -> None:
    jobs, _ = run(-3600.0, 0.0, alone=SingleBatch(7))
    assert len(jobs) == 2  # as always after such a batch
