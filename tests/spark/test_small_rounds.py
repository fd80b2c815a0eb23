"""What a round takes beside its own work, counted: on a small cluster that is nearly all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py4j.clientserver import ClientServerConnection
from pyspark.sql import DataFrame, SparkSession

from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.sink import BatchSink
from tests.job import settings_in
from tests.spark.loops import QuotaLoop, running
from tests.waiting import wait_until


def test_warm_rounds_compile_no_code_and_ask_the_jvm_little(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = QuotaLoop(spark, settings_in(tmp_path, trigger={"interval_s": 0.2}), quota=90.0)
    jvm: Any = spark._jvm
    compiled = jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    asked = 0
    rounds: list[tuple[int, int]] = []
    send, sink = ClientServerConnection.send_command, BatchSink.__call__

    def counted_send(self: Any, *command: Any) -> Any:
        nonlocal asked
        asked += 1
        return send(self, *command)

    def counted_round(self: BatchSink, outputs: DataFrame, seq: int) -> None:
        before = asked
        sink(self, outputs, seq)
        rounds.append((asked - before, compiled.getCount()))

    monkeypatch.setattr(ClientServerConnection, "send_command", counted_send)
    monkeypatch.setattr(BatchSink, "__call__", counted_round)
    with running(spark, QuotaSpec(loop.settings), loop.transport):
        for number in range(1, 6):
            loop.report("a", "b")
            wait_until(lambda: len(loop.rows("usage")) == 2 * number, 60)  # noqa: B023
    warm = rounds[-2:]
    assert max(calls for calls, _ in warm) <= 25
    assert len({compilations for _, compilations in warm}) == 1
