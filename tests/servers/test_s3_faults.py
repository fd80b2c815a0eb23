"""A job on an object store that misbehaves while the job runs."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quotaplane.settings import load_settings
from tests.job import RunningJob, environment, put_quotas
from tests.servers.http_proxy import Fault, HttpProxy, Seen
from tests.servers.reporting_brokers import SECTIONS, ReportingBrokers
from tests.servers.s3_proxy import S3Proxy
from tests.servers.stores import conf_on, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

MOST_GAP_S = 30.0
FAULTS_S = 40.0
ENDS_WITHIN_S = 120.0
CHANGES = 8

WRITER = """
import sys
from quotaplane.cli.main import main
name, conf, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
codes = [main(["groups", "put", f"{name}-{n}", "--conf", conf]) for n in range(number)]
codes.append(main(["groups", "put", name, "--publish-messages-per-s", "180", "--conf", conf]))
sys.exit(sum(code != 0 for code in codes))
"""


def test_a_job_outlasts_refusals_lost_answers_and_other_writers(
    store: S3Proxy, tmp_path: Path, connector: str
) -> None:
    chance = random.Random(7)

    def sometimes(seen: Seen) -> Fault | None:
        """One request in five fails, and one change in ten is made, but not answered."""
        if chance.random() < 0.2:
            return Fault(chance.choice([500, 503]))
        is_lost = seen.method in {"PUT", "DELETE"} and chance.random() < 0.1
        return Fault(500, done=True) if is_lost else None

    with HttpProxy(store.port) as proxy:
        settings = load_settings(conf_on(store, tmp_path, **SECTIONS))
        put_quotas(settings, g=90.0)
        conf = conf_on(store, tmp_path, proxy.port, **SECTIONS)
        with (
            ReportingBrokers(settings, a=80.0, b=80.0, c=80.0) as brokers,
            RunningJob(conf, "--jars", connector) as job,
        ):

            def faults() -> None:
                proxy.fault = sometimes
                time.sleep(FAULTS_S)
                proxy.fault = lambda seen: None

            def writers() -> None:
                both = [
                    subprocess.Popen(
                        [sys.executable, "-c", WRITER, name, str(conf), str(CHANGES)],
                        env=environment(),
                        stdout=subprocess.DEVNULL,
                    )
                    for name in ("g", "h")
                ]
                assert [writer.wait(200) for writer in both] == [0, 0]
                job.wait_until(lambda: brokers.share(60.0))

            job.wait_until(lambda: brokers.share(30.0))
            for name, harm in (("refusals and lost answers", faults), ("two writers", writers)):
                outage = brokers.through(harm, job.wait_until)
                print(f"{name}: longest gap {outage.gap_s:.1f} s; {outage.tally}")
                assert outage.tally.exact, outage.tally
                assert outage.gap_s < MOST_GAP_S
            job.stop()
        kinds = {(seen.method, seen.is_spark) for seen in proxy.failed}
        assert {("PUT", True), ("PUT", False), ("GET", True), ("GET", False)} <= kinds
    names = [row["resource_group"] for row in rows_of(settings.history, *GROUPS)]
    assert len(names) == len({*names}) == 2 * (CHANGES + 1)


GROUPS = ("resource_groups", "resource_group")


def test_a_job_whose_keys_are_refused_ends_with_a_line_that_says_so(
    store: S3Proxy, tmp_path: Path, connector: str
) -> None:
    with HttpProxy(store.port) as proxy:
        settings = load_settings(conf_on(store, tmp_path, **SECTIONS))
        put_quotas(settings, g=90.0)
        conf = conf_on(store, tmp_path, proxy.port, **SECTIONS)
        with ReportingBrokers(settings, a=80.0, b=80.0, c=80.0) as brokers:
            with RunningJob(conf, "--jars", connector) as job:
                job.wait_until(lambda: brokers.share(30.0))
                proxy.fault = lambda seen: Fault(403)
                began_s = time.monotonic()
                job.ended(4, ENDS_WITHIN_S)
                print(f"ended after {time.monotonic() - began_s:.1f} s: {job.printed()[-1]}")
                assert "history.storage_options" in job.printed()[-1]
                assert "Traceback" not in "\n".join(job.printed())
            proxy.fault = lambda seen: None
            with RunningJob(conf, "--jars", connector) as job:
                started_s = time.monotonic()
                job.wait_until(lambda: brokers.heard_since(started_s))
                tally = brokers.counted()
                assert tally.exact, tally
