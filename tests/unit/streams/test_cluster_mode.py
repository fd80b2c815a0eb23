"""A driver that a cluster started: how it finds its secrets, and what it says when it is killed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quotaplane.streams.batch_attempts import open_attempts
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.lifecycle import RunningQuery, run_until_stopped
from quotaplane.streams.script import SECRETS, run_job
from quotaplane.streams.status import JobStatus
from tests.unit.streams.test_attempts import Folder


@pytest.mark.parametrize("gateway", ["25333", None])
def test_a_driver_in_a_cluster_takes_the_variables_that_were_sent_with_it(
    gateway: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PASSWORD", "mine")
    monkeypatch.setattr("sys.argv", ["run_quota.py"])
    if gateway is not None:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", gateway)
    (tmp_path / SECRETS).write_text(json.dumps({"PASSWORD": "sent"}))
    found = []
    with pytest.raises(SystemExit):
        run_job(lambda _: found.append(os.environ["PASSWORD"]))
    assert found == ["mine" if gateway is None else "sent"]


class Killed(RunningQuery):
    """Gets SIGTERM in its first wait."""

    def __init__(self, lines: list[str]) -> None:
        attempts = open_attempts(Folder(), "quota", None)  # type: ignore[arg-type]
        status = JobStatus((), (), time.monotonic)
        super().__init__(attempts, lines=JobLines(status, write=lines.append))
        self._lines = lines
        self.said_in_the_wait: list[str] = []

    def wait(self, timeout_s: float | None = None) -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        self.said_in_the_wait = [*self._lines]
        return False

    def note_progress(self) -> None:
        pass

    def stop(self, patience_s: float = 30.0) -> None:
        pass


@pytest.fixture
def handlers() -> Iterator[None]:
    """This process's own handlers of signals are back afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_a_job_says_at_once_that_it_was_told_to_end() -> None:
    lines: list[str] = []
    job = Killed(lines)
    assert run_until_stopped(lambda _: job) == "stopped by SIGTERM"
    (line,) = job.said_in_the_wait
    assert line.endswith(
        "quotaplane: stopping: SIGTERM; waiting for the current round to end "
        "(if the job is killed before, the next start runs it again)"
    )
    assert lines == [line]
