"""A job goes on with the topics, the history and the checkpoint that an earlier release left."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.transport import open_broker_link
from quotaplane.wire.limits import decode_limits
from tests.job import history_table
from tests.releases import BROKERS, QUOTA, RELEASES, send_reports, unpack
from tests.spark.loops import running
from tests.waiting import wait_beside


@pytest.mark.nightly
@pytest.mark.parametrize("version", RELEASES)
def test_a_job_goes_on_with_what_a_release_left(
    spark: SparkSession, tmp_path: Path, version: str
) -> None:
    settings = unpack(version, tmp_path)
    before = history_table(settings, "rounds").sort_by("seq").to_pylist()
    last, sent, limits = before[-1]["seq"], count(1000), dict[str, float]()
    link = open_broker_link(settings.transport, limits_from="earliest")

    def new_limits() -> dict[str, float]:
        send_reports(settings, sequence=next(sent))
        time.sleep(1.0)
        for message in map(decode_limits, (found.value for found in link.poll_limits().messages)):
            if message.seq > last and len(message.limits):
                limits[message.broker] = float(message.limits[0, 0])
        return limits

    # the quota is in the state alone: its change was read by the job that left this
    share = pytest.approx(QUOTA / len(BROKERS), rel=0.01)
    with running(spark, QuotaSpec(settings)) as job:
        wait_beside(job, lambda: new_limits() == dict.fromkeys(BROKERS, share))
    rounds = history_table(settings, "rounds").sort_by("seq").to_pylist()
    kept = [{name: row[name] for name in before[0]} for row in rounds[: len(before)]]
    assert kept == before  # but for columns that are new since
    new = rounds[len(before) :]
    assert {row["epoch"] for row in new} == {before[-1]["epoch"]}
    assert min(row["seq"] for row in new) > last  # idle rounds are not recorded
