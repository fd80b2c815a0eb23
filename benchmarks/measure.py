"""Helpers for benchmarks of streaming queries: session, Spark's progress reports, timed calls."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from quotaplane.streams.session import build_session


def session(name: str) -> SparkSession:
    """A session that keeps the progress reports of all micro-batches."""
    conf = {"spark.ui.enabled": "false", "spark.sql.streaming.numRecentProgressUpdates": "1000"}
    return build_session(name, conf, log_level="error")


def progress(query: Any) -> list[dict[str, Any]]:
    """Spark's progress reports of a query, including triggers without input."""
    return [json.loads(report.json) for report in query.recentProgress]


def batches(query: Any, count: int) -> list[dict[str, Any]]:
    """Wait for ``count`` micro-batches with input; returns Spark's progress reports of them."""
    while True:
        reports = [report for report in progress(query) if report["numInputRows"]]
        if len(reports) >= count:
            return reports
        query.awaitTermination(0.2)


def seconds(report: dict[str, Any]) -> float:
    """The whole duration of a micro-batch."""
    return float(report["durationMs"]["triggerExecution"] / 1000)


@contextmanager
def timed(owner: type, method: str) -> Iterator[list[float]]:
    """Collect the seconds of each call of a method within this context."""
    original: Callable[..., Any] = getattr(owner, method)
    took: list[float] = []

    def around(*args: Any, **options: Any) -> Any:
        begun = time.perf_counter()
        try:
            return original(*args, **options)
        finally:
            took.append(time.perf_counter() - begun)

    setattr(owner, method, around)
    try:
        yield took
    finally:
        setattr(owner, method, original)
