"""One topic partition, read from a position on.

Traps that are told apart here (each with a test): a reader may begin at the start of a batch in
whose middle it was to go on; what was published in chunks has the id of its last one, and another
message's may lie between them; a topic may have been emptied by retention, or made anew.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import pulsar

from quotaplane.pulsar.message import Row, id_of, row_of
from quotaplane.pulsar.options import Options
from quotaplane.pulsar.position import EARLIEST, Id, Received, time_of
from quotaplane.pulsar.topics import last_entry

_BACK_ENTRIES: Final = 32
"""A reader begins so far before its position: what has its first chunk there comes whole."""
_DELIVERY_MS: Final = 5000
"""A message that is there is delivered by then, or the next micro-batch tries again."""
_QUIET_S: Final = 30.0
"""So long a reader is not waited for again whose message was not delivered."""
_ANSWER_S: Final = 5.0
_LIVE_QUEUE: Final = 10_000
"""What is kept of a non-persistent topic between two micro-batches: brokers drop what is more."""


_log = logging.getLogger(__name__)


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
        """Begin to ask whether there is anything: so several readers ask at once."""
        if self._asked is None and time.monotonic() >= self._quiet_until_s:
            self._asked = _Question(self._reader)

    def take(self, most: int, most_bytes: int, until: Id | None = None) -> list[Row]:
        """Messages that are there now; none after ``until``.

        Up to there, something must come: ``pulsar.Timeout`` if it is there and not delivered.
        """
        rows: list[Row] = []
        size = 0
        while len(rows) < most and size < most_bytes:
            try:
                message = self._next(wait=not rows, must_come=until is not None)
            except pulsar.PulsarException:
                # The position is past what was taken: it goes out, the error comes again.
                if rows:
                    break
                raise
            if message is None:
                break
            found = id_of(message)
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
            row = row_of(message, self.topic, self.position)
            rows.append(row)
            size += row.size_bytes
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
            if id_of(first).ledger != last.ledger:
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

    def _next(self, *, wait: bool, must_come: bool) -> pulsar.Message | None:
        if self._held is not None:
            message, self._held = self._held, None
            return message
        try:
            message = self._reader.read_next(0)
            self._asked = None  # maybe about this message
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
                "topic %r: a message after %s is there and is not delivered (chunks of one that "
                "was never finished?); looking again every %g s",
                *(self.topic, self.position, _QUIET_S),
            )
        self._quiet_until_s = time.monotonic() + _QUIET_S
        return None


class _Question:
    """Is there a message? Asked without waiting for the answer."""

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
            except pulsar.PulsarException:
                if rows:
                    break
                raise
            self._received = self._received._replace(seen=self._received.seen + 1)
            self.position = str(self._received)
            row = row_of(message, self.topic, self.position)
            rows.append(row)
            size += row.size_bytes
        return rows

    def close(self) -> None:
        """Let go of the reader."""
        self._reader.close()
