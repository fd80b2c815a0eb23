"""Converts messages of pulsar-client to our rows, and rows to the Data Source's columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import pulsar
import pyarrow as pa

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


DDL: Final = (
    "key string, value binary, topic string, message_id string, publish_time timestamp, "
    "event_time timestamp, properties map<string,string>"
)

_TIME: Final = pa.timestamp("us", tz="UTC")
SCHEMA: Final = pa.schema(
    [
        ("key", pa.string()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("message_id", pa.string()),
        ("publish_time", _TIME),
        ("event_time", _TIME),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
)

_ROWS: Final = 10_000
_BYTES: Final = 16 * 1024 * 1024


def batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Record batches of at most 10,000 rows and 16 MB, not counting the last row."""
    piece: list[Row] = []
    size = 0
    for row in rows:
        piece.append(row)
        size += row.size_bytes
        if len(piece) >= _ROWS or size >= _BYTES:
            yield _batch(piece)
            piece, size = [], 0
    if piece:
        yield _batch(piece)


def _batch(rows: list[Row]) -> pa.RecordBatch:
    keys, values, topics, ids, published, events, properties = zip(*rows, strict=True)
    millis = pa.timestamp("ms", tz="UTC")
    columns = [
        pa.array(keys, pa.string()),
        pa.array(values, pa.binary()),
        pa.array(topics, pa.string()),
        pa.array(ids, pa.string()),
        pa.array(published, millis).cast(_TIME),
        pa.array(events, millis).cast(_TIME),
        pa.array(
            [list(row_properties.items()) for row_properties in properties],
            SCHEMA.field("properties").type,
        ),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
