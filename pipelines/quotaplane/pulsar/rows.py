"""Converts messages to Arrow record batches; the columns of the Data Source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from quotaplane.pulsar.message import Row

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
