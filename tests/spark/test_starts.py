"""A job that starts again, on Spark: its first new round publishes all limits, also in a replay."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from quotaplane.replay.verify import Verified, verify
from quotaplane.streams.job import StreamJob, prepare
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.sink import BatchSink
from quotaplane.transport import open_broker_link
from quotaplane.wire.report_own import encode_report
from tests.job import history_table, put_quotas, settings_in
from tests.spark.loops import cut_off, running
from tests.waiting import wait_beside

pytestmark = pytest.mark.nightly

GROUPS = [f"g{number}" for number in range(12)]


def test_the_first_new_round_after_a_restart_publishes_all_limits(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = settings_in(
        tmp_path,
        {"kind": "delta", "path": str(tmp_path / "topics"), "max_files_per_trigger": 1},
        trigger={"interval_s": 0},
        shards=2,
        history={"path": str(tmp_path / "history"), "recording_days": 1},
    )
    put_quotas(settings, **dict.fromkeys(GROUPS, 100.0))
    prepare(QuotaSpec(settings)).close()
    link = open_broker_link(settings.transport)

    def report(number: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        numbers = {"started_at_ms": 1, "sequence": number, "window_ms": 1000}
        usage = np.full((len(GROUPS), 1), 5.0)
        made = [
            (name, encode_report(broker=name, groups=GROUPS, usage=usage, **numbers), now_ms)
            for name in "ab"
        ]
        link.send_reports(made)

    def sent() -> list[int]:
        """The limits that each round with reports published."""
        rows = history_table(settings, "rounds").sort_by("seq").to_pylist()
        return [row["limits_sent"] for row in rows if row["reports"]]

    def rounds(job: StreamJob, *numbers: int) -> None:
        for number in numbers:
            report(number)
            wait_beside(job, lambda number=number: len(sent()) == number)

    with running(spark, QuotaSpec(settings)) as job:
        rounds(job, 1, 2, 3)
    with pytest.MonkeyPatch.context() as patch:
        # not when the history is written: an idle batch may run again first
        cut_off(patch, BatchSink, "_write")
        report(4)
        with pytest.raises(StreamingQueryException), running(spark, QuotaSpec(settings)) as job:
            job.wait()
    assert sent()[3] == 24, "the first round of a start, which was not committed"
    with running(spark, QuotaSpec(settings)) as job:
        rounds(job, 5, 6)
    first, *_, in_turn, cut, again, after = sent()
    assert (first, cut, again) == (24, 24, 24)
    assert max(in_turn, after) < 24

    verified = Verified()
    now = datetime.now(timezone.utc)
    hour = timedelta(hours=1)
    assert list(verify(settings.history, now - hour, now + hour, verified)) == []
    assert verified.rounds >= 6
