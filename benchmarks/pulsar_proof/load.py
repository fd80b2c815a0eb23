"""The clients of one scenario: each topic has a connection of its own, as throttling stops one.

A consumer takes whatever it is given. Where topics lose their broker, a client that is not
connected wants nothing: how soon clients connect again is not what is measured.

    python -m benchmarks.pulsar_proof.load pulsar://127.0.0.1:6650 plan.json FOLDER
    [80, 20]     (on stdin: what each place wants from now on; the end of stdin ends it)
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pulsar
from pydantic import TypeAdapter

from benchmarks.quota_proof.load import (
    Arrivals,
    Arriving,
    Counter,
    counts_of,
    send_until_stdin_ends,
)
from quotaplane.console.option_parser import OptionParser
from quotaplane.model import IntArray
from quotaplane.streams.script import run_job

_PENDING: Final = 20
"""Most messages that wait at a place's producers: half a second of what the scenarios allow.
Each producer may have ``_LEAST_PENDING``."""
_LEAST_PENDING: Final = 4
_TICK_S: Final = 0.05
_FOREVER_MS: Final = 3_600_000


@dataclass(frozen=True)
class Place:
    """The topics of one scenario on one broker."""

    topics: tuple[str, ...]
    payload_bytes: int
    arrivals: Arrivals
    consume: bool
    moves: bool
    """Its topics lose their broker."""


class _Topic:
    """A topic's producer, and its consumer where the receipts count."""

    def __init__(self, service_url: str, topic: str, place: Place, counter: Counter) -> None:
        self._counter, self._counts_receipts = counter, place.consume
        self._moves = place.moves
        self._payload = bytes(place.payload_bytes)
        self._pending = max(_LEAST_PENDING, _PENDING // len(place.topics))
        self._waiting = 0
        self._lock = threading.Lock()
        # On each connection is one client only.
        self._clients = [_client(service_url)]
        self._producer = self._clients[0].create_producer(
            topic, send_timeout_millis=_FOREVER_MS, max_pending_messages=self._pending
        )
        if place.consume:
            self._clients.append(_client(service_url))
            self._clients[1].subscribe(
                topic, "proof", receiver_queue_size=10, message_listener=self._received
            )

    def send(self, messages: int) -> None:
        """Send as many as the queue takes."""
        if self._moves and not self._producer.is_connected():
            return
        self._counter.add(wanted=messages)
        for _ in range(messages):
            with self._lock:
                if self._waiting >= self._pending:
                    return
                self._waiting += 1
            self._producer.send_async(self._payload, self._acknowledged)

    def _acknowledged(self, result: Any, _: Any) -> None:
        with self._lock:
            self._waiting -= 1
        if result == pulsar.Result.Ok and not self._counts_receipts:
            self._counter.add(done=1)

    def _received(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        consumer.acknowledge(message)
        self._counter.add(done=1)


def _client(service_url: str) -> pulsar.Client:
    return pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def _run(service_url: str, places: Sequence[Place], folder: Path) -> None:
    """Send what is wanted, until stdin ends."""
    counters = [Counter(counts_of(folder, number)) for number in range(len(places))]
    topics = [
        [_Topic(service_url, topic, place, counter) for topic in place.topics]
        for place, counter in zip(places, counters, strict=True)
    ]
    random = np.random.default_rng(len(places))
    arrivals = [Arriving(place.arrivals, len(place.topics), random) for place in places]

    def send(place: int, messages: IntArray) -> None:
        for topic in np.flatnonzero(messages).tolist():
            topics[place][topic].send(int(messages[topic]))

    def tick() -> None:
        for counter in counters:
            counter.add()

    send_until_stdin_ends(arrivals, send, _TICK_S, tick)


def main(argv: Sequence[str]) -> None:
    """Work until stdin ends."""
    parser = OptionParser(description=__doc__)
    parser.add_argument("service_url")
    parser.add_argument("plan", type=Path)
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args(argv)
    places = TypeAdapter(tuple[Place, ...]).validate_json(asked.plan.read_text())
    _run(asked.service_url, places, asked.folder)


if __name__ == "__main__":
    run_job(main)
