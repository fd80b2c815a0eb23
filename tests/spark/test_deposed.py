"""Two quota jobs of one history: the older one ends."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from quotaplane.errors import ConfigError, DeposedError
from quotaplane.settings import Settings, parse_settings
from quotaplane.streams.job import StreamJob, prepare
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.transport import open_broker_link
from quotaplane.wire.report_own import encode_report
from tests.job import history_table, put_quotas
from tests.waiting import wait_until

pytestmark = pytest.mark.nightly


def _settings(folder: Path, checkpoint: str) -> Settings:
    return parse_settings(
        {
            "transport": {"kind": "delta", "path": str(folder / "topics")},
            "history": {"path": str(folder / "history")},
            "checkpoint": str(folder / checkpoint),
            "trigger": {"interval_s": 0.1},
            "reports": {"interval_s": 1.0},
            "shards": 1,
        }
    )


def test_the_older_of_two_jobs_ends_within_two_rounds(spark: SparkSession, tmp_path: Path) -> None:
    older = QuotaSpec(_settings(tmp_path, "older"))
    put_quotas(older.settings, g=100.0)
    link = open_broker_link(older.settings.transport)

    def rounds_of(epoch: int) -> int:
        epochs = history_table(older.settings, "rounds")["epoch"]
        return int(pc.sum(pc.equal(epochs, epoch)).as_py() or 0)

    sequence = itertools.count(1)

    def report() -> None:
        value = encode_report(
            broker="b",
            started_at_ms=1,
            sequence=next(sequence),
            window_ms=1000,
            groups=["g"],
            usage=np.array([[10.0, 0, 0, 0]]),
        )
        link.send_reports([("b", value, time.time_ns() // 1_000_000)])

    first = StreamJob(spark, older, prepare(older))
    report()
    wait_until(lambda: rounds_of(first.epoch) >= 1)
    newer = QuotaSpec(_settings(tmp_path, "newer"))
    newer.query_name = "newer"  # of one session, two queries can't have the same name
    second = StreamJob(spark, newer, prepare(newer))
    assert second.epoch > first.epoch
    before = rounds_of(first.epoch)

    def go_on() -> None:
        while not first.wait(timeout_s=0.1):
            report()

    with pytest.raises(DeposedError, match=r"deposed: .*checkpoint .*/newer"):
        go_on()
    assert rounds_of(first.epoch) <= before + 2
    first.stop()
    wait_until(lambda: (report(), rounds_of(second.epoch) >= 2)[1])
    second.stop()

    again = QuotaSpec(_settings(tmp_path, "older"))
    transport = prepare(again)
    with pytest.raises(ConfigError, match=f"its epoch {first.epoch} is over"):
        StreamJob(spark, again, transport)
    transport.close()
