"""The Kafka transport: reports by Spark's own Kafka source, limits by one producer on the driver.

Limits are keyed by broker, so each broker's limits stay in order on one partition. Topics are
never created here: how they are replicated and kept is the cluster owner's to say (docs/kafka.md).
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from quotaplane.errors import ConfigError, TransportError
from quotaplane.settings import KafkaTransport
from quotaplane.transport import Message, Starting
from quotaplane.transport.kafka_options import REDACTED_OPTIONS, client_options, source_options

try:
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaError, NoError, UnknownTopicOrPartitionError, for_code
except ImportError:
    raise ConfigError(
        "transport.kind: kafka needs kafka-python; install it with `pip install quotaplane[kafka]`"
    ) from None

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_REDACTION = "spark.sql.redaction.options.regex"
METADATA_MAX_AGE_MS = 60_000
"""How soon a link hears of new partitions."""

_LINGER_MS = 2
_BATCH_BYTES = 1024 * 1024


class KafkaTopics:
    """The control plane's end of the Kafka transport."""

    def __init__(self, settings: KafkaTransport) -> None:
        self._settings = settings
        self._outbox = _Outbox(settings)

    def check(self) -> None:
        """Ask the cluster for the topics.

        Raises:
            ConfigError: a certificate or key file can't be read.
            TransportError: no server answers within ``connect_timeout_s``, or a topic is missing.
        """
        settings = self._settings
        wait_ms = int(settings.connect_timeout_s * 1000)
        with _as_transport_error(settings, "can't be reached"), _client_log() as log:
            try:
                admin = KafkaAdminClient(
                    **client_options(settings),
                    bootstrap_timeout_ms=wait_ms,
                    request_timeout_ms=wait_ms,
                )
            except KafkaError as error:
                raise TransportError(_unreachable(settings, log.reason or str(error))) from None
            try:
                topics = [*settings.report_topics, settings.limits_topic]
                described = admin.describe_topics(topics)
            finally:
                admin.close()
        codes = {topic["name"]: topic["error_code"] for topic in described}
        for topic in topics:
            kind = for_code(codes.get(topic, UnknownTopicOrPartitionError.errno))
            if kind is UnknownTopicOrPartitionError:
                why = "does not exist: create it (docs/kafka.md says how) or correct the name"
            elif kind is not NoError:
                why = f"can't be used: {kind.__name__}"
            else:
                continue
            raise TransportError(f"Kafka at {settings.bootstrap_servers}: topic {topic!r} {why}")

    def read_reports(self, spark: SparkSession) -> DataFrame:
        """Stream the reports: ``value``, ``published_at_ms`` (the record's time) and ``position``.

        ``position`` is ``topic/partition@offset``. A record without a value comes as an empty one.
        """
        options = source_options(self._settings)
        if self._settings.security.protocol != "PLAINTEXT":
            # Plans and analysis errors print a source's options; these hold keys and passwords.
            before = spark.conf.get(_REDACTION, "") or ""
            if REDACTED_OPTIONS not in before:
                both = f"{before}|{REDACTED_OPTIONS}" if before else REDACTED_OPTIONS
                spark.conf.set(_REDACTION, both)
        rows = spark.readStream.format("kafka").options(**options).load()
        return rows.selectExpr(
            "coalesce(value, X'') AS value",
            "unix_millis(timestamp) AS published_at_ms",
            "concat(topic, '/', partition, '@', offset) AS position",
        )

    def publish(self, messages: Sequence[Message]) -> None:
        """Send the limits and wait until every in-sync replica has them.

        Raises:
            TransportError: some were not taken within ``publish_timeout_s``.
        """
        topic = self._settings.limits_topic
        self._outbox.send(_Record(topic, key, value, None) for key, value in messages)

    def close(self) -> None:
        """Close the producer."""
        self._outbox.close()


class KafkaLink:
    """A broker's end of the Kafka transport; not for use by several threads at once.

    Reports of one broker always go to the same topic, so that they stay in order.
    """

    def __init__(self, settings: KafkaTransport, limits_from: Starting = "latest") -> None:
        self._settings = settings
        self._outbox = _Outbox(settings)
        self._wait_ms = int(settings.connect_timeout_s * 1000)
        with _as_transport_error(settings, "can't be reached"), _client_log() as log:
            try:
                self._consumer = KafkaConsumer(
                    **client_options(settings),
                    group_id=None,
                    enable_auto_commit=False,
                    auto_offset_reset="earliest",
                    allow_auto_create_topics=False,
                    # A fetch that waits for more holds up the question for the topic's end.
                    fetch_max_wait_ms=20,
                    max_poll_records=10_000,
                    metadata_max_age_ms=METADATA_MAX_AGE_MS,
                    bootstrap_timeout_ms=self._wait_ms,
                )
            except KafkaError as error:
                raise TransportError(_unreachable(settings, log.reason or str(error))) from None
            self._assign(limits_from)

    def send_reports(self, reports: Sequence[tuple[str, bytes, int]]) -> None:
        """Send the reports and wait until every in-sync replica has them.

        Raises:
            TransportError: some were not taken within ``publish_timeout_s``.
        """
        self._outbox.send(
            _Record(self._topic_of(broker), broker, value, published_at_ms)
            for broker, value, published_at_ms in reports
        )

    def poll_limits(self) -> list[Message]:
        """Return every limit that was in the topic when this was called, since the last call.

        Raises:
            TransportError: the cluster did not answer within ``connect_timeout_s``.
        """
        limits: list[Message] = []
        deadline = time.monotonic() + self._settings.connect_timeout_s
        with _as_transport_error(self._settings, "limits can't be read"):
            if self._partitions() != self._consumer.assignment():
                self._assign("earliest")
            ends = self._consumer.end_offsets(list(self._partitions()), timeout_ms=self._wait_ms)
            while any(self._consumer.position(part) < end for part, end in ends.items()):
                if time.monotonic() > deadline:
                    why = f"no more from topic {self._settings.limits_topic!r}"
                    raise TransportError(_unreachable(self._settings, why))
                for records in self._consumer.poll(timeout_ms=100).values():
                    limits += [
                        Message((record.key or b"").decode(errors="replace"), record.value or b"")
                        for record in records
                    ]
        return limits

    def close(self) -> None:
        """Close the consumer and the producer."""
        self._consumer.close()
        self._outbox.close()

    def _topic_of(self, broker: str) -> str:
        topics = self._settings.report_topics
        return topics[zlib.crc32(broker.encode()) % len(topics)]

    def _partitions(self) -> set[TopicPartition]:
        topic = self._settings.limits_topic
        numbers = self._consumer.partitions_for_topic(topic)
        if not numbers:
            raise TransportError(
                f"Kafka at {self._settings.bootstrap_servers}: topic {topic!r} does not exist"
            )
        return {TopicPartition(topic, number) for number in numbers}

    def _assign(self, starting: Starting) -> None:
        """Take all partitions; those held before go on where they were."""
        before = {part: self._consumer.position(part) for part in self._consumer.assignment()}
        partitions = list(self._partitions())
        self._consumer.assign(partitions)
        if starting == "latest":
            offsets = self._consumer.end_offsets(partitions, timeout_ms=self._wait_ms)
        else:
            offsets = self._consumer.beginning_offsets(partitions, timeout_ms=self._wait_ms)
        for partition, offset in (offsets | before).items():
            self._consumer.seek(partition, offset)


class _Record(NamedTuple):
    topic: str
    key: str
    value: bytes
    timestamp_ms: int | None


class _Outbox:
    """A producer that is opened at first use, kept, and replaced after an error."""

    def __init__(self, settings: KafkaTransport) -> None:
        self._settings = settings
        self._producer: KafkaProducer | None = None

    def send(self, records: Iterable[_Record]) -> None:
        try:
            with _as_transport_error(self._settings, "messages were not taken"):
                self._send(records)
        except TransportError:
            self._discard()
            raise

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout=self._settings.publish_timeout_s)

    def _send(self, records: Iterable[_Record]) -> None:
        futures = []
        for record in records:
            topic, key, value, timestamp_ms = record
            future = self._open().send(topic, value, key.encode(), timestamp_ms=timestamp_ms)
            futures.append((record, future))
        if futures:
            # What is not delivered in time fails by itself; the grace is for hearing of it.
            self._open().flush(timeout=self._settings.publish_timeout_s + 1)
        for (topic, key, value, _), future in futures:
            if not future.succeeded():
                why = type(future.exception).__name__
                raise TransportError(
                    f"Kafka at {self._settings.bootstrap_servers}: topic {topic!r} did not take "
                    f"{len(value)} bytes for {key!r}: {why}"
                )

    def _discard(self) -> None:
        """Let go of a producer that failed, and of what it still holds.

        Its own ``close`` first waits for what is queued: that may last, and must not go out behind
        the back of whoever sends it again.
        """
        producer, self._producer = self._producer, None
        if producer is not None:
            producer._sender.force_close()
            with suppress(KafkaError):
                producer.close(timeout=1)

    def _open(self) -> KafkaProducer:
        if self._producer is None:
            settings = self._settings
            compression = None if settings.compression == "none" else settings.compression
            wait_ms = int(settings.publish_timeout_s * 1000)
            try:
                self._producer = KafkaProducer(
                    **client_options(settings),
                    acks="all",
                    enable_idempotence=True,
                    compression_type=compression,
                    linger_ms=_LINGER_MS,
                    batch_size=_BATCH_BYTES,
                    max_request_size=settings.max_request_bytes,
                    max_block_ms=int(settings.connect_timeout_s * 1000),
                    bootstrap_timeout_ms=int(settings.connect_timeout_s * 1000),
                    request_timeout_ms=wait_ms // 2,
                    delivery_timeout_ms=wait_ms,
                    allow_auto_create_topics=False,
                )
            except RuntimeError:
                raise ConfigError(
                    f"transport.compression: {compression} is not installed; "
                    f"`pip install {'zstandard' if compression == 'zstd' else compression}`"
                ) from None
        return self._producer


class _Reason(logging.Handler):
    """Keeps why connections were lost: the client's exceptions leave that out."""

    reason = ""

    def emit(self, record: logging.LogRecord) -> None:
        why = record.getMessage().partition("Connection lost: ")[2]
        if not self.reason or ("uthentication" in why and "uthentication" not in self.reason):
            self.reason = why


@contextmanager
def _client_log() -> Iterator[_Reason]:
    logger = logging.getLogger("kafka")
    handler = _Reason()
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def _unreachable(settings: KafkaTransport, why: str) -> str:
    return (
        f"Kafka at {settings.bootstrap_servers}: can't be reached within "
        f"{settings.connect_timeout_s:g} s ({' '.join(why.split())}); check "
        "transport.bootstrap_servers and transport.security"
    )


@contextmanager
def _as_transport_error(settings: KafkaTransport, what: str) -> Iterator[None]:
    try:
        yield
    except (KafkaError, OSError, ValueError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise TransportError(f"Kafka at {settings.bootstrap_servers}: {what}: {why}") from None
