"""Reads one topic partition from a position, or up to one; finds its end.

Handles these cases (each has a test): a reader may begin at the start of a batch although the
position is in its middle; a chunked message has the id of its last chunk, and other messages may
lie between its chunks; a topic may have been emptied by retention, or created again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pulsar

from quotaplane.errors import TransportError
from quotaplane.pulsar.message import Row, id_of, row_of
from quotaplane.pulsar.options import Options
from quotaplane.pulsar.position import EARLIEST, Id, time_of
from quotaplane.pulsar.topics import last_entry

_BACK_ENTRIES: Final = 32
"""A reader begins this many entries before its position, so that chunked messages arrive whole."""
_DELIVERY_MS: Final = 5000
"""Time for the broker to deliver an existing message; otherwise the next micro-batch tries
again."""
_QUIET_S: Final = 30.0
"""Pause before a reader waits again for a message that was not delivered."""
_ANSWER_S: Final = 5.0

_log = logging.getLogger(__name__)


class TopicReader:
    """Reads a persistent topic partition; ``position`` advances with the messages taken.

    Raises pulsar-client's errors unchanged, because the caller knows which ones are temporary.
    ``compacted``: as far as the topic was compacted, only the newest message of each key.
    """

    def __init__(
        self,
        client: pulsar.Client,
        options: Options,
        topic: str,
        start: str,
        lost: Callable[[str, str], None],
        *,
        compacted: bool = False,
    ) -> None:
        self.topic = topic
        self.position = start
        self._client = client
        self._options = options
        self._lost = lost
        self._compacted = compacted
        self._asked: _Question | None = None
        self._next_message: pulsar.Message | None = None
        self._quiet_until_s = 0.0
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
        """Start to ask the broker for new messages, so that several readers can ask at once."""
        if self._asked is None and time.monotonic() >= self._quiet_until_s:
            self._asked = _Question(self._reader)

    def take(self, most: int, most_bytes: int, until: Id | None = None) -> list[Row]:
        """The messages available now, up to ``until``.

        With ``until``, ``pulsar.Timeout`` is raised if an existing message is not delivered.
        """
        rows: list[Row] = []
        size = 0
        while len(rows) < most and size < most_bytes:
            try:
                message = self._next(wait=not rows, must_come=until is not None)
            except pulsar.PulsarException:
                # Return what was taken, as the position is past it; the error will come again.
                if rows:
                    break
                raise
            if message is None:
                break
            message_id = id_of(message)
            if self._since_ms is not None:
                # Sent before the reader's seek took effect.
                if message.publish_timestamp() < self._since_ms:
                    continue
                self._since_ms = None
            if message_id.ledger == self._last.ledger and message_id <= self._last:
                continue
            if message_id.ledger < self._last.ledger:
                self._lost(self.topic, self.position)
            if until is not None and message_id > until:
                self._next_message = message
                break
            self._last, self.position = message_id, str(message_id)
            row = row_of(message, self.topic, self.position)
            rows.append(row)
            size += row.size_bytes
        return rows

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    def _open(self, start: Any) -> pulsar.Reader:
        return self._client.create_reader(
            self.topic,
            start,
            receiver_queue_size=self._options.receiver_queue_size,
            reader_name="quotaplane",
            start_message_id_inclusive=True,
            is_read_compacted=self._compacted,
        )

    def _open_after(self, last: Id) -> pulsar.Reader:
        """A reader positioned after ``last``; reports lost messages.

        Ledgers are deleted as a whole: as long as the ledger of ``last`` has an entry, no message
        after it was deleted.
        """
        begin = pulsar.MessageId(-1, last.ledger, max(0, last.entry - _BACK_ENTRIES), -1)
        reader = self._open(begin)
        if reader.has_message_available():
            first = reader.read_next(_DELIVERY_MS)
            if id_of(first).ledger != last.ledger:
                self._lost(self.topic, self.position)
                self._last = Id(-1, -1, -1)
            self._next_message = first
            return reader
        from_earliest = self._open(pulsar.MessageId.earliest)
        if from_earliest.has_message_available():
            # Older messages exist, so retention did not delete ours.
            self._lost(self.topic, self.position)
            self._last = Id(-1, -1, -1)
            reader.close()
            return from_earliest
        from_earliest.close()
        end = last_entry(self._options, self.topic)
        if end is not None and (end.ledger, end.entry) != (last.ledger, last.entry):
            self._lost(self.topic, self.position)
            self._last = Id(-1, -1, -1)
        return reader

    def _next(self, *, wait: bool, must_come: bool) -> pulsar.Message | None:
        if self._next_message is not None:
            message, self._next_message = self._next_message, None
            return message
        try:
            message = self._reader.read_next(0)
            self._asked = None  # the question may have been about this message
            return message
        except pulsar.Timeout:
            pass
        self.ask()
        if not wait or self._asked is None:
            return None
        question, self._asked = self._asked, None
        if not question.answer():
            return None
        try:
            return self._reader.read_next(_DELIVERY_MS)
        except pulsar.Timeout:
            if must_come:
                raise
        if not self._quiet_until_s:
            _log.warning(
                "topic %r: a message after %s exists but is not delivered (chunks of an unfinished "
                "message?); trying again every %g s",
                *(self.topic, self.position, _QUIET_S),
            )
        self._quiet_until_s = time.monotonic() + _QUIET_S
        return None


class _Question:
    """Asks whether there is a message, without blocking."""

    def __init__(self, reader: pulsar.Reader) -> None:
        self._done = threading.Event()
        self._result: Any = None
        self._is_there = False
        self._until_s = time.monotonic() + _ANSWER_S
        reader._reader.has_message_available_async(self._keep)

    def _keep(self, result: Any, is_there: bool) -> None:
        self._result, self._is_there = result, is_there
        self._done.set()

    def answer(self) -> bool:
        if not self._done.wait(max(0.0, self._until_s - time.monotonic())):
            raise pulsar.Timeout
        if self._result != pulsar.Result.Ok:
            raise pulsar.exceptions.NotConnected
        return self._is_there


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
