"""Converts messages of pulsar-client to our rows."""

from __future__ import annotations

from typing import Final, NamedTuple

import pulsar

from quotaplane.pulsar.position import Id
from quotaplane.texts import LATEST_MS

_ROW_BYTES: Final = 300
"""Approximate size of a message apart from its value, key and properties."""


class Row(NamedTuple):
    """A message, with the columns of ``rows.SCHEMA``."""

    key: str | None
    value: bytes | None
    topic: str
    message_id: str
    publish_time_ms: int
    event_time_ms: int | None
    properties: dict[str, str]

    @property
    def size_bytes(self) -> int:
        """Approximate size in memory."""
        properties = sum(len(name) + len(value) for name, value in self.properties.items())
        return len(self.value or b"") + len(self.key or "") + properties + _ROW_BYTES


def row_of(message: pulsar.Message, topic: str, message_id: str) -> Row:
    """The row of a message; null replaces values that Spark can't represent."""
    # One such message must not stop the query for ever.
    try:
        key = message.partition_key() or None
    except UnicodeDecodeError:
        key = None
    try:
        properties = message.properties()
    except UnicodeDecodeError:
        properties = {}
    event_time_ms = message.event_timestamp()
    return Row(
        key,
        None if message.has_null_value() else message.data(),
        topic,
        message_id,
        min(message.publish_timestamp(), LATEST_MS),
        event_time_ms if 0 < event_time_ms <= LATEST_MS else None,
        properties,
    )


def id_of(message: pulsar.Message) -> Id:
    """The id of a message."""
    message_id = message.message_id()
    return Id(message_id.ledger_id(), message_id.entry_id(), message_id.batch_index())
