"""Sends messages, by producers that are opened on first use, kept, and replaced after an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple

import pulsar

from quotaplane.errors import ConfigError, TransportError
from quotaplane.pulsar.client import as_transport_error, close_quietly, open_client, words
from quotaplane.pulsar.options import full_name
from quotaplane.settings import PulsarConnection

_BATCHED_BYTES: Final = 1024 * 1024
"""Larger messages are sent in chunks if the broker's limit requires it; batching excludes that."""
_PENDING: Final = 1000
_PIECE: Final = 10_000


class Outgoing(NamedTuple):
    """A message to send; without a value it is a tombstone."""

    topic: str
    key: str | None
    value: bytes | None
    event_time_ms: int | None = None
    properties: dict[str, str] | None = None


class PulsarOutbox:
    """Sends to any topics of one cluster; not thread-safe."""

    def __init__(self, place: PulsarConnection, client: pulsar.Client | None = None) -> None:
        self._place = place
        self._client = client
        self._producers: dict[tuple[str, bool], pulsar.Producer] = {}

    def send(self, messages: Sequence[Outgoing]) -> None:
        """Send and wait until the cluster has the messages; those of one key stay in order.

        Raises:
            TransportError: some were not accepted within ``publish_timeout_s``.
        """
        if not messages:
            return
        try:
            with as_transport_error(self._place, "messages were not accepted"):
                self._send(messages)
        except TransportError:
            self.close()
            raise

    def close(self) -> None:
        """Close the producers; nothing is queued, since ``send`` waits."""
        client, self._client = self._client, None
        self._producers.clear()
        if client is not None:
            close_quietly(client)

    def _send(self, messages: Sequence[Outgoing]) -> None:
        large = any(len(message.value or b"") > _BATCHED_BYTES for message in messages)
        refused: list[tuple[str, Outgoing]] = []
        used = set()
        for message in messages:
            # After one timeout, each further message would wait as long again.
            if refused:
                break
            producer = self._producer(message.topic, chunked=large)
            used.add(producer)

            def keep(result: Any, _: Any, message: Outgoing = message) -> None:
                if result != pulsar.Result.Ok:
                    refused.append((result.name, message))

            producer.send_async(
                message.value,
                keep,
                partition_key=message.key or None,
                event_timestamp=message.event_time_ms,
                properties=message.properties,
            )
        for producer in used:
            with suppress(pulsar.PulsarException):  # each message has its own result
                producer.flush()
        if refused:
            name, message = refused[0]
            raise TransportError(
                f"Pulsar at {self._place.service_url}: topic {message.topic!r} did not accept "
                f"{len(message.value or b'')} bytes for {message.key!r}: {words(name)}"
            )

    def _producer(self, topic: str, *, chunked: bool) -> pulsar.Producer:
        producer = self._producers.get((topic, chunked))
        if producer is None:
            if self._client is None:
                self._client = open_client(self._place)
            producer = self._client.create_producer(
                topic,
                send_timeout_millis=int(self._place.publish_timeout_s * 1000),
                compression_type=getattr(pulsar.CompressionType, _CODECS[self._place.compression]),
                max_pending_messages=_PENDING,
                block_if_queue_full=True,
                batching_enabled=not chunked,
                batching_max_publish_delay_ms=2,
                batching_max_allowed_size_in_bytes=_BATCHED_BYTES,
                chunking_enabled=chunked,
            )
            self._producers[topic, chunked] = producer
        return producer


_CODECS: Final = {
    "none": "NONE",
    "lz4": "LZ4",
    "zlib": "ZLib",
    "zstd": "ZSTD",
    "snappy": "SNAPPY",
}


_COLUMNS: Final = {
    "key": {"string"},
    "value": {"binary", "string"},
    "topic": {"string"},
    "event_time": {"timestamp"},
    "properties": {"map<string,string>"},
}
_READ_ONLY: Final = {"message_id", "publish_time"}
"""The cluster assigns these."""


def check_columns(columns: Mapping[str, str]) -> None:
    """Check the columns to write; ``columns`` are Spark's simple types by name.

    Raises:
        ConfigError: a column is missing, unknown or has another type.

    >>> check_columns({"value": "binary", "key": "string"})
    """
    if "value" not in columns:
        raise ConfigError('format("pulsar"): there is no column value to write')
    for name, kind in columns.items():
        if name in _READ_ONLY:
            continue
        if name not in _COLUMNS:
            wanted = ", ".join(_COLUMNS)
            raise ConfigError(f'format("pulsar"): column {name} is not one of {wanted}')
        if kind not in _COLUMNS[name]:
            wanted = " or ".join(sorted(_COLUMNS[name]))
            raise ConfigError(f'format("pulsar"): column {name} is {kind}, not {wanted}')


def write_rows(place: PulsarConnection, topics: Sequence[str], rows: Iterable[Any]) -> None:
    """Send a task's rows, with the column ``value`` and optional others: docs/operate/pulsar.md.

    Raises:
        ConfigError: a row has no topic and the options name none, or it can't become a message.
        TransportError: some were not accepted.
    """
    outbox = PulsarOutbox(place)
    messages = _outgoing(topics, rows)
    try:
        while piece := list(islice(messages, _PIECE)):
            outbox.send(piece)
    finally:
        outbox.close()


def _outgoing(topics: Sequence[str], rows: Iterable[Any]) -> Iterator[Outgoing]:
    for row in rows:
        named = row.asDict()
        topic = named.get("topic") or (topics[0] if topics else None)
        if topic is None:
            raise ConfigError('format("pulsar"): a row has no topic, and there is no option topic')
        value, event_time = named["value"], named.get("event_time")
        event_time_ms = None if event_time is None else round(event_time.timestamp() * 1000)
        if event_time_ms is not None and event_time_ms < 0:
            raise ConfigError(
                f'format("pulsar"): column event_time: {event_time} is before 1970, which Pulsar '
                "has no number for; leave it null"
            )
        properties = named.get("properties")
        for name, text in (properties or {}).items():
            if text is None:
                raise ConfigError(
                    f'format("pulsar"): column properties: {name!r} is null; Pulsar has only '
                    "texts: leave it out"
                )
        yield Outgoing(
            full_name(topic),
            named.get("key"),
            value.encode() if isinstance(value, str) else None if value is None else bytes(value),
            event_time_ms,
            properties,
        )
