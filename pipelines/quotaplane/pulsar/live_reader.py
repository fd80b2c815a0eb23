"""Reads a non-persistent topic partition: keeps what arrives between two micro-batches."""

from __future__ import annotations

import atexit
import logging
import threading
from collections import deque
from typing import Final

import pulsar

from quotaplane.pulsar.message import Row, row_of
from quotaplane.pulsar.position import Received

_WAITING_MESSAGES: Final = 10_000
_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Most bytes kept between two micro-batches, per topic partition."""
_CLIENT_MESSAGES: Final = 1000
"""Messages in the client's own queue, which knows no bound in bytes; it is emptied at once."""
_POLL_MS: Final = 200
"""How soon the thread notices that it should end."""
_STOP_WITHIN_S: Final = 2.0

_log = logging.getLogger(__name__)


class LiveBuffer:
    """Messages that wait for a micro-batch; the oldest go if there are too many. Thread-safe."""

    def __init__(self, most: int = _WAITING_MESSAGES, most_bytes: int = _WAITING_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._rows: deque[Row] = deque()
        self._size_bytes = 0
        self._dropped = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: Row) -> None:
        """Add the newest message."""
        with self._lock:
            self._rows.append(row)
            self._size_bytes += row.size_bytes
            while len(self._rows) > self._most or (
                self._size_bytes > self._most_bytes and len(self._rows) > 1
            ):
                self._size_bytes -= self._rows.popleft().size_bytes
                self._dropped += 1

    def take(self, most: int, most_bytes: int) -> list[Row]:
        """Remove the oldest messages, up to a number, or with the one that reaches a size."""
        rows: list[Row] = []
        size_bytes = 0
        with self._lock:
            while self._rows and len(rows) < most and size_bytes < most_bytes:
                rows.append(self._rows.popleft())
                size_bytes += rows[-1].size_bytes
            self._size_bytes -= size_bytes
        return rows

    def take_dropped(self) -> int:
        """The number of messages that were dropped since the last call."""
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        return dropped


class LiveReader:
    """Reads a non-persistent topic partition while open; message ids have no meaning there.

    A thread empties the client's queue, so that what waits has a bound in bytes.
    """

    def __init__(self, client: pulsar.Client, topic: str, start: str) -> None:
        self.topic = topic
        self.position = start
        self._received = Received.parse(start)
        self._reader = client.create_reader(
            topic,
            pulsar.MessageId.latest,
            receiver_queue_size=_CLIENT_MESSAGES,
            reader_name="quotaplane",
        )
        self.waiting = LiveBuffer()
        self._failure: Exception | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._receive, name=f"read {topic}", daemon=True)
        self._thread.start()
        # A thread in the client's code must not see Python end.
        atexit.register(self._stop)

    def ask(self) -> None:
        """Nothing to do: brokers push messages."""

    def take(self, most: int, most_bytes: int) -> list[Row]:
        """The messages that have arrived; raises pulsar-client's errors unchanged."""
        failure = self._failure  # before the messages: all of them arrived before it
        arrived = self.waiting.take(most, most_bytes)
        dropped = self.waiting.take_dropped()
        if dropped:
            _log.warning(
                "topic %r: %d messages were dropped: at most %d messages and %d MB wait for the "
                "next micro-batch",
                *(self.topic, dropped, _WAITING_MESSAGES, _WAITING_BYTES >> 20),
            )
        if not arrived:
            if failure is not None:
                raise failure
            if not self._reader.is_connected():
                raise pulsar.exceptions.NotConnected
        rows = []
        for row in arrived:
            self._received = self._received._replace(seen=self._received.seen + 1)
            self.position = str(self._received)
            rows.append(row._replace(message_id=self.position))
        return rows

    def close(self) -> None:
        """Close the reader."""
        self._stop()
        atexit.unregister(self._stop)
        self._reader.close()

    def _stop(self) -> None:
        self._closing.set()
        self._thread.join(_STOP_WITHIN_S)

    def _receive(self) -> None:
        while not self._closing.is_set():
            try:
                message = self._reader.read_next(_POLL_MS)
            except pulsar.Timeout:
                continue
            except pulsar.PulsarException as error:
                self._failure = error
                return
            try:
                self.waiting.add(row_of(message, self.topic, ""))
            except Exception as error:  # a bug must end the query, not this thread unseen
                self._failure = error
                return
