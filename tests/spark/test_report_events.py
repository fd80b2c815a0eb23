"""From reports as a source gives them to events: sizes, and checks of who sent them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from quotaplane.arrow import unpack
from quotaplane.pulsar_admin.cluster_list import ClusterList
from quotaplane.settings import Settings, parse_settings
from quotaplane.streams.listed_brokers import before_batch
from quotaplane.streams.sources import report_events
from quotaplane.transport.base import COLUMNS
from quotaplane.wire.reports import encode_stock_report
from quotaplane.wire.shard_inputs import unpack_reports

MOST = 100_000


def settings_of(**reports: Any) -> Settings:
    return parse_settings(
        {
            "transport": {
                "kind": "pulsar",
                "service_url": "pulsar://127.0.0.1:1",
                "admin_url": "http://127.0.0.1:1",
                "limits_topic": "persistent://a/b/limits",
            },
            "history": {"path": "history"},
            "checkpoint": "checkpoint",
            "limits": {"lease_s": 1200},
            "shards": 1,
            "reports": {"interval_s": 60, **reports},  # a slow start makes no report stale
        }
    )


def report(broker: str) -> bytes:
    return encode_stock_report(broker, ["g"], np.ones((1, 4)))


def arrived(spark: SparkSession, *rows: tuple[bytes, bytes | None]) -> DataFrame:
    """A batch of values and their keys."""
    now_ms = int(time.time() * 1000)
    columns = [(value, now_ms, f"t/0@{n}", key, "t") for n, (value, key) in enumerate(rows)]
    return spark.createDataFrame(columns, COLUMNS)


def used_and_letters(events: list[Row]) -> tuple[list[str], list[dict[str, Any]]]:
    """Brokers whose reports can be used, and letters of the others."""
    payloads = [bytes(row.payload) for row in events if row.kind == "reports"]
    letters = [
        letter
        for row in events
        if row.kind == "rejected"
        for letter in unpack(bytes(row.payload))[0].to_pylist()
    ]
    return unpack_reports(payloads)[0]["broker"].to_pylist(), letters


def test_of_a_large_report_only_the_beginning_leaves_the_jvm(spark: SparkSession) -> None:
    values = [report("a"), b"x" * (MOST + 1), b"\x00" * 30_000_000, b"y" * MOST]
    rows = arrived(spark, *((value, None) for value in values))
    events = report_events(rows, settings_of(max_report_bytes=MOST)).collect()
    used, letters = used_and_letters(events)
    assert used == ["a"]
    found = {letter["position"]: letter for letter in letters}
    assert found["t/0@1"]["raw"] == b"x" * 4096
    assert found["t/0@2"]["raw"] == b"\x00" * 4096
    assert found["t/0@2"]["detail"].startswith("30000000 bytes; reports.max_report_bytes is 100000")
    assert found["t/0@3"]["reason"] != "too_large"


def test_the_key_of_a_row_must_name_the_broker(spark: SparkSession) -> None:
    keys = [b"a", None, b"\xff\xff", b"d", b"e" * 100_000]
    rows = arrived(spark, *zip(map(report, "abcde"), keys, strict=True))
    events = report_events(rows, settings_of(broker_from="key")).collect()
    used, letters = used_and_letters(events)
    assert used == ["a", "d"]
    assert [letter["reason"] for letter in letters] == ["other_broker"] * 3


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
    b1, b2 = "pulsar://b1:6650", "pulsar://b2:6650"
    names = {b1}
    hand_over = before_batch(Folder(), lambda: ClusterList(frozenset(names), {}))
    seen: list[tuple[list[str], list[str]]] = []

    def finish(batch: DataFrame, seq: int) -> None:
        hand_over(batch, seq)
        used, letters = used_and_letters([Row(**row) for row in batch.toArrow().to_pylist()])
        seen.append((used, [letter["reason"] for letter in letters]))

    def arrive(*brokers: str) -> None:
        frame = arrived(spark, *((report(name), None) for name in brokers)).coalesce(1)
        frame.write.mode("append").parquet(str(source))
        running.processAllAvailable()

    arriving = spark.readStream.schema(COLUMNS).parquet(str(source))
    events = report_events(arriving, settings_of(allowed_brokers="cluster"))
    query = events.writeStream.foreachBatch(finish)
    running = query.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        arrive(b1, b2)
        names = {b2}
        arrive(b1)
        arrive(b1, b2)
    finally:
        running.stop()
    refused = ["broker_not_allowed"]
    assert seen[0] == ([b1], refused)
    assert seen[1] == ([b1], []), "a new list holds from the next batch on"
    assert seen[2] == ([b2], refused)


def test_without_a_list_nothing_is_let_in(spark: SparkSession) -> None:
    events = report_events(
        arrived(spark, (report("a"), None)), settings_of(allowed_brokers="cluster")
    )
    with pytest.raises(Exception, match="the micro-batch has no list of the cluster's brokers"):
        events.collect()
