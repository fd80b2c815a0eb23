"""A job goes on with the topics, the history and the checkpoint that an earlier release left."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from quotaplane.streams.quota.job import QuotaSpec
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
    left = len(history_table(settings, "limits"))
    with running(spark, QuotaSpec(settings)) as job:
        send_reports(settings, sequence=1000)
        wait_beside(job, lambda: len(history_table(settings, "limits")) >= left + len(BROKERS))
    rounds = history_table(settings, "rounds").sort_by("seq").to_pylist()
    assert rounds[: len(before)] == before
    new = rounds[len(before) :]
    assert {row["epoch"] for row in new} == {before[-1]["epoch"]}
    assert min(row["seq"] for row in new) > before[-1]["seq"]  # idle rounds are not recorded

    # the quota is in the state alone: its change was read by the job that left this
    newest = {
        row["broker"]: row["publish_messages_per_s"]
        for row in history_table(settings, "limits").sort_by([("seq", "ascending")]).to_pylist()
        if row["seq"] > before[-1]["seq"] and row["resource_group"] == "g"
    }
    assert newest == dict.fromkeys(BROKERS, pytest.approx(QUOTA / len(BROKERS), rel=0.01))
