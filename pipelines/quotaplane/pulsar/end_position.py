"""Where a topic partition ends, and all that it holds up to there."""

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
    """All that is left up to the message ``last``, in pieces; errors of pulsar-client as they are.

    Who begins at a time may find nothing since then.
    """
    while is_before(reader.position, last):
        rows = reader.take(_PIECE, _PIECE_BYTES, until=last)
        if not rows:
            return
        yield rows


def is_before(position: str, last: Id) -> bool:
    """Is there something between the two, as far as the position tells?"""
    return position == EARLIEST or time_of(position) is not None or Id.parse(position) < last


def last_position(client: pulsar.Client, options: Options, topic: str) -> str:
    """The position after everything that is there now.

    Raises:
        TransportError: the last message is not delivered.
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
    # Of a message in chunks, the last chunk alone is nothing: find the whole message.
    for back_ms in _BACK_MS:
        since = f"@{time.time_ns() // 1_000_000 - back_ms}" if back_ms else EARLIEST
        whole = TopicReader(client, options, topic, since, lambda *_: None)
        while whole.take(_PIECE, _PIECE_BYTES):
            pass
        whole.close()
        if time_of(whole.position) is None and whole.position != EARLIEST:
            return whole.position
    raise TransportError(
        f"Pulsar at {options.service_url}: topic {topic!r}: its last message is not delivered"
    )


_BACK_MS: Final = (60_000, 3_600_000, 0)
"""How long ago the first chunk may have been published; 0: read it all."""
