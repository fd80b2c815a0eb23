"""The Pulsar transport: our Data Source reads reports, one producer on the driver sends limits.

Limits are keyed by broker, so each broker's limits stay in order. Topics are never created here:
their replication and retention are the cluster owner's decision (docs/operate/pulsar.md).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pulsar
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import LIST_OF_TOPICS
from quotaplane.errors import ConfigError, TransportError
from quotaplane.pulsar.client import (
    as_transport_error,
    close_quietly,
    open_client,
    partitions_of,
)
from quotaplane.pulsar.message import Row
from quotaplane.pulsar.options import REDACTED
from quotaplane.pulsar.position import EARLIEST, Id
from quotaplane.pulsar.producer import Outgoing, PulsarOutbox
from quotaplane.pulsar.reader import TopicReader, is_before, last_position
from quotaplane.pulsar.replay import read_between
from quotaplane.pulsar.topics import is_compacted, last_entry, must_be_there, topic_partitions
from quotaplane.settings import PulsarTransport
from quotaplane.settings.transports import is_live, is_per_broker
from quotaplane.transport.base import (
    PORTION_BYTES,
    PORTION_MESSAGES,
    READ_AGAIN,
    Message,
    Polled,
    Portion,
    Starting,
    redact,
    report_topic,
)
from quotaplane.transport.pulsar_options import reading_options, source_options, topics_pattern

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS_MAX_AGE_S = 60.0
"""Time until a link notices new partitions."""

READ_AGAIN_PATIENCE_S: Final = 2.0
"""How long a topic may be unavailable while reports are read again: rounds wait meanwhile, and
the next attempt follows soon."""

_log = logging.getLogger(__name__)


class PulsarTopics:
    """The control plane's interface of the Pulsar transport.

    ``spool_folder``: for reports of non-persistent topics, until their batch is committed.
    """

    def __init__(self, settings: PulsarTransport, spool_folder: str | None = None) -> None:
        self._settings = settings
        self._spool_folder = spool_folder
        self._outbox = PulsarOutbox(settings)

    def check(self, max_report_bytes: int | None = None) -> Sequence[str]:
        """Check that the topics exist, and that the one of attachments is compacted.

        Raises:
            ConfigError: a certificate, key or token file can't be read.
            TransportError: no broker answers within ``timeout_s``, or a topic is missing.
        """
        settings = self._settings
        attachments = self._attachments_topic
        outgoing = (settings.limits_topic, *([] if attachments is None else [attachments]))
        for topic in (*settings.report_topics, *outgoing):
            if not is_live(topic) and not is_per_broker(topic):
                must_be_there(settings, topic)
        client = open_client(settings)
        try:
            for topic in (*_report_topics(client, settings), *outgoing):
                partitions = partitions_of(client, settings, topic)
                with as_transport_error(settings, f"topic {topic!r} can't be read"):
                    client.create_reader(partitions[0], pulsar.MessageId.latest)
        finally:
            close_quietly(client)
        if attachments is None or is_compacted(settings, attachments) is not False:
            return ()
        return [
            f"Pulsar at {settings.service_url}: topic {attachments!r} is never compacted, so it "
            "grows; set a compaction threshold (quotaplane setup pulsar, docs/operate/pulsar.md)"
        ]

    @property
    def _attachments_topic(self) -> str | None:
        name = self._settings.attachments_topic
        return None if name is None else self._settings.full_name(name)

    def read_reports(self, spark: SparkSession) -> DataFrame:
        """Stream the reports (``base.COLUMNS``).

        ``published_at_ms`` is a message's event time, or its publish time if it has none;
        ``position`` is ``topic@message id``. A message without a value comes as an empty one.

        Raises:
            ConfigError: reports are spooled, and executors are on other machines.
        """
        options = source_options(self._settings)
        if self._spool_folder is not None:
            master = spark.sparkContext.master or ""
            if not master.startswith("local"):
                raise ConfigError(
                    "limits.transition: strict with reports of a non-persistent topic needs Spark "
                    f"on one machine (--master local[*]), and the master is {master}: executors on "
                    "other machines can't read the driver's spool; set transport.report_topics to "
                    "persistent topics, or transition to fast"
                )
            options["spool_folder"] = str(Path(self._spool_folder).absolute())
        from quotaplane.pulsar.source import PulsarDataSource

        spark.dataSource.register(PulsarDataSource)
        redact(spark, REDACTED)
        return (
            spark.readStream.format("pulsar")
            .options(**options)
            .load()
            .selectExpr(
                "coalesce(value, X'') AS value",
                "unix_millis(coalesce(event_time, publish_time)) AS published_at_ms",
                "concat(topic, '@', message_id) AS position",
                *("cast(key AS binary) AS key", "topic"),
            )
        )

    def offset_since(self, since_ms: int) -> None:
        """Not supported."""

    def read_between(self, begin: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """The reports between two offsets of our Data Source: see ``base.Transport``.

        There are none of non-persistent topics.

        Raises:
            TransportError: a topic is unavailable for longer than ``READ_AGAIN_PATIENCE_S``.
        """
        options = reading_options(self._settings).model_copy(update={"fail_on_data_loss": False})
        for rows in read_between(options, begin or {}, end, patience_s=READ_AGAIN_PATIENCE_S):
            at = pc.coalesce(rows["event_time"], rows["publish_time"])
            place = pc.binary_join_element_wise(rows["topic"], rows["message_id"], "@")
            yield pa.record_batch(
                [
                    pc.fill_null(rows["value"], b""),
                    at.cast(pa.timestamp("ms", "UTC")).cast(pa.int64()),
                    place,
                    rows["key"].cast(pa.binary()),
                    rows["topic"],
                ],
                schema=READ_AGAIN,
            )

    def publish(self, messages: Sequence[Message]) -> None:
        """Send the limits and wait until the cluster has them.

        Raises:
            TransportError: some were not accepted within ``publish_timeout_s``.
        """
        topic = self._settings.limits_topic
        self._outbox.send([Outgoing(topic, key, value) for key, value in messages])

    def publish_attachments(self, messages: Sequence[Message]) -> None:
        """Send attachments, if they have a topic, and wait as ``publish`` does.

        Raises:
            TransportError: as ``publish``.
        """
        topic = self._attachments_topic
        if topic is not None:
            self._outbox.send([Outgoing(topic, key, value) for key, value in messages])

    def close(self) -> None:
        """Close the producers."""
        self._outbox.close()


class PulsarLink:
    """A broker's interface of the Pulsar transport; not thread-safe.

    Reports of one broker always go to the same topic, so that they stay in order.
    """

    def __init__(
        self,
        settings: PulsarTransport,
        limits_from: Starting = "latest",
        *,
        compacted: bool = False,
    ) -> None:
        self._settings = settings
        self._compacted = compacted
        self._outbox = PulsarOutbox(settings)
        self._options = reading_options(settings)
        self._client = open_client(settings)
        self._readers: dict[str, TopicReader] = {}
        self._positions: dict[str, str] = {}
        self._opened_at: dict[str, Id | None] = {}
        """By partition: its last entry when the link was opened; None: not known."""
        self._listed_s = float("-inf")
        self._conditions = Conditions(_log.warning)
        try:
            self._follow(limits_from)
        except TransportError:
            self.close()
            raise

    def send_reports(self, reports: Sequence[tuple[str, bytes, int]]) -> None:
        """Send the reports and wait until the cluster has them.

        Raises:
            TransportError: some were not accepted within ``publish_timeout_s``.
        """
        topics = self._settings.report_topics
        self._outbox.send(
            [
                Outgoing(report_topic(topics, broker), broker, value, published_at_ms)
                for broker, value, published_at_ms in reports
            ]
        )

    def poll_limits(self) -> Portion:
        """Return the next limits, an equal share of the portion from each partition.

        Raises:
            TransportError: the cluster did not answer within ``timeout_s``.
        """
        polled: list[Polled] = []
        more = False
        unread = f"topic {self._settings.limits_topic!r} can't be read"
        try:
            with as_transport_error(self._settings, unread):
                self._follow("earliest")
                # Equal shares: a partition that is filled all the time must not delay the others.
                most = math.ceil(PORTION_MESSAGES / len(self._readers))
                most_bytes = math.ceil(PORTION_BYTES / len(self._readers))
                for reader in self._readers.values():
                    rows, ended = _rows(reader, most, most_bytes)
                    polled += map(_polled, rows)
                    more |= not ended
        except TransportError:
            # Reopening is faster than waiting for a reader that lost its broker. The new readers
            # start from the last positions, so this call's messages are read again.
            self._readers.clear()
            raise
        self._positions = {name: reader.position for name, reader in self._readers.items()}
        return Portion(polled, more, not more or self._is_past_opening())

    def _is_past_opening(self) -> bool:
        """Whether everything that existed when the link was opened has been returned."""
        return not any(
            end is None or is_before(self._positions[partition], end)
            for partition, end in self._opened_at.items()
        )

    def close(self) -> None:
        """Close the readers and the producers."""
        self._outbox.close()
        close_quietly(self._client)

    def _follow(self, starting: Starting) -> None:
        """Open a reader on each partition that has none."""
        settings, client = self._settings, self._client
        now_s = time.monotonic()
        if now_s - self._listed_s >= PARTITIONS_MAX_AGE_S:
            topic = settings.limits_topic
            opening = not self._positions
            if opening:
                must_be_there(settings, topic)
            for partition in self._partitions():
                if partition not in self._positions:
                    with as_transport_error(settings, f"topic {partition!r} can't be read"):
                        latest = starting == "latest"
                        self._positions[partition] = (
                            last_position(client, self._options, partition) if latest else EARLIEST
                        )
                    if opening and not latest:
                        self._opened_at[partition] = last_entry(settings, partition)
            self._listed_s = now_s
        for partition in self._positions.keys() - self._readers.keys():
            # Deleted limits need no error, because every limit is published again.
            self._readers[partition] = TopicReader(
                client,
                self._options,
                partition,
                self._positions[partition],
                lambda *_: None,
                compacted=self._compacted,
            )

    def _partitions(self) -> list[str]:
        """The limits topic's partitions; empty if the cluster does not answer, unless at first."""
        try:
            partitions = partitions_of(self._client, self._settings, self._settings.limits_topic)
        except TransportError as error:
            if not self._positions:
                raise
            text = f"{error}; continuing with the known partitions"
            self._conditions.note(LIST_OF_TOPICS, "", text)
            return []
        self._conditions.note(LIST_OF_TOPICS, "", None)
        return partitions


def _rows(reader: TopicReader, most: int, most_bytes: int) -> tuple[list[Row], bool]:
    """The next rows, and whether the topic partition ended after them."""
    rows: list[Row] = []
    size_bytes = 0
    while len(rows) < most and size_bytes < most_bytes:
        # A short result is not the end: more messages may be on their way.
        taken = reader.take(most - len(rows), most_bytes - size_bytes)
        if not taken:
            return rows, True
        rows += taken
        size_bytes += sum(row.size_bytes for row in taken)
    return rows, False


def _polled(row: Row) -> Polled:
    return Polled(row.key or "", row.value or b"", f"{row.topic}@{row.message_id}")


def _report_topics(client: pulsar.Client, settings: PulsarTransport) -> Sequence[str]:
    """The report topics; in place of a name with ``{broker}`` the first broker's.

    Raises:
        TransportError: there is none yet, or the cluster does not answer.
    """
    (name, *_) = settings.report_topics
    if not is_per_broker(name):
        return settings.report_topics
    pattern = reading_options(settings).model_copy(update=topics_pattern(name))
    existing = topic_partitions(client, pattern)
    if not existing:
        raise TransportError(
            f"Pulsar at {settings.service_url}: there is no topic {name!r} yet: create at least "
            "one broker's (docs/operate/pulsar.md says how) or correct the name"
        )
    return existing[:1]
