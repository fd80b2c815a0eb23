"""Counts of what a round takes beside its own work: on a small cluster that is nearly all of it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.sink import BatchSink
from tests.job import settings_in
from tests.spark.loops import QuotaLoop, running
from tests.waiting import wait_beside


def test_warm_rounds_compile_no_code(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round's time was a literal in code that Spark generated, and compiled for that round."""
    loop = QuotaLoop(spark, settings_in(tmp_path, trigger={"interval_s": 0.2}), quota=90.0)
    jvm: Any = spark._jvm
    compiled = jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    counts: list[int] = []
    sink = BatchSink.__call__

    def counted(self: BatchSink, outputs: DataFrame, seq: int) -> None:
        sink(self, outputs, seq)
        counts.append(compiled.getCount())

    monkeypatch.setattr(BatchSink, "__call__", counted)
    with running(spark, QuotaSpec(loop.settings), loop.transport) as job:
        for number in range(1, 6):
            loop.report("a", "b")
            wait_beside(job, lambda: len(loop.rows("usage")) == 2 * number)  # noqa: B023
    assert any(later == earlier for earlier, later in pairwise(counts))
