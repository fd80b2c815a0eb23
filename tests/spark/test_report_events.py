"""From reports as a source gives them to events: what leaves the JVM of a large one."""

from __future__ import annotations

import time

import numpy as np
from pyspark.sql import SparkSession

from quotaplane.arrow import unpack
from quotaplane.settings import parse_settings
from quotaplane.streams.sources import report_events
from quotaplane.wire.reports import encode_stock_report
from quotaplane.wire.shard_inputs import unpack_reports

MOST = 100_000


def test_of_a_large_report_only_the_beginning_leaves_the_jvm(spark: SparkSession) -> None:
    settings = parse_settings(
        {
            "transport": {"kind": "delta", "path": "topics"},
            "history": {"path": "history"},
            "checkpoint": "checkpoint",
            "limits": {"lease_s": 1200},
            "shards": 1,
            # A slow start must not make the report stale.
            "reports": {"max_report_bytes": MOST, "interval_s": 60},
        }
    )
    now_ms = int(time.time() * 1000)
    good = encode_stock_report("a", ["g"], np.ones((1, 4)))
    values = [good, b"x" * (MOST + 1), b"\x00" * 30_000_000, b"y" * MOST]
    rows = [(value, now_ms, f"t/0@{number}") for number, value in enumerate(values)]
    schema = "value binary, published_at_ms long, position string"
    events = report_events(spark.createDataFrame(rows, schema), settings).collect()
    reports = [bytes(row.payload) for row in events if row.kind == "reports"]
    headers, _ = unpack_reports(reports)
    assert headers["broker"].to_pylist() == ["a"]
    letters = [
        letter
        for row in events
        if row.kind == "rejected"
        for table in unpack(bytes(row.payload))
        for letter in table.to_pylist()
    ]
    found = {letter["position"]: letter for letter in letters}
    assert found["t/0@1"]["raw"] == b"x" * 4096
    assert found["t/0@2"]["raw"] == b"\x00" * 4096
    assert found["t/0@2"]["detail"].startswith("30000000 bytes; reports.max_report_bytes is 100000")
    assert found["t/0@3"]["reason"] != "too_large"
