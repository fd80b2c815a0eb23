"""Spark's progress, and the room on the disks that a job writes, for the job's status."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from quotaplane.metrics.readings import Key
from quotaplane.streams.status import JobStatus

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


def note_progress(status: JobStatus, progress: StreamingQueryProgress) -> None:
    """Record the number of unread messages, and how long Spark took for a batch."""
    with suppress(ValueError, TypeError, LookupError):  # a gauge must not end the job
        status.set_gauge("backlog", backlog_of(json.loads(progress.json)))
    parts = progress.durationMs.items()
    status.set_gauges("spark_s", {(part,): ms / 1000 for part, ms in parts})


def note_disks(status: JobStatus, folders: Mapping[str, str]) -> None:
    """Record the free space of local folders, by their names in the metrics.

    The thread of a batch calls this: a file system that hangs would hold up that one anyway.
    """
    free: dict[Key, float] = {}
    size: dict[Key, float] = {}
    for name, folder in folders.items():
        with suppress(OSError):
            usage = shutil.disk_usage(folder)
            free[(name,)], size[(name,)] = usage.free, usage.total
    status.set_gauges("disk_free_bytes", free)
    status.set_gauges("disk_size_bytes", size)


def backlog_of(progress: dict[str, Any]) -> int | None:
    """Number of messages that wait in the topics, if the source reports it (Kafka's does).

    ``progress``: Spark's progress of a micro-batch, as JSON.

    >>> source = {"endOffset": {"reports": {"0": 5}}, "latestOffset": {"reports": {"0": 9, "1": 2}}}
    >>> backlog_of({"sources": [source, {"endOffset": {"version": 1}, "latestOffset": None}]})
    6
    """
    behind = [
        _messages_in(source["latestOffset"]) - _messages_in(source["endOffset"])
        for source in progress["sources"]
        if source["latestOffset"] is not None
    ]
    return sum(behind) if behind else None


def _messages_in(offset: object) -> int:
    """Sum of Kafka's offsets ``{topic: {partition: offset}}``; 0 for offsets of other sources."""
    topics = offset.values() if isinstance(offset, dict) else ()
    topics_with_partitions = [topic for topic in topics if isinstance(topic, dict)]
    return sum(
        offset
        for partitions in topics_with_partitions
        for offset in partitions.values()
        if isinstance(offset, int)
    )
