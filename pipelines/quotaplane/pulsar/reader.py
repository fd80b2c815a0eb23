"""One topic partition, read from a position on.

Traps that are told apart here (each with a test): a reader may begin at the start of a batch in
whose middle it was to go on; what was published in chunks has the id of its last one, and another
message's may lie between them; a topic may have been emptied by retention, or made anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pulsar

from quotaplane.errors import TransportError
from quotaplane.pulsar.client import as_transport_error
from quotaplane.pulsar.options import Options
from quotaplane.pulsar.position import EARLIEST, Id, Received, time_of
from quotaplane.pulsar.topics import last_entry

_BACK_ENTRIES: Final = 32
"""A reader begins so far before its position: what has its first chunk there comes whole."""
_DELIVERY_MS: Final = 5000
"""A message that is there is delivered by then, or the next micro-batch tries again."""
_ANSWER_S: Final = 5.0
_LIVE_QUEUE: Final = 10_000
"""What is kept of a non-persistent topic between two micro-batches: brokers drop what is more."""
_PIECE: Final = 10_000
_PIECE_BYTES: Final = 16 * 1024 * 1024


class Row(NamedTuple):
    """A message; columns as ``rows.SCHEMA`` has them."""

    key: str | None
    value: bytes | None
    topic: str
    message_id: str
    publish_time_ms: int
    event_time_ms: int | None
    properties: dict[str, str]


def _row(message: pulsar.Message, topic: str, message_id: str) -> Row:
    return Row(
        message.partition_key() or None,
        None if message.has_null_value() else message.data(),
        topic,
        message_id,
        message.publish_timestamp(),
        message.event_timestamp() or None,
        message.properties(),
    )


def _id(message: pulsar.Message) -> Id:
    found = message.message_id()
    return Id(found.ledger_id(), found.entry_id(), found.batch_index())


class TopicReader:
    """A persistent topic partition; ``position`` moves with what is taken.

    Errors of pulsar-client come as they are: the caller knows whether they may pass.
    """

    def __init__(
        self,
        client: pulsar.Client,
        options: Options,
        topic: str,
        start: str,
        lost: Callable[[str, str], None],
    ) -> None:
        self.topic = topic
        self.position = start
        self._client = client
        self._options = options
        self._lost = lost
        self._asked: _Question | None = None
        self._held: pulsar.Message | None = None
        self._last = Id(-1, -1, -1)
        self._since_ms = time_of(start)
        if start == EARLIEST:
            self._reader = self._open(pulsar.MessageId.earliest)
        elif self._since_ms is not None:
            self._reader = self._open(pulsar.MessageId.earliest)
            self._reader.seek(self._since_ms)
        else:
            self._last = Id.parse(start)
            self._reader = self._open_after(self._last)

    def ask(self) -> None:
        """Begin to ask whether there is anything: so several readers ask at once."""
        if self._asked is None:
            self._asked = _Question(self._reader)

    def take(self, most: int, most_bytes: int, until: Id | None = None) -> list[Row]:
        """Messages that are there now; none after ``until``."""
        rows: list[Row] = []
        size = 0
        while len(rows) < most and size < most_bytes:
            message = self._next()
            if message is None:
                break
            found = _id(message)
            if self._since_ms is not None:
                # What was on its way before the reader went to this time.
                if message.publish_timestamp() < self._since_ms:
                    continue
                self._since_ms = None
            if found.ledger == self._last.ledger and found <= self._last:
                continue
            if found.ledger < self._last.ledger:
                self._lost(self.topic, self.position)
            if until is not None and found > until:
                self._held = message
                break
            self._last, self.position = found, str(found)
            row = _row(message, self.topic, self.position)
            rows.append(row)
            size += len(row.value or b"")
        return rows

    def close(self) -> None:
        """Let go of the reader."""
        self._reader.close()

    def _open(self, start: Any) -> pulsar.Reader:
        return self._client.create_reader(
            self.topic,
            start,
            receiver_queue_size=self._options.receiver_queue_size,
            reader_name="quotaplane",
            start_message_id_inclusive=True,
        )

    def _open_after(self, last: Id) -> pulsar.Reader:
        """A reader that goes on after ``last``, once it is known whether that is still there.

        Ledgers are deleted as a whole: while there is something in the last message's, nothing that
        came after it is gone.
        """
        begin = pulsar.MessageId(-1, last.ledger, max(0, last.entry - _BACK_ENTRIES), -1)
        reader = self._open(begin)
        if reader.has_message_available():
            first = reader.read_next(_DELIVERY_MS)
            if _id(first).ledger != last.ledger:
                self._lost(self.topic, self.position)
                self._last = Id(-1, -1, -1)
            self._held = first
            return reader
        anew = self._open(pulsar.MessageId.earliest)
        if anew.has_message_available():
            # Older ones are there, so retention did not delete ours.
            self._lost(self.topic, self.position)
            self._last = Id(-1, -1, -1)
            reader.close()
            return anew
        anew.close()
        end = last_entry(self._options, self.topic)
        if end is not None and (end.ledger, end.entry) != (last.ledger, last.entry):
            self._lost(self.topic, self.position)
            self._last = Id(-1, -1, -1)
        return reader

    def _next(self) -> pulsar.Message | None:
        if self._held is not None:
            message, self._held = self._held, None
            return message
        try:
            message = self._reader.read_next(0)
            self._asked = None  # maybe about this message
            return message
        except pulsar.Timeout:
            pass
        question, self._asked = self._asked or _Question(self._reader), None
        if not question.answer():
            return None
        try:
            return self._reader.read_next(_DELIVERY_MS)
        except pulsar.Timeout:
            return None


class _Question:
    """Is there a message? Asked without waiting for the answer."""

    def __init__(self, reader: pulsar.Reader) -> None:
        self._done = threading.Event()
        self._result: Any = None
        self._is_there = False
        reader._reader.has_message_available_async(self._keep)

    def _keep(self, result: Any, is_there: bool) -> None:
        self._result, self._is_there = result, is_there
        self._done.set()

    def answer(self) -> bool:
        if not self._done.wait(_ANSWER_S):
            raise pulsar.Timeout
        if self._result != pulsar.Result.Ok:
            raise pulsar.exceptions.NotConnected
        return self._is_there


class LiveReader:
    """A non-persistent topic partition: what arrives while this is open; ids there tell nothing."""

    def __init__(self, client: pulsar.Client, topic: str, start: str) -> None:
        self.topic = topic
        self.position = start
        self._received = Received.parse(start)
        self._reader = client.create_reader(
            topic,
            pulsar.MessageId.latest,
            receiver_queue_size=_LIVE_QUEUE,
            reader_name="quotaplane",
        )

    def ask(self) -> None:
        """Nothing is to be asked for: brokers push."""

    def take(self, most: int, most_bytes: int) -> list[Row]:
        """Messages that have arrived."""
        rows: list[Row] = []
        size = 0
        while len(rows) < most and size < most_bytes:
            try:
                message = self._reader.read_next(0)
            except pulsar.Timeout:
                if not self._reader.is_connected() and not rows:
                    raise pulsar.exceptions.NotConnected from None
                break
            self._received = self._received._replace(seen=self._received.seen + 1)
            self.position = str(self._received)
            row = _row(message, self.topic, self.position)
            rows.append(row)
            size += len(row.value or b"")
        return rows

    def close(self) -> None:
        """Let go of the reader."""
        self._reader.close()


def rows_until(reader: TopicReader, options: Options, last: Id) -> Iterator[list[Row]]:
    """All that is left up to the message ``last``, in pieces.

    Raises:
        TransportError: the cluster does not answer.
    """
    with as_transport_error(options, f"topic {reader.topic!r} can't be read"):
        while reader.position == EARLIEST or _before(reader.position, last):
            rows = reader.take(_PIECE, _PIECE_BYTES, until=last)
            if not rows:
                reader._lost(reader.topic, reader.position)
                return
            yield rows


def _before(position: str, last: Id) -> bool:
    return time_of(position) is not None or Id.parse(position) < last


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
            return str(_id(reader.read_next(1000)))
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
