"""The real job from outside: its lines, its files, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from quotaplane.files import VARIABLE
from quotaplane.streams.batch_attempts import MOST_FAILURES
from quotaplane.transport import open_broker_link
from quotaplane.transport.base import BrokerLink
from tests.job import RunningJob, history_table, put_quotas, report_of, write_conf
from tests.unit.repo.test_file_modes import modes
from tests.waiting import wait_until

pytestmark = pytest.mark.nightly

JUNK = 150
"""More than the hundred that ended the job once."""


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return write_conf(tmp_path)


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
    job.ended()
    # Spark may be gone before the job has seen the signal.
    said = [kind for kind in kinds(job) if kind != "stopping"]
    assert said == ["starting", "ready", "ended"]
    assert ": ended: stopped by SIGTERM; up_s=" in job.printed()[-1]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the JVM in /proc")
def test_a_jvm_that_is_killed_is_told_in_one_line(job: RunningJob) -> None:
    os.kill(jvm_of(job.process.pid), signal.SIGKILL)
    job.ended(1)
    assert kinds(job) == ["starting", "ready", "ended", "error"]
    assert f"failed with exit code 1, Spark's log {job.spark_log}; up_s=" in job.printed()[-2]
    assert job.printed()[-1].startswith("quotaplane: error: Spark's JVM is gone")


def test_ctrl_c_while_spark_starts_ends_the_job_at_once(conf: Path) -> None:
    with RunningJob(conf) as job:
        job.wait_until(lambda: any(": starting: " in line for line in job.printed()))
        os.killpg(job.process.pid, signal.SIGINT)
        job.ended(130)
    assert kinds(job) == ["starting", "ended"]
    assert ": ended: Ctrl-C before the first round; " in job.printed()[-1]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")
def test_all_python_workers_are_forked_by_one_daemon(job: RunningJob) -> None:
    """Each daemon takes half a second to import what workers need."""
    started = [(folder / "cmdline").read_bytes() for folder in children_of(jvm_of(job.process.pid))]
    assert len([command for command in started if b"quotaplane.streams.daemon" in command]) == 1


def jvm_of(pid: int) -> int:
    """The child of the job that is called java."""
    (jvm,) = (folder.name for folder in children_of(pid, "java"))
    return int(jvm)


def children_of(pid: int, name: str = ".*") -> list[Path]:
    """The folders in /proc of a process's children whose name matches."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended just now
            if re.match(rf"\d+ \({name}\) \S {pid} ", stat.read_text()):
                found.append(stat.parent)
    return found


def test_5_nothing_is_usable_then_7_its_batch_failed_too_often(tmp_path: Path) -> None:
    conf = write_conf(tmp_path, reports={"interval_s": 1.0, "stop_when_unusable_intervals": 3})
    with RunningJob(conf) as job:
        put_quotas(job.settings, g=100.0)
        link = open_broker_link(job.settings.transport)

        def ended() -> bool:
            link.send_reports([("junk", b"\xff\xffjunk", time.time_ns() // 1_000_000)])
            return job.process.poll() is not None

        wait_until(ended, said=job.last_words, every_s=0.3)
        job.ended(5)
        assert job.printed()[-1].startswith("quotaplane: error: ")

    checkpoint = Path(job.settings.checkpoint)
    last = max(int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*"))
    for file in (checkpoint / "commits").glob(f"*{last}*"):
        file.unlink()  # as if the job had not come to its end
    note = {"batch": last, "failures": MOST_FAILURES, "reason": "no memory for this"}
    (checkpoint / ".attempts.json.crc").unlink(missing_ok=True)  # the checksum of the old note
    (checkpoint / "attempts.json").write_text(json.dumps(note))
    with RunningJob(conf) as job:
        job.ended(7)
        assert f"batch {last} failed 3 times" in job.printed()[-1]


def test_4_a_change_of_quotas_that_the_job_has_not_read_is_damaged(
    tmp_path: Path, conf: Path
) -> None:
    with RunningJob(conf) as job:
        put_quotas(job.settings, g=100.0)
        job.wait_until(lambda: (tmp_path / "history" / "rounds").exists() and job.rounds() >= 2)
        job.stop()
    changes = tmp_path / "history" / "resource_groups" / "_change_data"
    before = set(changes.iterdir())
    put_quotas(job.settings, g=200.0)
    (file,) = set(changes.iterdir()) - before
    good = bytearray(file.read_bytes())
    file.write_bytes(good[:300] + bytes([good[300] ^ 1]) + good[301:])
    with RunningJob(conf) as job:
        job.ended(4)
        line = job.printed()[-1]
        assert line.startswith("quotaplane: error: history table resource_groups at ")
        assert f"{file.name} has damaged bytes" in line
    file.write_bytes(good)
    with RunningJob(conf) as job:
        rounds = job.rounds()
        job.wait_until(lambda: job.rounds() > rounds)


@pytest.mark.parametrize(("umask", "rights"), [("077", {0}), ("027", {0o040, 0o050})])
def test_the_files_of_a_checkpoint_follow_the_umask(
    conf: Path, umask: str, rights: set[int]
) -> None:
    """A checkpoint has what the brokers reported: the umask says who may read it."""
    with RunningJob(conf, variables={VARIABLE: umask}) as job:
        put_quotas(job.settings, g=100.0)
        checkpoint = Path(job.settings.checkpoint)
        job.wait_until(lambda: len(list(checkpoint.glob("commits/[0-9]*"))) > 1)
    assert modes(checkpoint) <= rights


def send(link: BrokerLink, *junk: bytes, late_s: float = 0.0) -> None:
    now_ms = int((time.time() - late_s) * 1000)
    report = report_of("b1", 30.0, sequence=now_ms)
    link.send_reports([("b1", report, now_ms), *(("junk", value, now_ms) for value in junk)])


def test_a_job_says_how_it_is_and_goes_on_through_junk_and_clocks(tmp_path: Path) -> None:
    intervals = 120  # however slow a batch is here, nobody falls silent
    conf = write_conf(
        tmp_path,
        reports={"interval_s": 1.0},
        brokers={"stale_after_intervals": intervals, "expire_after_intervals": intervals},
    )
    with RunningJob(conf) as job:
        put_quotas(job.settings, g=100.0)

        def said(text: str) -> list[str]:
            return [line for line in job.printed() if text in line]

        job.wait_until(lambda: said(": ready: "))
        link = open_broker_link(job.settings.transport)
        send(link, *[b"\xff\xffjunk \x1b[2J"] * JUNK)
        job.wait_until(lambda: said(f"(not_protobuf={JUNK})"))
        # The warning comes when its window of ten seconds ends, with no other report in it.
        job.wait_until(lambda: said(f" of {JUNK + 1} reports in "))
        job.wait_until(lambda: said(": warning: no reports: none for "))

        def said_meanwhile(text: str, late_s: float = 0.0) -> list[str]:
            send(link, late_s=late_s)
            time.sleep(0.5)
            return said(text)

        job.wait_until(lambda: said_meanwhile(" s behind this host's clock", late_s=1000.0))
        job.wait_until(lambda: said_meanwhile(": recovered: time of reports: over after "))
        job.stop()

    ready = said(": ready: ")[0]
    for text in (
        f"reads reports and writes limits_topic ({tmp_path}/topics)",
        f"follows the quotas in {tmp_path}/history/resource_groups",
        f"history {tmp_path}/history;",
        f"checkpoint {tmp_path}/checkpoint;",
        "Spark UI http://",
        "begins with round 0",
    ):
        assert text in ready
    assert said(": waiting: for the first usage reports; ")
    assert len(said(": limits: the first ones are published")) == 1
    refused = said(f" of {JUNK + 1} reports in ")[0]
    assert f"could not be used: not_protobuf={JUNK}, for example at " in refused
    assert 999 <= float(said("behind this host's clock")[0].split(" are ")[1].split()[0]) <= 1100
    assert "brokers_live=1 brokers_stale=0 lag_s=" in said(": status: ")[-1]
    assert set(kinds(job)) == {"warning", "starting", "ready", "recovered", "stopping", "ended"}
    assert "WARN" in job.spark_log.read_text()
    letters = history_table(job.settings, "rejected_reports").to_pylist()
    junk = [letter["reports"] for letter in letters if letter["reason"] == "not_protobuf"]
    assert (sum(junk), len(junk)) == (JUNK, 101)
