"""All topic partitions of a query, followed while it runs: by one client, on the driver."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from typing import Final

import pulsar
import pyarrow as pa

from quotaplane.errors import TransportError
from quotaplane.pulsar.client import (
    PASSING,
    as_transport_error,
    close_quietly,
    open_client,
    unreachable,
)
from quotaplane.pulsar.ends import last_position, rows_until
from quotaplane.pulsar.options import Options
from quotaplane.pulsar.position import (
    EARLIEST,
    Id,
    Offset,
    Received,
    as_offset,
    from_time,
    is_live,
    ranges,
)
from quotaplane.pulsar.reader import LiveReader, Row, TopicReader
from quotaplane.pulsar.rows import batches
from quotaplane.pulsar.topics import must_be_there, topic_partitions

_PATIENCE_S: Final = 120.0
"""So long a topic partition may be out of reach: its broker restarts, or it moves to another."""

_OPENED_AT_ONCE: Final = 8

_log = logging.getLogger(__name__)


def loss_policy(options: Options) -> Callable[[str, str], None]:
    """What is done when messages behind a position may be gone: stop, or tell."""

    def lost(topic: str, position: str) -> None:
        what = (
            f"topic {topic!r}: messages after {position} may be gone (deleted by retention, or "
            "with a topic that was made anew)"
        )
        if options.fail_on_data_loss:
            raise TransportError(f"{what}; set fail_on_data_loss to false to go on without them")
        _log.warning("%s; going on with what is there", what)

    return lost


class Follower:
    """Reads what is there, again and again; not for use by several threads."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._client = open_client(options)
        self._readers: dict[str, TopicReader | LiveReader] = {}
        self._topics: list[str] = []
        self._found_s = float("-inf")
        self._opening: dict[str, Future[TopicReader | LiveReader]] = {}
        self._pool = ThreadPoolExecutor(_OPENED_AT_ONCE)
        self._silent_s: dict[str, float] = {}
        self._first = 0

    def begin(self) -> Offset:
        """Where a query without a checkpoint begins.

        Raises:
            TransportError: the cluster does not answer or refuses, or a topic does not exist.
        """
        starting = self._options.starting or "latest"
        positions = {}
        for topic in self._discover(check=True):
            with as_transport_error(self._options, f"topic {topic!r}"):
                if is_live(topic):
                    positions[topic] = str(Received(time.time_ns() // 1_000_000, 0))
                    self._readers[topic] = LiveReader(self._client, topic, positions[topic])
                elif starting == "latest":
                    positions[topic] = last_position(self._client, self._options, topic)
                else:
                    since = starting == EARLIEST
                    positions[topic] = EARLIEST if since else from_time(int(starting))
        return as_offset(positions)

    def read(self, start: Offset) -> tuple[list[Row], Offset]:
        """What is there after ``start``, as much of it as one micro-batch takes; and its end.

        A topic partition whose broker does not answer is left for the next time, for two minutes.

        Raises:
            TransportError: longer than that, the cluster refuses, or messages may be gone.
        """
        topics = self._discover(check=False)
        # A topic that is no longer there is forgotten: made anew, it is read from its beginning.
        positions = {topic: start[topic] for topic in topics if topic in start}
        for topic in topics:
            self._prepare(topic, positions.get(topic))
        readers = []
        for topic in topics:
            with self._maybe_silent(topic):
                readers.append(self._opened(topic))
        for reader in readers:
            with self._maybe_silent(reader.topic):
                reader.ask()
        rows = self._share(readers)
        positions |= {reader.topic: reader.position for reader in readers}
        return rows, as_offset(positions)

    def close(self) -> None:
        """Let go of the connections."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        close_quietly(self._client)

    def _discover(self, *, check: bool) -> list[str]:
        now_s = time.monotonic()
        if now_s - self._found_s >= self._options.discovery_interval_s:
            if check:
                for topic in self._options.topics:
                    if not is_live(topic):
                        must_be_there(self._options, topic)
            try:
                self._topics = topic_partitions(self._client, self._options)
            except TransportError:
                if not self._topics:
                    raise
            self._found_s = now_s
            for gone in self._readers.keys() - set(self._topics):
                self._forget(gone)
        return self._topics

    def _prepare(self, topic: str, start: str | None) -> None:
        """Begin to open a reader, if there is none at this place: several at once."""
        if start is None:
            start = str(Received(time.time_ns() // 1_000_000, 0)) if is_live(topic) else EARLIEST
        reader = self._readers.get(topic)
        if reader is not None and reader.position != start:
            self._forget(topic)
        if topic not in self._readers and topic not in self._opening:
            self._opening[topic] = self._pool.submit(self._open, topic, start)

    def _open(self, topic: str, start: str) -> TopicReader | LiveReader:
        if is_live(topic):
            return LiveReader(self._client, topic, start)
        lost = loss_policy(self._options)
        return TopicReader(self._client, self._options, topic, start, lost)

    def _opened(self, topic: str) -> TopicReader | LiveReader:
        opening = self._opening.get(topic)
        if opening is not None:
            # Who was silent is not waited for: the others go on.
            if topic in self._silent_s and not opening.done():
                raise pulsar.Timeout
            del self._opening[topic]
            self._readers[topic] = opening.result()
        return self._readers[topic]

    def _share(self, readers: list[TopicReader | LiveReader]) -> list[Row]:
        """Rows of all readers in turn, until the batch is full or nothing is left."""
        most = self._options.max_messages_per_trigger or 2**31
        most_bytes = self._options.max_bytes_per_trigger
        # Who comes first changes, so that nobody waits for ever where not all fits.
        self._first = (self._first + 1) % max(len(readers), 1)
        left = readers[self._first :] + readers[: self._first]
        rows: list[Row] = []
        while left and most > 0 and most_bytes > 0:
            share, share_bytes = max(1, most // len(left)), max(1, most_bytes // len(left))
            going_on = []
            for reader in left:
                if most <= 0 or most_bytes <= 0:
                    break
                taken: list[Row] = []
                with self._maybe_silent(reader.topic):
                    taken = reader.take(min(share, most), min(share_bytes, most_bytes))
                if taken:
                    going_on.append(reader)
                rows += taken
                most -= len(taken)
                most_bytes -= sum(len(row.value or b"") for row in taken)
            left = going_on
        return rows

    def _maybe_silent(self, topic: str) -> _Patience:
        return _Patience(self, topic)

    def _forget(self, topic: str) -> None:
        """Let go of a reader; one that lost its broker comes back sooner when it is opened anew."""
        reader = self._readers.pop(topic, None)
        if reader is not None:
            with suppress(pulsar.PulsarException):
                reader.close()


class _Patience:
    """Lets what may pass pass, until it has lasted too long."""

    def __init__(self, follower: Follower, topic: str) -> None:
        self._follower = follower
        self._topic = topic

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        silent_s, options = self._follower._silent_s, self._follower._options
        if error is None:
            silent_s.pop(self._topic, None)
            return False
        if isinstance(error, PASSING):
            since_s = silent_s.setdefault(self._topic, time.monotonic())
            self._follower._forget(self._topic)
            if time.monotonic() - since_s < _PATIENCE_S:
                return True
            raise TransportError(f"{unreachable(options)}: topic {self._topic!r}") from None
        if isinstance(error, pulsar.PulsarException):
            with as_transport_error(options, f"topic {self._topic!r} can't be read"):
                raise error
        return False


def read_between(options: Options, start: Offset, end: Offset) -> Iterator[pa.RecordBatch]:
    """The same rows that ``Follower.read`` gave between two offsets, but for live topics'.

    Raises:
        TransportError: the cluster does not answer, or messages may be gone.
    """
    return _read(options, ranges(start, end))


def read_range(options: Options, topic: str, start: str, last: Id) -> Iterator[pa.RecordBatch]:
    """What one topic partition holds after ``start`` and up to ``last``."""
    return _read(options, [(topic, start, last)])


def _read(options: Options, parts: list[tuple[str, str, Id]]) -> Iterator[pa.RecordBatch]:
    client = open_client(options)
    lost = loss_policy(options)
    try:
        for topic, start, last in parts:
            with as_transport_error(options, f"topic {topic!r} can't be read"):
                reader = TopicReader(client, options, topic, start, lost)
            yield from batches(chain.from_iterable(rows_until(reader, options, last)))
            reader.close()
    finally:
        close_quietly(client)
