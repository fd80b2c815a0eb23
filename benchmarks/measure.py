"""What benchmarks of streaming queries share: the session, Spark's reports, durations of calls."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from quotaplane.streams.session import build_session


def session(name: str) -> SparkSession:
    """A session that keeps its reports of all micro-batches."""
    conf = {"spark.ui.enabled": "false", "spark.sql.streaming.numRecentProgressUpdates": "1000"}
    return build_session(name, conf, log_level="error")


def progress(query: Any) -> list[dict[str, Any]]:
    """Spark's reports of a query's triggers, also of those that found nothing."""
    return [json.loads(report.json) for report in query.recentProgress]


def batches(query: Any, count: int) -> list[dict[str, Any]]:
    """Spark's reports of the micro-batches that read something, once there are so many."""
    while True:
        found = [report for report in progress(query) if report["numInputRows"]]
        if len(found) >= count:
            return found
        query.awaitTermination(0.2)


def seconds(report: dict[str, Any]) -> float:
    """How long a micro-batch took, all of it."""
    return float(report["durationMs"]["triggerExecution"] / 1000)


@contextmanager
def timed(owner: type, method: str) -> Iterator[list[float]]:
    """Seconds of each call of a method, while this holds."""
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
