"""Helpers for benchmarks of streaming queries: session, Spark's progress reports, timed calls."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from quotaplane.streams.session import build_session

T = TypeVar("T")


def session(name: str) -> SparkSession:
    """A session that keeps the progress reports of all micro-batches."""
    conf = {"spark.ui.enabled": "false", "spark.sql.streaming.numRecentProgressUpdates": "1000"}
    return build_session(name, conf, log_level="error")


def progress(query: Any) -> list[dict[str, Any]]:
    """Spark's progress reports of a query, including triggers without input."""
    return [json.loads(report.json) for report in query.recentProgress]


def batches(query: Any, count: int) -> list[dict[str, Any]]:
    """Wait for ``count`` micro-batches with input; returns Spark's progress reports of them."""
    wanted = count
    while True:
        # All reports take the driver seconds, which would count as the job's.
        newest = query.lastProgress
        if newest is not None and newest["batchId"] + 1 >= wanted:
            reports = [report for report in progress(query) if report["numInputRows"]]
            if len(reports) >= count:
                return reports
            wanted += count - len(reports)
        query.awaitTermination(1.0)


def seconds(report: dict[str, Any]) -> float:
    """The whole duration of a micro-batch."""
    return float(report["durationMs"]["triggerExecution"] / 1000)


@contextmanager
def looked_at(owner: Any, method: str, look: Callable[[], T]) -> Iterator[list[tuple[T, T]]]:
    """Collect what ``look`` returns before and after each call of a class's method, or of a
    module's function, in this context.
    """
    original: Callable[..., Any] = getattr(owner, method)
    seen: list[tuple[T, T]] = []

    def around(*args: Any, **options: Any) -> Any:
        before = look()
        try:
            return original(*args, **options)
        finally:
            seen.append((before, look()))

    setattr(owner, method, around)
    try:
        yield seen
    finally:
        setattr(owner, method, original)


def timed(owner: type, method: str) -> AbstractContextManager[list[tuple[float, float]]]:
    """Collect when each call of a method began and ended, in seconds of one clock."""
    return looked_at(owner, method, time.perf_counter)


def lengths(spans: Iterable[tuple[float, float]]) -> list[float]:
    """The lengths of spans of time."""
    return [end - begin for begin, end in spans]
