"""The Kafka transport: Spark's Kafka source reads reports, one producer on the driver sends limits.

Limits are keyed by broker, so each broker's limits stay in order, on one partition. Topics are
never created here: their replication and retention are the cluster owner's decision
(docs/operate/kafka.md).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import (
    KafkaError,
    NoError,
    UnknownTopicOrPartitionError,
    for_code,
)

from quotaplane.errors import TransportError
from quotaplane.settings import KafkaTransport
from quotaplane.settings.transports import belongs, is_per_broker
from quotaplane.transport.base import (
    PORTION_BYTES,
    PORTION_MESSAGES,
    Message,
    Polled,
    Portion,
    Starting,
    redact,
    report_topic,
)
from quotaplane.transport.kafka_client import (
    KafkaOutbox,
    OutgoingRecord,
    as_transport_error,
    client_log,
    consumer_of,
    position_of,
    records_between,
    unreachable,
)
from quotaplane.transport.kafka_options import (
    CLEANUP,
    REDACTED_OPTIONS,
    SIZE_CONFIGS,
    cleanup_warnings,
    client_options,
    size_warnings,
    source_options,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class KafkaTopics:
    """The control plane's interface of the Kafka transport."""

    def __init__(self, settings: KafkaTransport) -> None:
        self._settings = settings
        self._outbox = KafkaOutbox(settings)

    def check(self, max_report_bytes: int | None = None) -> Sequence[str]:
        """Check that the topics exist, and the sizes of records that they allow.

        Raises:
            ConfigError: a certificate or key file can't be read.
            TransportError: no server answers within ``timeout_s``, or a topic is missing.
        """
        settings = self._settings
        with self._admin() as admin:
            reports = self._report_topics(admin)
            attachments = [settings.attachments_topic] if settings.attachments_topic else []
            topics = [*reports, settings.limits_topic, *attachments]
            described = admin.describe_topics(topics)
            configs = {} if max_report_bytes is None else _configs(admin, reports, SIZE_CONFIGS)
            cleanup = _configs(admin, attachments, (CLEANUP,))
        codes = {topic["name"]: topic["error_code"] for topic in described}
        for topic in topics:
            kind = for_code(codes.get(topic, UnknownTopicOrPartitionError.errno))
            if kind is UnknownTopicOrPartitionError:
                why = (
                    "does not exist: create it (docs/operate/kafka.md says how) or correct the name"
                )
            elif kind is not NoError:
                why = f"can't be used: {kind.__name__}"
            else:
                continue
            raise TransportError(f"Kafka at {settings.bootstrap_servers}: topic {topic!r} {why}")
        warnings = cleanup_warnings(settings, cleanup)
        if max_report_bytes is not None:
            warnings += size_warnings(settings, configs, max_report_bytes)
        return warnings

    def offset_since(self, since_ms: int) -> dict[str, dict[str, int]] | None:
        """By topic and partition, the first offset of that time or later, or the end offset.

        None: Kafka can't find it. Kafka reads records to find a time, which fails if a record
        decompresses to more than Kafka's memory (docs/operate/kafka.md, Large records).

        Raises:
            TransportError: no server answers within ``timeout_s``.
        """
        offsets: dict[str, dict[str, int]] = {}
        with self._admin() as admin:
            partitions = [
                TopicPartition(topic["name"], partition["partition_index"])
                for topic in admin.describe_topics(self._report_topics(admin))
                for partition in topic["partitions"]
            ]
            # The ends first, so that records that arrive meanwhile are not skipped.
            ends = admin.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
            try:
                starts = admin.list_partition_offsets(dict.fromkeys(partitions, since_ms))
            except KafkaError:
                return None
        for part in partitions:
            offset = starts[part].offset
            of_topic = offsets.setdefault(part.topic, {})
            of_topic[str(part.partition)] = offset if offset >= 0 else ends[part].offset
        return offsets

    @contextmanager
    def _admin(self) -> Iterator[KafkaAdminClient]:
        settings = self._settings
        wait_ms = int(settings.timeout_s * 1000)
        with as_transport_error(settings, "can't be reached"), client_log() as log:
            try:
                admin = KafkaAdminClient(
                    **client_options(settings),
                    bootstrap_timeout_ms=wait_ms,
                    request_timeout_ms=wait_ms,
                )
            except KafkaError as error:
                raise TransportError(unreachable(settings, log.reason or str(error))) from None
            try:
                yield admin
            finally:
                admin.close()

    def _report_topics(self, admin: KafkaAdminClient) -> list[str]:
        """The report topics; in place of a name with ``{broker}`` those that exist.

        Raises:
            TransportError: there is none yet.
        """
        topics: list[str] = []
        for name in self._settings.report_topics:
            if not is_per_broker(name):
                topics.append(name)
                continue
            existing = sorted(topic for topic in admin.list_topics() if belongs(name, topic))
            if not existing:
                raise TransportError(
                    f"Kafka at {self._settings.bootstrap_servers}: there is no topic {name!r} yet: "
                    "create at least one broker's (docs/operate/kafka.md says how) or correct the "
                    "name"
                )
            topics += existing
        return list(dict.fromkeys(topics))

    def read_reports(self, spark: SparkSession) -> DataFrame:
        """Stream the reports (``base.COLUMNS``); ``published_at_ms`` is the record's time.

        ``position`` is ``topic/partition@offset``. A record without a value comes as an empty one.
        """
        if self._settings.security.protocol != "PLAINTEXT":
            redact(spark, REDACTED_OPTIONS)
        return (
            spark.readStream.format("kafka")
            .options(**source_options(self._settings))
            .load()
            .selectExpr(
                "coalesce(value, X'') AS value",
                "unix_millis(timestamp) AS published_at_ms",
                "concat(topic, '/', partition, '@', offset) AS position",
                *("key", "topic"),
            )
        )

    def read_between(self, begin: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """The reports between two offsets of Kafka's source: see ``base.Transport``.

        Raises:
            TransportError: no server answers within ``timeout_s``.
        """
        wait_s = self._settings.timeout_s
        with consumer_of(self._settings) as consumer:
            for topic, offsets in end.items():
                first = (begin or {}).get(topic, {})
                there = consumer.partitions_for_topic(topic) or set()  # empty: it was deleted
                for number in sorted(int(each) for each in offsets if int(each) in there):
                    part = TopicPartition(topic, number)
                    since, last = first.get(str(number), 0), offsets[str(number)]
                    with as_transport_error(self._settings, "reports can't be read again"):
                        yield from records_between(consumer, part, since, last, wait_s)

    def publish(self, messages: Sequence[Message]) -> None:
        """Send the limits and wait until every in-sync replica has them.

        Raises:
            TransportError: some were not accepted within ``publish_timeout_s``.
        """
        self._send(self._settings.limits_topic, messages)

    def publish_attachments(self, messages: Sequence[Message]) -> None:
        """Send attachments, if they have a topic, and wait as ``publish`` does.

        Raises:
            TransportError: as ``publish``.
        """
        if self._settings.attachments_topic is not None:
            self._send(self._settings.attachments_topic, messages)

    def _send(self, topic: str, messages: Sequence[Message]) -> None:
        self._outbox.send(OutgoingRecord(topic, key, value, None) for key, value in messages)

    def close(self) -> None:
        """Close the producer."""
        self._outbox.close()


class KafkaLink:
    """A broker's interface of the Kafka transport; not thread-safe.

    Reports of one broker always go to the same topic, so that they stay in order.
    """

    def __init__(self, settings: KafkaTransport, limits_from: Starting = "latest") -> None:
        self._settings = settings
        self._outbox = KafkaOutbox(settings)
        self._wait_ms = int(settings.timeout_s * 1000)
        self._resources = ExitStack()
        self._consumer = self._resources.enter_context(consumer_of(settings))
        with as_transport_error(settings, "can't be reached"), client_log():
            self._assign(limits_from)
            partitions = list(self._partitions())
            self._opened_at = self._consumer.end_offsets(partitions, timeout_ms=self._wait_ms)

    def send_reports(self, reports: Sequence[tuple[str, bytes, int]]) -> None:
        """Send the reports and wait until every in-sync replica has them.

        Raises:
            TransportError: some were not accepted within ``publish_timeout_s``.
        """
        topics = self._settings.report_topics
        self._outbox.send(
            OutgoingRecord(report_topic(topics, broker), broker, value, published_at_ms)
            for broker, value, published_at_ms in reports
        )

    def poll_limits(self) -> Portion:
        """Return the next of the limits that were in the topic when this was called.

        Raises:
            TransportError: the cluster did not answer within ``timeout_s``.
        """
        unread = f"topic {self._settings.limits_topic!r} can't be read"
        with as_transport_error(self._settings, unread):
            if self._partitions() != self._consumer.assignment():
                self._assign("earliest")
            begun_at = {part: self._consumer.position(part) for part in self._partitions()}
            try:
                return self._portion()
            except Exception:
                for part, offset in begun_at.items():
                    self._consumer.seek(part, offset)
                raise

    def _portion(self) -> Portion:
        polled: list[Polled] = []
        size_bytes = 0
        deadline = time.monotonic() + self._settings.timeout_s
        ends = self._consumer.end_offsets(list(self._partitions()), timeout_ms=self._wait_ms)
        while self._is_before(ends):
            if len(polled) >= PORTION_MESSAGES or size_bytes >= PORTION_BYTES:
                break
            if time.monotonic() > deadline:
                if polled:
                    break
                why = f"no more from topic {self._settings.limits_topic!r}"
                raise TransportError(unreachable(self._settings, why))
            remaining = PORTION_MESSAGES - len(polled)
            for records in self._consumer.poll(timeout_ms=100, max_records=remaining).values():
                polled += map(_polled, records)
                size_bytes += sum(len(record.value or b"") for record in records)
        more = self._is_before(ends)
        return Portion(polled, more, not more or not self._is_before(self._opened_at))

    def close(self) -> None:
        """Close the consumer and the producer."""
        self._resources.close()
        self._outbox.close()

    def _is_before(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Whether messages remain to be read before these offsets."""
        return any(self._consumer.position(part) < end for part, end in ends.items())

    def _partitions(self) -> set[TopicPartition]:
        topic = self._settings.limits_topic
        numbers = self._consumer.partitions_for_topic(topic)
        if not numbers:
            raise TransportError(
                f"Kafka at {self._settings.bootstrap_servers}: topic {topic!r} does not exist"
            )
        return {TopicPartition(topic, number) for number in numbers}

    def _assign(self, starting: Starting) -> None:
        """Assign all partitions; previously assigned ones keep their positions."""
        before = {part: self._consumer.position(part) for part in self._consumer.assignment()}
        partitions = list(self._partitions())
        self._consumer.assign(partitions)
        if starting == "latest":
            offsets = self._consumer.end_offsets(partitions, timeout_ms=self._wait_ms)
        else:
            offsets = self._consumer.beginning_offsets(partitions, timeout_ms=self._wait_ms)
        for partition, offset in (offsets | before).items():
            self._consumer.seek(partition, offset)


def _configs(
    admin: KafkaAdminClient, topics: Sequence[str], names: Iterable[str]
) -> dict[str, dict[str, str]]:
    """Configurations of topics, by name; empty for each without the right to read them."""
    if not topics:
        return {}
    kind, names = ConfigResourceType.TOPIC, list(names)
    resources = [ConfigResource(kind, topic, names) for topic in topics]
    try:
        by_topic = admin.describe_configs(resources, config_filter="all").get("topic", {})
    except KafkaError:
        by_topic = {}
    return {
        topic: {name: config["value"] for name, config in by_topic.get(topic, {}).items()}
        for topic in topics
    }


def _polled(record: Any) -> Polled:
    key = (record.key or b"").decode(errors="replace")
    return Polled(key, record.value or b"", position_of(record))
