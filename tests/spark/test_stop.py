"""How the real job ends when it is stopped, or its JVM dies: an exit code, and few lines."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.job import RunningJob, put_quotas, write_conf

pytestmark = pytest.mark.nightly


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return write_conf(tmp_path, {"kind": "delta", "path": str(tmp_path / "topics")})


@pytest.fixture
def job(conf: Path):
    """A job that has done a round."""
    with RunningJob(conf) as running:
        put_quotas(running.settings, g=100.0)
        running.wait_until(lambda: running.rounds() > 0)
        yield running


def kinds(job: RunningJob) -> list[str]:
    """Kinds of the job's lines; an assertion if it printed anything else."""
    found = []
    for line in job.printed():
        ours = re.fullmatch(r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ )?quotaplane: (\w+): .*", line)
        assert ours is not None, job.last_words()
        found.append(ours[1])
    return [kind for kind in found if kind not in ("history", "status", "waiting", "limits")]


def test_sigterm_to_all_its_processes_is_a_stop_on_request(job: RunningJob) -> None:
    os.killpg(job.process.pid, signal.SIGTERM)
    assert job.process.wait(timeout=120) == 0
    # Spark may be gone before the job has seen the signal.
    said = [kind for kind in kinds(job) if kind != "stopping"]
    assert said == ["starting", "ready", "ended"]
    assert ": ended: stopped by SIGTERM; up_s=" in job.printed()[-1]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the JVM in /proc")
def test_a_jvm_that_is_killed_is_told_in_one_line(job: RunningJob) -> None:
    os.kill(jvm_of(job.process.pid), signal.SIGKILL)
    assert job.process.wait(timeout=120) == 1
    assert kinds(job) == ["starting", "ready", "ended", "error"]
    assert f"failed with exit code 1, Spark's log {job.spark_log}; up_s=" in job.printed()[-2]
    assert job.printed()[-1].startswith("quotaplane: error: Spark's JVM is gone")


def test_ctrl_c_while_spark_starts_ends_the_job_at_once(conf: Path) -> None:
    with RunningJob(conf) as job:
        job.wait_until(lambda: any(": starting: " in line for line in job.printed()))
        os.killpg(job.process.pid, signal.SIGINT)
        assert job.process.wait(timeout=120) == 130, job.printed()
    assert kinds(job) == ["starting", "ended"]
    assert ": ended: Ctrl-C before the first round; " in job.printed()[-1]


def jvm_of(pid: int) -> int:
    """The child of the job that is called java."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended just now
            if re.match(rf"\d+ \(java\) \S {pid} ", stat.read_text()):
                return int(stat.parent.name)
    raise AssertionError(f"process {pid} has no child called java")
