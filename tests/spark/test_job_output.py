"""Output of the real job while it runs: its own lines, and nothing of Spark's."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from quotaplane.transport import open_broker_link
from quotaplane.transport.base import BrokerLink
from quotaplane.wire.reports import encode_report
from tests.job import RunningJob, history_table, put_quotas, write_conf
from tests.spark.test_stop import kinds

pytestmark = pytest.mark.nightly

JUNK = 150
"""More than the hundred that ended the job once."""


def send(link: BrokerLink, *junk: bytes, late_s: float = 0.0) -> None:
    now_ms = int((time.time() - late_s) * 1000)
    report = encode_report(
        broker="b1",
        started_at_ms=1,
        sequence=now_ms,
        window_ms=1000,
        groups=["g"],
        usage=np.full((1, 4), 30.0),
    )
    link.send_reports([("b1", report, now_ms), *(("junk", value, now_ms) for value in junk)])


def test_a_job_says_how_it_is_and_goes_on_through_junk_and_clocks(tmp_path: Path) -> None:
    intervals = 120  # however slow a batch is here, nobody falls silent
    conf = write_conf(
        tmp_path,
        {"kind": "delta", "path": str(tmp_path / "topics")},
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

        def late() -> list[str]:
            send(link, late_s=1000.0)
            time.sleep(0.5)
            return said(" s behind this host's clock")

        job.wait_until(late)

        def used_again() -> list[str]:
            send(link)
            time.sleep(0.5)
            return said(": recovered: time of reports: over after ")

        job.wait_until(used_again)
        os.kill(job.process.pid, signal.SIGTERM)
        assert job.process.wait(timeout=120) == 0, job.last_words()

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
    assert set(kinds(job)) == {
        *("warning", "starting", "ready", "recovered", "stopping", "ended"),
    }
    assert "WARN" in job.spark_log.read_text()
    letters = history_table(job.settings, "rejected_reports").to_pylist()
    junk = [letter["reports"] for letter in letters if letter["reason"] == "not_protobuf"]
    assert (sum(junk), len(junk)) == (JUNK, 101)
