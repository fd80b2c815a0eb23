"""The embedded transport: Delta tables instead of topics; no server is needed.

``reports``, ``limits_topic`` and ``attachments_topic`` have the same columns (``TOPIC_SCHEMA``).
Both sides append with the deltalake package (no JVM: 5 to 20 ms) and wait until the disk has it.
Spark streams ``reports``; brokers read the change feed of ``limits_topic``. Every send is one
append: one small file and one version of the table. ``attachments_topic`` is compacted: what is
published takes the place of what had its key, and brokers read the table.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from quotaplane.deltalog.checksums import compare
from quotaplane.deltalog.durable import COMMIT_ONLY
from quotaplane.deltalog.log import Log, read_commit
from quotaplane.deltalog.read import live_paths, read_changes, read_rows, refuse
from quotaplane.parsing.folders import spark_uri
from quotaplane.settings import DeltaTransport
from quotaplane.transport.base import (
    PORTION_BYTES,
    READ_AGAIN,
    REPORTS_AND_LIMITS,
    Message,
    Polled,
    Portion,
    Starting,
    Topics,
)
from quotaplane.transport.delta_topic import FAILURES, TOPIC_SCHEMA, Topic, as_transport_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CONTRACT: Final = (
    *("value", "published_at_ms", "concat(append_id, '#', row) AS position"),
    *("cast(key AS binary) AS key", "cast(NULL AS string) AS topic"),
)

_BATCH_BYTES: Final = "128m"
_BATCH_FILES: Final = 1000
"""Most that one micro-batch reads, but at least one file; the next one reads the rest."""

PORTION_VERSIONS: Final = 100
"""Most versions that a poll reads; each has the messages of one ``publish``."""

_VERSIONS_AT_ONCE: Final = 20
"""Versions that are read again together; each has the reports of one send."""


class DeltaTopics:
    """The control plane's interface of the embedded transport."""

    def __init__(self, settings: DeltaTransport, topics: Topics) -> None:
        self._settings = settings
        self._limits = Topic(settings, topics.outgoing)
        self._reports = Topic(settings, topics.incoming)
        self._attachments = Topic(settings, settings.attachments_topic)

    def check(self, max_report_bytes: int | None = None) -> Sequence[str]:
        """Create missing tables; there are no warnings.

        Raises:
            TransportError: the folder can't be written, or has tables that are not topics.
        """
        for topic in (self._limits, self._reports, self._attachments):
            topic.open()
        return ()

    def read_reports(self, spark: SparkSession) -> DataFrame:
        """Stream the reports (``base.COLUMNS``)."""
        table = self._reports.open()
        table.update_incremental()
        # Old messages may be deleted meanwhile (see ``maintain``); such a commit adds no message.
        reader = spark.readStream.format("delta").option("skipChangeCommits", "true")
        reader = reader.option("maxBytesPerTrigger", _BATCH_BYTES)
        # With a bound in bytes, Delta has no default bound on files.
        most = self._settings.max_files_per_trigger or _BATCH_FILES
        reader = reader.option("maxFilesPerTrigger", most)
        if self._settings.starting == "latest":
            reader = reader.option("startingVersion", "latest")
        elif table.version() == 0:
            # Without a snapshot the first batch comes a second or more earlier.
            reader = reader.option("startingVersion", "0")
        return reader.load(spark_uri(self._reports.uri)).selectExpr(*_CONTRACT)

    def offset_since(self, since_ms: int) -> None:
        """Not supported."""

    def read_between(self, begin: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """The reports between two offsets of Delta's source: see ``base.Transport``.

        A version of the table that the offsets divide is read as a whole.

        Raises:
            TransportError: the table, or its log of these versions, can't be read.
        """
        # Offsets within the table's content at the query's start do not say of which versions.
        whole = begin is None or begin.get("isStartingVersion", False)
        first = 0 if whole else begin["reservoirVersion"]
        # An index of a file is inclusive; a negative one is before the version's first file.
        within = end.get("isStartingVersion", False) or end["index"] >= 0
        last = end["reservoirVersion"] if within else end["reservoirVersion"] - 1
        with as_transport_error(self._reports.uri):
            table = self._reports.open()
            table.update_incremental()
        for since in range(first, last + 1, _VERSIONS_AT_ONCE):
            until = min(since + _VERSIONS_AT_ONCE - 1, last)
            for rows in self._parts_between(table, since, until):
                key = rows["key"].cast(pa.binary())
                rows = rows.set_column(rows.column_names.index("key"), "key", key)
                rows = rows.append_column("topic", pa.nulls(len(rows), pa.string()))
                yield from rows.select(READ_AGAIN.names).cast(READ_AGAIN).to_batches()

    def _parts_between(self, table: DeltaTable, since: int, until: int) -> Iterator[pa.Table]:
        """The reports of these versions, but for versions that were cleaned up."""
        try:
            yield _inserted(table, since, until)
            return
        except FAILURES:
            there = [v for v in range(since, until + 1) if _is_whole(self._reports.uri, v)]
        with as_transport_error(self._reports.uri):
            for version in there:
                yield _inserted(table, version, version)

    def publish(self, messages: Sequence[Message]) -> None:
        """Append the limits to ``limits_topic`` in one version.

        Raises:
            TransportError: the append failed; none of the messages is in the table.
        """
        self._limits.append(*_columns(messages))

    def publish_attachments(self, messages: Sequence[Message]) -> None:
        """Put the attachments in the place of those with the same keys, in one version.

        Raises:
            TransportError: as ``publish``.
        """
        self._attachments.append(*_columns(messages), replace=True)

    def close(self) -> None:
        """There is nothing to close."""


class DeltaLink:
    """A broker's interface of the embedded transport; not thread-safe."""

    def __init__(self, settings: DeltaTransport, limits_from: Starting, topics: Topics) -> None:
        self._limits = Topic(settings, topics.outgoing)
        self._reports = Topic(settings, topics.incoming)
        with as_transport_error(self._limits.uri):
            self._opened_at = self._limits.open().version()
        self._version = self._opened_at if limits_from == "latest" else 0
        self._versions_at_once = 1
        """Versions of the next read: twice as many as of the one before while these are small, so
        that few reads are made of many small versions, and large ones are not read together."""

    def send_reports(self, reports: Sequence[tuple[str, bytes, int]]) -> None:
        """Append the reports in one version.

        Raises:
            TransportError: the append failed; none of the reports is in the table.
        """
        self._reports.append(
            [broker for broker, _, _ in reports],
            [value for _, value, _ in reports],
            [published_at_ms for _, _, published_at_ms in reports],
        )

    def poll_limits(self) -> Portion:
        """Return the limits of the next versions, oldest first; a version is never split.

        A portion ends after ``PORTION_VERSIONS``, or with the read that reaches ``PORTION_BYTES``.

        Raises:
            TransportError: the table can't be read, or the next versions were cleaned up.
        """
        with as_transport_error(self._limits.uri):
            table = self._limits.open()
            table.update_incremental()
            newest = table.version()
            last, end = self._version, min(newest, self._version + PORTION_VERSIONS)
            polled: list[Polled] = []
            size_bytes = 0
            while last < end and size_bytes < PORTION_BYTES:
                until = min(last + self._versions_at_once, end)
                read = _polled(_inserted(table, last + 1, until))
                read_bytes = sum(len(one.value) for one in read)
                if read_bytes > PORTION_BYTES // 4:
                    self._versions_at_once = 1
                elif until - last == self._versions_at_once:
                    self._versions_at_once = min(2 * self._versions_at_once, PORTION_VERSIONS)
                polled += read
                size_bytes += read_bytes
                last = until
        self._version = last
        return Portion(polled, more=last < newest, caught_up=last >= min(newest, self._opened_at))

    def close(self) -> None:
        """There is nothing to close."""


class DeltaAttachmentsLink:
    """``BrokerLink`` of the table of attachments, which has only the newest message of each key."""

    def __init__(self, settings: DeltaTransport) -> None:
        self._topic = Topic(settings, settings.attachments_topic)
        self._topic.open()
        self._version = -1

    def send_reports(self, reports: Sequence[tuple[str, bytes, int]]) -> None:
        """Not for reports."""
        raise NotImplementedError

    def poll_limits(self) -> Portion:
        """Return all attachments, if the table has changed since the last poll.

        Raises:
            TransportError: the table can't be read.
        """
        with as_transport_error(self._topic.uri):
            table = self._topic.open()
            table.update_incremental()
            version = table.version()
            rows = TOPIC_SCHEMA.empty_table()
            if version != self._version:
                rows = read_rows(table, TOPIC_SCHEMA.names)
        self._version = version
        return Portion(_polled(_positioned(rows)), more=False, caught_up=True)

    def close(self) -> None:
        """There is nothing to close."""


def maintain(
    settings: DeltaTransport,
    *,
    keep_s: float = 172_800.0,
    topics: Sequence[str] = REPORTS_AND_LIMITS,
) -> None:
    """Compact topics, and delete messages published more than ``keep_s`` seconds ago.

    Attachments are not deleted, as they hold until newer ones replace them.

    Safe beside a running job if ``keep_s`` exceeds the longest time that the job or a broker is
    away; otherwise messages that it has not read are deleted.

    Raises:
        TransportError: a table can't be rewritten, or has damaged files.
    """
    oldest_ms = int((time.time() - keep_s) * 1000)
    hours = math.ceil(keep_s / 3600)
    for name in (*topics, settings.attachments_topic):
        topic = Topic(settings, name)
        with as_transport_error(topic.uri):
            there = DeltaTable.is_deltatable(topic.uri)
        if not there:
            continue
        table = topic.open()
        with as_transport_error(topic.uri):
            table.update_incremental()
            refuse(compare(Path(topic.uri), live_paths(table), time.time_ns() // 1_000_000))
            with topic.lock():
                table.update_incremental()
                topic.check()
                if name in topics:
                    old = f"published_at_ms < {oldest_ms}"
                    table.delete(old, post_commithook_properties=COMMIT_ONLY)
            topic.compact()
            # Without the lock, as this may take long. It deletes only files that the log marked as
            # removed longer than ``hours`` ago: no newer version has these, and files of an append
            # that is not committed yet are not in the log at all.
            before = table.version()
            table.vacuum(
                retention_hours=hours,
                enforce_retention_duration=False,
                dry_run=False,
                post_commithook_properties=COMMIT_ONLY,
            )
            topic.keep(before)


def _inserted(table: DeltaTable, since: int, upto: int) -> pa.Table:
    """The messages of these versions, oldest first, with their ``position``."""
    columns = [*TOPIC_SCHEMA.names, "_change_type", "_commit_version"]
    rows = read_changes(table, since, upto, columns)
    rows = rows.filter(pc.equal(rows["_change_type"], "insert"))
    return _positioned(rows.sort_by([("_commit_version", "ascending"), ("row", "ascending")]))


def _positioned(rows: pa.Table) -> pa.Table:
    """The messages, with their ``position``."""
    row = rows["row"].cast(pa.string())
    return rows.append_column("position", pc.binary_join_element_wise(rows["append_id"], row, "#"))


def _columns(messages: Sequence[Message]) -> tuple[list[str], list[bytes], list[int]]:
    """Keys, values and times of messages that are published now."""
    now_ms = time.time_ns() // 1_000_000
    keys = [message.key for message in messages]
    return keys, [message.value for message in messages], [now_ms] * len(messages)


def _is_whole(uri: str, version: int) -> bool:
    """Is a version in the table's log, and are all files there that it added?"""
    log = Log(Path(uri), {}, {})
    try:
        commit = read_commit(log.commit(version))
    except (OSError, ValueError):
        return False
    return all((log.folder / file.path).exists() for file in commit.added)


def _polled(rows: pa.Table) -> list[Polled]:
    columns = (rows[name].to_pylist() for name in ("key", "value", "position"))
    return [Polled(*each) for each in zip(*columns, strict=True)]
