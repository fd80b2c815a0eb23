"""How often a batch may fail, over restarts, and what a job says and counts around each batch."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JNetworkError

from quotaplane.errors import (
    ConfigError,
    NoUsableReportsError,
    SlowPythonError,
    TransportError,
)
from quotaplane.streams.batch_attempts import MOST_FAILURES, BatchAttempts, open_attempts
from quotaplane.streams.checkpoint import Range
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.lifecycle import RunningQuery, run_until_stopped
from quotaplane.streams.skipped_batches import SingleBatch
from quotaplane.streams.status import JobStatus


class Folder:
    """A checkpoint folder: Spark's logs as two numbers, and the files of ours."""

    path = uri = "data/checkpoint"

    def __init__(self) -> None:
        self.begun, self.ended = -1, -1
        self.files: dict[str, str] = {}
        self.away = False

    def unfinished_batch(self) -> int | None:
        if self.away:
            raise Py4JNetworkError("no answer")
        return None if self.begun == self.ended else self.begun

    def ranges(self, seq: int) -> list[Range]:
        return [Range(f"reports/{part}@{seq} to {seq}", 1) for part in range(12)]

    def read(self, name: str) -> str | None:
        return self.files.get(name)

    def delete(self, name: str) -> None:
        self.files.pop(name, None)

    def write(self, name: str, text: str) -> None:
        if self.away:
            raise Py4JNetworkError("no answer")
        self.files[name] = text


class Job(RunningQuery):
    """Runs batches until one of them fails, as its ``script`` says, or all have run."""

    def __init__(self, folder: Folder, *script: Exception | None) -> None:
        attempts = open_attempts(folder, "quota", None)  # type: ignore[arg-type]
        super().__init__(attempts, lines=JobLines.silent(JobStatus((), (), time.monotonic)))
        self._folder, self._script = folder, list(script)

    def wait(self, timeout_s: float | None = None) -> bool:
        folder = self._folder
        for error in self._script:
            if folder.begun == folder.ended:
                folder.begun += 1
            self.attempts.begin(folder.begun)
            if error is not None:
                folder.away = isinstance(error, Py4JNetworkError)
                raise error
            folder.ended = folder.begun
        return True

    def stop(self, patience_s: float = 30.0) -> None:
        pass


def run(folder: Folder, *script: Exception | None) -> str:
    """Error that a start ends with, as text; empty: none."""
    folder.away = False
    try:
        run_until_stopped(lambda _: Job(folder, *script))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


GONE = Py4JNetworkError("Answer from Java side is empty")
BUG = RuntimeError("a batch that nobody can run")


def test_a_batch_that_takes_the_jvm_along_is_run_three_times() -> None:
    """No matter that nothing can be written any more when the JVM is gone."""
    folder = Folder()
    said = [run(folder, None, None, GONE), *(run(folder, GONE) for _ in range(4))]
    assert said[0].endswith(
        "(killed, or out of memory); after a restart the job continues where it stopped"
    )
    assert "batch 2, which reads reports/0@2 to 2, " in said[1]
    assert "and 2 more, failed 2 times; after 3 failures the job does not run it again" in said[1]
    for refusal in said[2:]:
        assert refusal.startswith(
            "FailedBatchError: checkpoint data/checkpoint: batch 2 failed 3 times and is not run "
            "again; it reads reports/0@2 to 2, "
        )
        assert "./spark-submit.sh quota --conf FILE --skip-batch 2" in refusal
        assert "delete data/checkpoint/attempts.json" in refusal
    assert (folder.begun, folder.ended) == (2, 1)


@pytest.mark.parametrize(("slow", "ends"), [(4, "Spark ended the query"), (5, None)])
def test_a_python_that_starts_slowly_starts_again_and_is_no_failure_of_the_batch(
    slow: int, ends: str | None
) -> None:
    folder = Folder()
    starts = iter([SlowPythonError("10 s in vain")] * slow + [None])

    def run_again() -> str:
        return run_until_stopped(lambda _: Job(folder, next(starts)))

    if ends is None:
        with pytest.raises(SlowPythonError):
            run_again()
    else:
        assert run_again() == ends
    assert run(folder, None) == ""


def test_a_batch_that_runs_alone_is_left_to_a_new_process_after_a_slow_start() -> None:
    """A second start could read the backlog that the first one had noted to skip."""
    job, starts = Job(Folder(), SlowPythonError("10 s in vain")), []
    job.alone = SingleBatch(0)
    with pytest.raises(SlowPythonError):
        run_until_stopped(lambda skip: starts.append(skip) or job)
    assert starts == [None]


def test_the_last_failure_is_told() -> None:
    folder = Folder()
    errors = [run(folder, each) for each in (BUG, GONE, BUG, None)]
    assert errors[0] == "RuntimeError: a batch that nobody can run"
    assert all("last failure: a batch that nobody can run. " in said for said in errors[2:])


def test_a_note_that_is_deleted_lets_it_be_tried_again() -> None:
    folder = Folder()
    while "FailedBatchError" not in run(folder, GONE):
        pass
    del folder.files["attempts.json"]
    assert run(folder, None) == ""


def test_a_note_that_cannot_be_read_is_told() -> None:
    folder = Folder()
    run(folder, GONE)
    folder.files["attempts.json"] = "{"
    assert run(folder, None) == (
        "ConfigError: checkpoint data/checkpoint: attempts.json can't be read; delete it"
    )


@given(st.lists(st.sampled_from([None, GONE, BUG, TransportError("Kafka is away")]), max_size=30))
def test_only_failures_of_the_batch_count_and_only_in_a_row(script: list[Exception | None]) -> None:
    """Any order: a batch is refused once it failed three times, and not before."""
    folder, failures = Folder(), 0
    for each in script:
        said = run(folder, each)
        if failures == MOST_FAILURES:
            assert said.startswith("FailedBatchError")
        elif each is None:
            assert said == ""
            failures = 0
        elif isinstance(each, TransportError):
            assert said == "TransportError: Kafka is away"
        else:
            failures += 1
            assert said.startswith("FailedBatchError") == (failures == MOST_FAILURES)


def test_only_the_batch_that_runs_next_can_be_skipped_before_it_was_published() -> None:
    """Brokers may have heard of it then: under the same number they would take nothing else."""
    folder: Any = Folder()
    run(folder, None, GONE)
    folder.away = False
    for wrong in (0, 2):
        with pytest.raises(ConfigError, match=r"--skip-batch .*the batch that runs next is 1"):
            open_attempts(folder, "quota", wrong)
    assert open_attempts(folder, "quota", None).to_skip is None
    with pytest.raises(ConfigError, match="was processed and only has to be committed"):
        open_attempts(folder, "quota", 1, last_written=1)
    assert open_attempts(folder, "quota", 1, last_written=0).to_skip == 1
    assert open_attempts(folder, "quota", 1, last_written=1).to_skip == 1  # by the skip itself


def test_where_no_batch_was_begun_there_is_none_to_skip() -> None:
    folder: Any = Folder()
    run(folder, None)
    with pytest.raises(ConfigError, match="no batch is unfinished"):
        open_attempts(folder, "quota", 0)


def test_a_skip_is_decided_once_and_outlives_everything() -> None:
    folder: Any = Folder()
    while "FailedBatchError" not in run(folder, GONE):
        pass
    folder.away = False
    assert open_attempts(folder, "quota", 0).to_skip == 0
    said = run(folder, GONE)
    assert said.endswith("after a restart the job skips batch 0")
    folder.away = False
    attempts: BatchAttempts = open_attempts(folder, "quota", None)
    assert attempts.to_skip == 0
    attempts.excuse()
    assert json.loads(folder.files["attempts.json"])["skip"]


class CalledJob(RunningQuery):
    """Its batches are called here in place of Spark."""

    def __init__(self, folder: Folder, alone: SingleBatch | None = None) -> None:
        self.said: list[str] = []
        lines = JobLines(JobStatus((), (), time.monotonic), write=self.said.append)
        super().__init__(open_attempts(folder, "quota", None), lines=lines)  # type: ignore[arg-type]
        self.alone = alone

    def run(self, seq: int, sink: Any = lambda outputs, seq: None) -> None:
        self._guarded(sink, "reads this")(None, seq)  # type: ignore[arg-type]


def test_a_job_is_ready_once() -> None:
    job = CalledJob(Folder())
    batch = job._guarded(lambda outputs, seq: None, "reads this")
    for seq in range(7, 10):
        batch(None, seq)  # type: ignore[arg-type]
    (line,) = job.said
    assert line.endswith(" quotaplane: ready: reads this; begins with round 7")
    assert "rounds=3 " in job.lines.status.total()


def test_a_batch_that_runs_alone_is_not_the_stream() -> None:
    job = CalledJob(Folder(), SingleBatch(7))
    job.run(7)
    assert job.said == []
    assert "rounds=1 " in job.lines.status.total()


def test_a_job_that_ends_for_unusable_reports_does_not_blame_the_batch() -> None:
    """Neither the batch nor the round is counted; however often it is started, none is refused."""
    folder = Folder()
    folder.begun = 0
    for _ in range(5):
        job = CalledJob(folder)

        def sink(outputs: Any, seq: int) -> None:
            raise NoUsableReportsError("0 of 9 reports")

        with pytest.raises(NoUsableReportsError):
            job.run(0, sink)
        job.attempts.excuse()
        assert "rounds=0 " in job.lines.status.total()
