"""Checks of senders in Spark's plan: keys of rows, and the cluster's list of the batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from quotaplane.arrow import unpack
from quotaplane.pulsar_admin.cluster_list import ClusterList
from quotaplane.settings import parse_settings
from quotaplane.streams.listed_brokers import before_batch
from quotaplane.streams.sources import report_events
from quotaplane.transport.base import COLUMNS
from quotaplane.wire.reports import encode_stock_report
from quotaplane.wire.shard_inputs import unpack_reports

CLUSTER = {
    "kind": "pulsar",
    "service_url": "pulsar://127.0.0.1:1",
    "admin_url": "http://127.0.0.1:1",
    "limits_topic": "persistent://a/b/limits",
}


def settings_of(**reports: Any) -> Any:
    return parse_settings(
        {
            "transport": CLUSTER,
            "history": {"path": "history"},
            "checkpoint": "checkpoint",
            "limits": {"lease_s": 1200},
            "shards": 1,
            "reports": {"interval_s": 60, **reports},  # a slow start makes no report stale
        }
    )


def report(broker: str) -> bytes:
    return encode_stock_report(broker, ["g"], np.ones((1, 4)))


def used_and_refused(events: Sequence[Row]) -> tuple[list[str], list[str]]:
    payloads = [bytes(row.payload) for row in events if row.kind == "reports"]
    refused = [
        reason
        for row in events
        if row.kind == "rejected"
        for reason in unpack(bytes(row.payload))[0]["reason"].to_pylist()
    ]
    return unpack_reports(payloads)[0]["broker"].to_pylist(), refused


def test_the_key_of_a_row_must_name_the_broker(spark: SparkSession) -> None:
    now_ms = int(time.time() * 1000)
    keys = [b"a", None, b"\xff\xff", b"d", b"e" * 100_000]
    rows = [
        (report(name), now_ms, f"t/0@{number}", key, "t")
        for number, (name, key) in enumerate(zip("abcde", keys, strict=True))
    ]
    events = report_events(spark.createDataFrame(rows, COLUMNS), settings_of(broker_from="key"))
    assert used_and_refused(events.collect()) == (["a", "d"], ["other_broker"] * 3)


class Folder:
    path = "checkpoint"
    text: str | None = None

    def read(self, name: str) -> str | None:
        return self.text

    def write(self, name: str, text: str) -> None:
        self.text = text


def test_a_batch_has_the_list_that_it_was_handed(spark: SparkSession, tmp_path: Path) -> None:
    """The list goes from the driver to the tasks as a local property of the batch's job."""
    source = tmp_path / "source"
    source.mkdir()
    names = {"pulsar://b1:6650"}
    hand_over = before_batch(Folder(), lambda: ClusterList(frozenset(names), {}))
    seen: list[tuple[list[str], list[str]]] = []

    def finish(batch: DataFrame, seq: int) -> None:
        hand_over(batch, seq)
        table = batch.toArrow()
        rows = [Row(**row) for row in table.to_pylist()]
        seen.append(used_and_refused(rows))

    def arrive(*brokers: str) -> None:
        now_ms = int(time.time() * 1000)
        rows = [(report(name), now_ms, f"{name}@{len(seen)}", None, None) for name in brokers]
        frame = spark.createDataFrame(rows, COLUMNS).coalesce(1)
        frame.write.mode("append").parquet(str(source))

    arriving = spark.readStream.schema(COLUMNS).parquet(str(source))
    events = report_events(arriving, settings_of(allowed_brokers="cluster"))
    query = events.writeStream.foreachBatch(finish)
    running = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        arrive("pulsar://b1:6650", "pulsar://b2:6650")
        running.processAllAvailable()
        names = {"pulsar://b2:6650"}
        arrive("pulsar://b1:6650")
        running.processAllAvailable()
        arrive("pulsar://b1:6650", "pulsar://b2:6650")
        running.processAllAvailable()
    finally:
        running.stop()
    refused = ["broker_not_allowed"]
    assert seen[0] == (["pulsar://b1:6650"], refused)
    assert seen[1] == (["pulsar://b1:6650"], []), "a new list holds from the next batch on"
    assert seen[2] == (["pulsar://b2:6650"], refused)


def test_without_a_list_nothing_is_let_in(spark: SparkSession) -> None:
    rows = [(report("a"), int(time.time() * 1000), "t/0@0", None, None)]
    events = report_events(
        spark.createDataFrame(rows, COLUMNS), settings_of(allowed_brokers="cluster")
    )
    with pytest.raises(Exception, match="the micro-batch has no list of the cluster's brokers"):
        events.collect()
