"""How the real job ends when it is stopped, or its JVM dies: an exit code, and one line at most."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.job import RunningJob, put_quotas, write_conf


@pytest.fixture
def job(tmp_path: Path):
    """A job that has done a round."""
    conf = write_conf(tmp_path, {"kind": "delta", "path": str(tmp_path / "topics")})
    with RunningJob(conf) as running:
        put_quotas(running.settings, g=100.0)
        running.wait_until(lambda: running.rounds() > 0)
        yield running


def test_sigterm_to_all_its_processes_is_a_stop_on_request(job: RunningJob) -> None:
    os.killpg(job.process.pid, signal.SIGTERM)
    assert job.process.wait(timeout=120) == 0
    assert "quotaplane/streams/" not in job.log.read_text(errors="replace")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the JVM in /proc")
def test_a_jvm_that_is_killed_is_told_in_one_line(job: RunningJob) -> None:
    os.kill(jvm_of(job.process.pid), signal.SIGKILL)
    assert job.process.wait(timeout=120) == 1
    log = job.log.read_text(errors="replace")
    assert "quotaplane/streams/" not in log
    assert "quotaplane: error: Spark's JVM is gone" in log


def jvm_of(pid: int) -> int:
    """The child of the job that is called java."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended just now
            if re.match(rf"\d+ \(java\) \S {pid} ", stat.read_text()):
                return int(stat.parent.name)
    raise AssertionError(f"process {pid} has no child called java")
