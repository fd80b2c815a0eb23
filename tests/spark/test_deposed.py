"""Two quota jobs of one history: the older one ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from quotaplane.errors import ConfigError, DeposedError
from quotaplane.registry.attachments import attach
from quotaplane.streams.job import StreamJob, prepare
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.transport import open_attachments_link
from quotaplane.wire.attachments_update import decode_attachments
from tests.job import settings_in
from tests.spark.loops import QuotaLoop
from tests.waiting import wait_until

pytestmark = pytest.mark.nightly


def spec_of(folder: Path, checkpoint: str) -> QuotaSpec:
    return QuotaSpec(
        settings_in(
            folder,
            checkpoint=str(folder / checkpoint),
            trigger={"interval_s": 0.1},
            reports={"interval_s": 1.0},
            shards=1,
        )
    )


def epochs_of_attachments(spec: QuotaSpec) -> set[int]:
    """The epochs of the jobs that published the newest of all parts."""
    messages = open_attachments_link(spec.settings.transport).poll_limits().messages
    return {decode_attachments(message.value).epoch for message in messages}


def test_the_older_of_two_jobs_ends_within_two_rounds(spark: SparkSession, tmp_path: Path) -> None:
    older = spec_of(tmp_path, "older")
    loop = QuotaLoop(spark, older.settings, quota=100.0)

    def rounds_of(epoch: int) -> int:
        return [row["epoch"] for row in loop.rows("rounds")].count(epoch)

    first = StreamJob(spark, older, loop.transport)
    loop.report("b")
    wait_until(lambda: rounds_of(first.epoch) >= 1)
    newer = spec_of(tmp_path, "newer")
    newer.query_name = "newer"  # of one session, two queries can't have the same name
    wait_until(lambda: epochs_of_attachments(older) == {first.epoch})
    second = StreamJob(spark, newer, prepare(newer))
    assert second.epoch > first.epoch
    wait_until(lambda: epochs_of_attachments(older) == {second.epoch})
    attach(older.settings.history, "tenant", "acme", "g", "ann")
    before = rounds_of(first.epoch)

    def go_on() -> None:
        while not first.wait(timeout_s=0.1):
            loop.report("b")

    with pytest.raises(DeposedError, match=r"deposed: .*checkpoint .*/newer"):
        go_on()
    assert rounds_of(first.epoch) <= before + 2
    assert epochs_of_attachments(older) == {second.epoch}
    first.stop()
    wait_until(lambda: (loop.report("b"), rounds_of(second.epoch) >= 2)[1])
    second.stop()

    again = spec_of(tmp_path, "older")
    transport = prepare(again)
    with pytest.raises(ConfigError, match=f"its epoch {first.epoch} is over"):
        StreamJob(spark, again, transport)
    transport.close()
