"""The real job ends the leases of brokers that left the cluster's list, and records who left."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from quotaplane.pulsar_admin.cluster_list import ClusterList
from quotaplane.replay.verify import Verified, verify
from quotaplane.streams.job import StreamJob
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.wire.shard_inputs import DEPARTURES
from tests.job import settings_in
from tests.spark.loops import QuotaLoop, running
from tests.waiting import wait_until

INTERVAL_S = 8.0
"""A broker is stale after 16 s and expires after 24 s."""
NAMES = ("b1", "b2", "b3")


class Cluster(QuotaLoop):
    """A broker list that the test changes, the job, and its history."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        settings = settings_in(
            folder,
            trigger={"interval_s": 0.2},
            reports={"interval_s": INTERVAL_S},
            limits={"lease_s": 200.0},
            shards=2,
        )
        super().__init__(spark, settings, quota=90.0)
        self._left_at_ms: dict[str, int] = {}

    def leaves(self, broker: str) -> None:
        self._left_at_ms = {**self._left_at_ms, broker: int(time.time() * 1000)}

    def job(self) -> AbstractContextManager[StreamJob]:
        spec = QuotaSpec(self.settings)
        spec._listed = lambda: ClusterList(frozenset(NAMES), self._left_at_ms)
        return running(self.spark, spec, self.transport)

    def ended(self) -> list[tuple[str, str]]:
        rows = self.rows("limits")
        return [(row["broker"], row["ended_because"]) for row in rows if row["ended"]]

    def limited(self) -> set[str]:
        return {row["broker"] for row in self.rows("limits")}


@pytest.mark.nightly
def test_a_broker_that_leaves_loses_its_leases_with_the_next_report_or_timer(
    spark: SparkSession, tmp_path: Path
) -> None:
    began = datetime.now(timezone.utc) - timedelta(seconds=1)
    cluster = Cluster(spark, tmp_path)
    with cluster.job() as job:

        def until(condition: Callable[[], bool], *reporting: str) -> None:
            """Wait until it holds; these brokers report meanwhile.

            One report is not enough: on a loaded machine it is too old when the first batch begins.
            """

            def reported() -> bool:
                if holds := condition():
                    return holds
                if reporting:
                    cluster.report(*reporting)
                assert not job.wait(timeout_s=1.0)
                return False

            wait_until(reported)

        until(lambda: cluster.limited() == {*NAMES}, *NAMES)
        cluster.leaves("b3")
        # The list holds from the next batch on, and batches begin without input, too.
        time.sleep(2)
        until(lambda: len(cluster.ended()) > 0, "b1", "b2")
        assert cluster.ended() == [("b3", "departed")]
        # No report arrives any more: the timer by which brokers get stale begins a round.
        cluster.leaves("b2")
        until(lambda: len(cluster.ended()) > 1)
        assert {*cluster.ended()} >= {("b3", "departed"), ("b2", "departed")}
    assert DEPARTURES in {row["kind"] for row in cluster.rows("recording")}
    verified = Verified()
    until_now = datetime.now(timezone.utc)
    found = [one.problem for one in verify(cluster.settings.history, began, until_now, verified)]
    assert found == []
    assert verified.rounds > 2
