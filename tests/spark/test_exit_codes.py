"""The exit codes of docs/reference/cli.md that only a running job ends with."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from quotaplane.streams.batch_attempts import MOST_FAILURES
from quotaplane.transport import open_broker_link
from tests.job import RunningJob, put_quotas, write_conf
from tests.waiting import wait_until


@pytest.mark.nightly
def test_5_nothing_is_usable_then_7_its_batch_failed_too_often(tmp_path: Path) -> None:
    conf = write_conf(
        tmp_path,
        {"kind": "delta", "path": str(tmp_path / "topics")},
        reports={"interval_s": 1.0, "stop_when_unusable_intervals": 3},
    )
    with RunningJob(conf) as job:
        put_quotas(job.settings, g=100.0)
        link = open_broker_link(job.settings.transport)

        def ended() -> bool:
            link.send_reports([("junk", b"\xff\xffjunk", time.time_ns() // 1_000_000)])
            return job.process.poll() is not None

        wait_until(ended, said=job.last_words, every_s=0.3)
        assert job.process.wait() == 5, job.last_words()
        assert job.printed()[-1].startswith("quotaplane: error: ")

    checkpoint = Path(job.settings.checkpoint)
    last = max(int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*"))
    for file in (checkpoint / "commits").glob(f"*{last}*"):
        file.unlink()  # as if the job had not come to its end
    note = {"batch": last, "failures": MOST_FAILURES, "reason": "no memory for this"}
    (checkpoint / ".attempts.json.crc").unlink(missing_ok=True)  # the checksum of the old note
    (checkpoint / "attempts.json").write_text(json.dumps(note))
    with RunningJob(conf) as job:
        assert job.process.wait(timeout=240) == 7, job.last_words()
        assert f"batch {last} failed 3 times" in job.printed()[-1]


@pytest.mark.nightly
def test_4_a_change_of_quotas_that_the_job_has_not_read_is_damaged(tmp_path: Path) -> None:
    conf = write_conf(tmp_path, {"kind": "delta", "path": str(tmp_path / "topics")})
    with RunningJob(conf) as job:
        put_quotas(job.settings, g=100.0)
        job.wait_until(lambda: (tmp_path / "history" / "rounds").exists() and job.rounds() >= 2)
        job.process.terminate()
        assert job.process.wait(timeout=120) == 0, job.last_words()
    changes = tmp_path / "history" / "resource_groups" / "_change_data"
    before = set(changes.iterdir())
    put_quotas(job.settings, g=200.0)
    (file,) = set(changes.iterdir()) - before
    good = bytearray(file.read_bytes())
    file.write_bytes(good[:300] + bytes([good[300] ^ 1]) + good[301:])
    with RunningJob(conf) as job:
        assert job.process.wait(timeout=240) == 4, job.last_words()
        line = job.printed()[-1]
        assert line.startswith("quotaplane: error: history table resource_groups at ")
        assert f"{file.name} has damaged bytes" in line
    file.write_bytes(good)
    with RunningJob(conf) as job:
        rounds = job.rounds()
        job.wait_until(lambda: job.rounds() > rounds)
