"""Reads all topic partitions of a running query, with one client on the driver."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import pulsar

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import LIST_OF_TOPICS
from quotaplane.errors import TransportError
from quotaplane.pulsar.client import close_quietly, open_client
from quotaplane.pulsar.live_reader import LiveReader
from quotaplane.pulsar.message import Row
from quotaplane.pulsar.options import Options
from quotaplane.pulsar.outages import Patience, loss_policy
from quotaplane.pulsar.position import (
    EARLIEST,
    LATEST,
    Offset,
    Received,
    as_offset,
    from_time,
)
from quotaplane.pulsar.reader import TopicReader, last_position
from quotaplane.pulsar.topics import must_be_there, topic_partitions
from quotaplane.settings.transports import is_live

_OPENED_AT_ONCE: Final = 8

_log = logging.getLogger(__name__)


class TopicPool:
    """Readers of a query's topic partitions; not thread-safe."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._client = open_client(options)
        self._readers: dict[str, TopicReader | LiveReader] = {}
        self._topics: list[str] = []
        self._listed = False
        self._conditions = Conditions(_log.warning)
        self._found_s = float("-inf")
        self._opening: dict[str, Future[TopicReader | LiveReader]] = {}
        self._pool = ThreadPoolExecutor(_OPENED_AT_ONCE)
        self._patience = Patience(options)
        self._first = 0

    def begin(self) -> Offset:
        """The offset where a query without a checkpoint starts; constant except for live topics.

        Raises:
            TransportError: the cluster does not answer or refuses, or a topic does not exist.
        """
        starting = self._options.starting or LATEST
        begin = starting if starting in (EARLIEST, LATEST) else from_time(int(starting))
        positions = {}
        for topic in self._discover(check=True):
            positions[topic] = _now() if is_live(topic) else begin
            if is_live(topic):
                with self._patience.with_topic(topic, self._forget):
                    self._readers[topic] = LiveReader(self._client, topic, positions[topic])
        return as_offset(positions)

    def read(self, start: Offset) -> tuple[list[Row], Offset]:
        """The messages after ``start``, up to the size of a micro-batch, and the end offset.

        A topic partition that starts at the end returns only that position. One whose broker does
        not answer is skipped, for up to two minutes.

        Raises:
            TransportError: it does not answer for longer, the cluster refuses, or messages may be
                deleted.
        """
        topics = self._discover(check=False)
        # A deleted topic is forgotten: if it is created again, it is read from its beginning.
        positions = {topic: start[topic] for topic in topics if topic in start}
        unresolved = {topic for topic, position in positions.items() if position == LATEST}
        for topic in unresolved:
            with self._patience.with_topic(topic, self._forget):
                positions[topic] = last_position(self._client, self._options, topic)
        followed = [topic for topic in topics if topic not in unresolved]
        for topic in followed:
            self._prepare(topic, positions.get(topic))
        readers = []
        for topic in followed:
            with self._patience.with_topic(topic, self._forget):
                readers.append(self._opened(topic))
        for reader in readers:
            with self._patience.with_topic(reader.topic, self._forget):
                reader.ask()
        rows = self._share(readers)
        positions |= {reader.topic: reader.position for reader in readers}
        return rows, as_offset(positions)

    def close(self) -> None:
        """Close the connections."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        close_quietly(self._client)

    def _discover(self, *, check: bool) -> list[str]:
        now_s = time.monotonic()
        due = now_s - self._found_s >= self._options.discovery_interval_s
        if not due and not self._patience.doubted:
            return self._topics
        if check:
            for topic in self._options.topics:
                if not is_live(topic):
                    must_be_there(self._options, topic)
        try:
            self._topics = topic_partitions(self._client, self._options)
            self._listed = True
            self._conditions.note(LIST_OF_TOPICS, "", None)
        except TransportError as error:
            if not self._topics:
                raise
            self._listed = False
            text = f"{error}; continuing with the known topics"
            self._conditions.note(LIST_OF_TOPICS, "", text)
        self._patience.doubted, self._found_s = False, now_s
        self._patience.keep_only(self._topics)
        for gone in (self._readers.keys() | self._opening.keys()) - set(self._topics):
            self._forget(gone)
        return self._topics

    def _prepare(self, topic: str, start: str | None) -> None:
        """Start to open a reader at ``start``, in the background, unless there is one."""
        if start is None:
            start = _now() if is_live(topic) else EARLIEST
        reader = self._readers.get(topic)
        if reader is not None and reader.position != start:
            self._forget(topic)
        if topic in self._readers or topic in self._opening:
            return
        # Opening a reader may create a deleted topic again, where brokers may create topics.
        by_pattern = self._options.topics_pattern is not None
        if by_pattern and self._patience.is_silent(topic) and not self._listed:
            return
        self._opening[topic] = self._pool.submit(self._open, topic, start)

    def _open(self, topic: str, start: str) -> TopicReader | LiveReader:
        if is_live(topic):
            return LiveReader(self._client, topic, start)
        lost = loss_policy(self._options)
        return TopicReader(self._client, self._options, topic, start, lost)

    def _opened(self, topic: str) -> TopicReader | LiveReader:
        if topic in self._readers:
            return self._readers[topic]
        opening = self._opening.get(topic)
        # Don't wait for an unavailable topic partition; the others continue.
        if opening is None or (self._patience.is_silent(topic) and not opening.done()):
            raise pulsar.Timeout
        del self._opening[topic]
        self._readers[topic] = opening.result()
        return self._readers[topic]

    def _share(self, readers: list[TopicReader | LiveReader]) -> list[Row]:
        """Rows of all readers in turn, until the batch is full or nothing is left."""
        most = self._options.max_messages_per_trigger or 2**31
        most_bytes = self._options.max_bytes_per_trigger
        # Rotate the first reader, so that none waits for ever if not all fits.
        self._first = (self._first + 1) % max(len(readers), 1)
        remaining = readers[self._first :] + readers[: self._first]
        rows: list[Row] = []
        while remaining and most > 0 and most_bytes > 0:
            share, share_bytes = (
                max(1, most // len(remaining)),
                max(1, most_bytes // len(remaining)),
            )
            next_turn = []
            for reader in remaining:
                if most <= 0 or most_bytes <= 0:
                    break
                taken: list[Row] = []
                with self._patience.with_topic(reader.topic, self._forget):
                    taken = reader.take(min(share, most), min(share_bytes, most_bytes))
                if taken:
                    next_turn.append(reader)
                rows += taken
                most -= len(taken)
                most_bytes -= sum(row.size_bytes for row in taken)
            remaining = next_turn
        return rows

    def _forget(self, topic: str) -> None:
        """Close a topic's reader; reopening is faster than waiting for one that lost its broker.

        A reader that is still being opened is kept while its topic is unavailable, and closed as
        soon as it is open if the topic is gone.
        """
        reader = self._readers.pop(topic, None)
        if reader is not None:
            with suppress(pulsar.PulsarException):
                reader.close()
        if topic not in self._topics and topic in self._opening:
            self._opening.pop(topic).add_done_callback(_close_opened)


def _close_opened(opening: Future[TopicReader | LiveReader]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        with suppress(pulsar.PulsarException):
            opening.result().close()


def _now() -> str:
    return str(Received(time.time_ns() // 1_000_000, 0))
