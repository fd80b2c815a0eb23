"""Finds the end of a topic partition, and reads up to a known message."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pulsar

from quotaplane.errors import TransportError
from quotaplane.pulsar.message import Row, id_of
from quotaplane.pulsar.options import Options
from quotaplane.pulsar.position import EARLIEST, Id, time_of
from quotaplane.pulsar.reader import TopicReader

_PIECE: Final = 10_000
_PIECE_BYTES: Final = 16 * 1024 * 1024


def rows_until(reader: TopicReader, last: Id) -> Iterator[list[Row]]:
    """The messages up to ``last``, in pieces; raises pulsar-client's errors unchanged.

    A reader that started at a time may find no message since then.
    """
    while is_before(reader.position, last):
        rows = reader.take(_PIECE, _PIECE_BYTES, until=last)
        if not rows:
            return
        yield rows


def is_before(position: str, last: Id) -> bool:
    """May there be messages after ``position`` up to ``last``?"""
    return position == EARLIEST or time_of(position) is not None or Id.parse(position) < last


def last_position(client: pulsar.Client, options: Options, topic: str) -> str:
    """The position after the newest message.

    Raises:
        TransportError: the broker does not deliver the last message.
    """
    reader = client.create_reader(
        topic, pulsar.MessageId.latest, receiver_queue_size=1, start_message_id_inclusive=True
    )
    try:
        if not reader.has_message_available():
            return EARLIEST
        try:
            return str(id_of(reader.read_next(1000)))
        except pulsar.Timeout:
            pass
    finally:
        reader.close()
    # The last chunk of a chunked message can't be read alone: find the whole message.
    for back_ms in _BACK_MS:
        since = f"@{time.time_ns() // 1_000_000 - back_ms}" if back_ms else EARLIEST
        whole = TopicReader(client, options, topic, since, lambda *_: None)
        while whole.take(_PIECE, _PIECE_BYTES):
            pass
        whole.close()
        if time_of(whole.position) is None and whole.position != EARLIEST:
            return whole.position
    raise TransportError(
        f"Pulsar at {options.service_url}: topic {topic!r}: the broker does not deliver its last "
        "message"
    )


_BACK_MS: Final = (60_000, 3_600_000, 0)
"""How long ago the first chunk may have been published; 0: read the whole topic."""
