"""Wrapper of kafka-python: one producer, and errors that name the cluster and the reason."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from quotaplane.errors import ConfigError, TransportError
from quotaplane.settings import KafkaTransport
from quotaplane.transport.kafka_options import client_options

try:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError
except ImportError:
    raise ConfigError(
        "transport.kind: kafka needs kafka-python; install it with `pip install quotaplane[kafka]`"
    ) from None

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
                why = type(future.exception).__name__
                raise TransportError(
                    f"Kafka at {self._settings.bootstrap_servers}: topic {topic!r} did not accept "
                    f"{len(value)} bytes for {key!r}: {why}"
                )

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
