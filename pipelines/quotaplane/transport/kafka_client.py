"""Wrapper of kafka-python: a producer, a consumer, and errors that name cluster and reason."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import pyarrow as pa
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import (
    CorruptRecordError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
)

from quotaplane.errors import ConfigError, MessageTooLargeError, TransportError
from quotaplane.settings import KafkaTransport
from quotaplane.transport.base import READ_AGAIN
from quotaplane.transport.kafka_options import client_options

METADATA_MAX_AGE_MS = 60_000
"""Time until a link notices new partitions."""
_LINGER_MS: Final = 2
_BATCH_BYTES: Final = 1024 * 1024
_MOST_BYTES: Final = 16 * 1024 * 1024
"""Largest message sent. No setting: the topic's ``max.message.bytes`` is the bound that counts."""


class OutgoingRecord(NamedTuple):
    """A message to send; without a timestamp it gets the time of sending."""

    topic: str
    key: str
    value: bytes
    timestamp_ms: int | None


class KafkaOutbox:
    """A producer that is opened on first use, kept, and replaced after an error."""

    def __init__(self, settings: KafkaTransport) -> None:
        self._settings = settings
        self._producer: KafkaProducer | None = None

    def send(self, records: Iterable[OutgoingRecord]) -> None:
        """Send and wait until every in-sync replica has them.

        Raises:
            ConfigError: the compression's package is missing, or a certificate can't be read.
            TransportError: some messages were not accepted within ``publish_timeout_s``.
        """
        try:
            with as_transport_error(self._settings, "messages were not accepted"):
                self._send(records)
        except TransportError:
            self._discard()
            raise

    def close(self) -> None:
        """Close the producer; nothing is queued, since ``send`` waits."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(KafkaError):
                producer.close(timeout=self._settings.publish_timeout_s)

    def _send(self, records: Iterable[OutgoingRecord]) -> None:
        futures = []
        for record in records:
            topic, key, value, timestamp_ms = record
            future = self._open().send(topic, value, key.encode(), timestamp_ms=timestamp_ms)
            futures.append((record, future))
        if futures:
            # Messages fail by themselves after the timeout; the extra second is for the callback.
            self._open().flush(timeout=self._settings.publish_timeout_s + 1)
        for (topic, key, value, _), future in futures:
            if not future.succeeded():
                what = (
                    f"Kafka at {self._settings.bootstrap_servers}: topic {topic!r} did not accept "
                    f"{len(value)} bytes for {key!r}: {type(future.exception).__name__}"
                )
                if isinstance(future.exception, MessageSizeTooLargeError):
                    # Of all that were not sent yet kafka-python says the same.
                    what += "; set its max.message.bytes (docs/operate/kafka.md, Topics)"
                    raise MessageTooLargeError(what)
                raise TransportError(what)

    def _discard(self) -> None:
        """Close a producer that failed, and drop its queued messages.

        Its own ``close`` would first try to send them: that may take long, and they could arrive
        after the caller has sent them again.
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
                    max_request_size=_MOST_BYTES,
                    max_block_ms=int(settings.timeout_s * 1000),
                    bootstrap_timeout_ms=int(settings.timeout_s * 1000),
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
    """Records why connections were lost, which the client's exceptions don't say."""

    reason = ""

    def emit(self, record: logging.LogRecord) -> None:
        why = record.getMessage().partition("Connection lost: ")[2]
        if not self.reason or ("uthentication" in why and "uthentication" not in self.reason):
            self.reason = why


@contextmanager
def client_log() -> Iterator[_Reason]:
    """Keep kafka-python's log off the terminal; its reason is available for our message."""
    logger = logging.getLogger("kafka")
    handler = _Reason()
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def unreachable(settings: KafkaTransport, why: str) -> str:
    """The message about a cluster that did not answer: which, why, and what to check."""
    return (
        f"Kafka at {settings.bootstrap_servers}: can't be reached within "
        f"{settings.timeout_s:g} s ({' '.join(why.split())}); check "
        "transport.bootstrap_servers and transport.security"
    )


@contextmanager
def as_transport_error(settings: KafkaTransport, what: str) -> Iterator[None]:
    """Turn exceptions of kafka-python into one-line errors."""
    try:
        yield
    except (KafkaError, OSError, ValueError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise TransportError(f"Kafka at {settings.bootstrap_servers}: {what}: {why}") from None


@contextmanager
def consumer_of(settings: KafkaTransport) -> Iterator[KafkaConsumer]:
    """A consumer without partitions or a group, which is closed at the end."""
    wait_ms = int(settings.timeout_s * 1000)
    with as_transport_error(settings, "can't be reached"), client_log() as log:
        try:
            consumer = KafkaConsumer(
                **client_options(settings),
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                allow_auto_create_topics=False,
                # A fetch that waits longer would delay requests for the end offsets.
                fetch_max_wait_ms=20,
                max_poll_records=10_000,
                metadata_max_age_ms=METADATA_MAX_AGE_MS,
                bootstrap_timeout_ms=wait_ms,
            )
        except KafkaError as error:
            raise TransportError(unreachable(settings, log.reason or str(error))) from None
    try:
        yield consumer
    finally:
        consumer.close()


def records_between(
    consumer: KafkaConsumer, part: TopicPartition, since: int, last: int, wait_s: float
) -> Iterator[pa.RecordBatch]:
    """The records of a partition from an offset to before another, as ``READ_AGAIN``.

    Without those that the client can't read, though Kafka's own can: see ``_readable_from``.
    """
    consumer.assign([part])
    wait_ms = int(wait_s * 1000)
    since = max(since, consumer.beginning_offsets([part], timeout_ms=wait_ms)[part])
    last = min(last, consumer.end_offsets([part], timeout_ms=wait_ms)[part])
    consumer.seek(part, since)
    deadline = time.monotonic() + wait_s
    while consumer.position(part) < last:
        # A fetch has at most 1 MB of a partition, or one record.
        try:
            polled = consumer.poll(timeout_ms=100, max_records=1000).get(part, [])
        except CorruptRecordError:
            bad = consumer.position(part)
            consumer.seek(part, _readable_from(consumer, part, bad, last, wait_s))
            deadline = time.monotonic() + wait_s
            continue
        rows = [record for record in polled if record.offset < last]
        if rows:
            yield _read_again(rows)
            deadline = time.monotonic() + wait_s
        elif time.monotonic() > deadline:
            raise KafkaTimeoutError(f"no more from {part.topic}/{part.partition}@{since}")


def _readable_from(
    consumer: KafkaConsumer, part: TopicPartition, bad: int, last: int, wait_s: float
) -> int:
    """The first offset behind a record that can't be read from which others can; at most ``last``.

    A batch is read from its beginning, so the rest of it is lost, too: for example behind a record
    whose header has a name that is not UTF-8. Where the batch ends is found by trying.
    """
    good = bad + 1
    while good < last and not _can_read(consumer, part, good, wait_s):
        bad, good = good, min(good + 2 * (good - bad), last)
    while good - bad > 1:
        middle = (bad + good) // 2
        if _can_read(consumer, part, middle, wait_s):
            good = middle
        else:
            bad = middle
    return good


def _can_read(consumer: KafkaConsumer, part: TopicPartition, offset: int, wait_s: float) -> bool:
    consumer.seek(part, offset)
    deadline = time.monotonic() + wait_s
    try:
        while not consumer.poll(timeout_ms=100, max_records=1):
            if consumer.position(part) != offset:  # a batch without records
                break
            if time.monotonic() > deadline:
                raise KafkaTimeoutError(f"no more from {part.topic}/{part.partition}@{offset}")
    except CorruptRecordError:
        return False
    return True


def _read_again(records: Sequence[Any]) -> pa.RecordBatch:
    return pa.record_batch(
        [
            [record.value or b"" for record in records],
            [record.timestamp for record in records],
            [position_of(record) for record in records],
            [record.key for record in records],
            [record.topic for record in records],
        ],
        schema=READ_AGAIN,
    )


def position_of(record: Any) -> str:
    """A record's position, in this transport's notation."""
    return f"{record.topic}/{record.partition}@{record.offset}"
