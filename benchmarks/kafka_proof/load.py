"""The clients of one scenario: librdkafka with its defaults, but for small batches.

A place is a partition, and a client id's place on a broker. A tenant's producer sends to all of its
places, on a connection to each broker. Each reader is a consumer of its own, as a backlog must not
stand in front of others. Beside the counts, three more files are written:

* ``waits.csv``: the moment, the place and the seconds since which it has had messages waiting
  without an acknowledgement (or any message received), for each wait of half a second or more;
* ``throttles.csv``: the moment, and the milliseconds that a broker said it throttles a client;
* ``wire.csv``: the moment, the bytes sent and the messages in them (or received), of all
  brokers, since the start.

    python -m benchmarks.kafka_proof.load 127.0.0.1:9092 plan.json FOLDER
    [80, 20]     (on stdin: what each place wants from now on; the end of stdin ends it)
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, Producer, TopicPartition
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

FEEDER: Final = "feeder"
"""Client id of what produces for readers; nobody limits it."""
LONG_WAIT_S: Final = 0.5
_TICK_S: Final = 0.02
_STATISTICS_MS: Final = 1000
_COMMON: Final = {
    "statistics.interval.ms": _STATISTICS_MS,
    "reconnect.backoff.max.ms": 500,
    "allow.auto.create.topics": False,
    "log_level": 3,
}
PRODUCER: Final = {
    "acks": 1,  # of the leader: replicas are not what is measured
    # As Java's producer; librdkafka's own is 1 MB, and a batch is sent, and read, as a whole.
    "batch.size": 16_384,
    "message.timeout.ms": 0,
}
_CONSUMER: Final = {
    "fetch.wait.max.ms": 100,
    # 1 MB by default: a second of what the scenario allows at a broker.
    "max.partition.fetch.bytes": 65_536,
}


@dataclass(frozen=True)
class Place:
    """A tenant's partition on one broker."""

    client_id: str
    topic: str
    partition: int
    payload_bytes: int
    pending: int
    """Most messages that wait for their acknowledgement."""
    arrivals: Arrivals
    fetch: bool
    backlog: bool
    """Its reader begins when it wants something, at the topic's first message."""


class _Log:
    """A file of numbers, written at once."""

    def __init__(self, path: Path) -> None:
        self._out = path.open("w")

    def write(self, *values: float) -> None:
        self._out.write(",".join(f"{value:.10g}" for value in (time.time(), *values)) + "\n")
        self._out.flush()


class _Wait:
    """Since when a place waits, and the long waits."""

    def __init__(self, place: int, log: _Log) -> None:
        self._place, self._log = place, log
        self._since: float | None = None

    def waiting(self) -> None:
        """Something waits from now on, if nothing did."""
        if self._since is None:
            self._since = time.monotonic()

    def served(self, more: bool) -> None:
        """Something got through; ``more`` waits."""
        self.look()
        self._since = time.monotonic() if more else None

    def look(self) -> None:
        """Note a wait that goes on."""
        if self._since is not None and (gap := time.monotonic() - self._since) >= LONG_WAIT_S:
            self._log.write(self._place, gap)


class _Wire:
    """Bytes and messages of clients, from librdkafka's statistics."""

    def __init__(self, log: _Log, direction: str) -> None:
        self._log, self._direction = log, direction
        self._bytes = 0
        self._of_broker: dict[tuple[str, str], int] = {}
        self._messages: dict[str, int] = {}

    def statistics(self, text: str) -> None:
        """Called by a client, each second."""
        seen = json.loads(text)
        for broker, each in seen["brokers"].items():
            at, bytes_ = (seen["name"], broker), each[f"{self._direction}bytes"]
            # A broker that is gone leaves the statistics, and may begin anew.
            self._bytes += max(bytes_ - self._of_broker.get(at, 0), 0)
            self._of_broker[at] = bytes_
        self._messages[seen["name"]] = seen[f"{self._direction}msgs"]
        self._log.write(self._bytes, sum(self._messages.values()))


class _Writer:
    """A place's messages at its tenant's producer."""

    def __init__(self, producer: Producer, place: Place, counter: Counter, wait: _Wait) -> None:
        self._producer, self._place, self._counter, self._wait = producer, place, counter, wait
        self._payload = bytes(place.payload_bytes)
        self._waiting = 0

    def send(self, messages: int) -> None:
        """Send as many as the queue takes."""
        self._counter.add(wanted=messages)
        for _ in range(min(messages, self._place.pending - self._waiting)):
            self._waiting += 1
            self._producer.produce(
                self._place.topic,
                self._payload,
                partition=self._place.partition,
                on_delivery=self._acknowledged,
            )
        self._wait.waiting()

    def tick(self) -> None:
        self._counter.add()
        self._wait.look()

    def _acknowledged(self, error: Any, _: Any) -> None:
        self._waiting -= 1
        if error is None:
            self._counter.add(done=1)
        self._wait.served(self._waiting > 0)


class _Reader:
    """A place's consumer, and what feeds it unless it has a backlog."""

    def __init__(
        self, options: dict[str, Any], feeder: Producer, place: Place, counter: Counter, wait: _Wait
    ) -> None:
        self._feeder, self._place, self._counter, self._wait = feeder, place, counter, wait
        self._payload = bytes(place.payload_bytes)
        self._fed = self._received = 0
        self._consumer = Consumer(
            options | _CONSUMER | {"client.id": place.client_id, "group.id": "proof"}
        )
        self._assigned = False
        if not place.backlog:
            self._assign(OFFSET_END)

    def _assign(self, offset: int) -> None:
        self._consumer.assign([TopicPartition(self._place.topic, self._place.partition, offset)])
        self._assigned = True

    def send(self, messages: int) -> None:
        """Let so many more messages be wanted."""
        self._counter.add(wanted=messages)
        self._wait.waiting()
        if self._place.backlog:
            if not self._assigned:
                self._assign(OFFSET_BEGINNING)
            return
        for _ in range(messages):
            self._fed += 1
            self._feeder.produce(self._place.topic, self._payload, partition=self._place.partition)

    def tick(self) -> None:
        """Take what there is."""
        got = 1
        while got and self._assigned:
            found = self._consumer.consume(500, 0.0)
            got = sum(each.error() is None for each in found)
            self._received += got
            self._counter.add(done=got)
            if got:
                self._wait.served(self._place.backlog or self._fed > self._received)
        self._counter.add()
        self._wait.look()


def _run(bootstrap: str, places: Sequence[Place], folder: Path) -> None:
    waits, throttles = _Log(folder / "waits.csv"), _Log(folder / "throttles.csv")
    wire = _Wire(_Log(folder / "wire.csv"), "rx" if places[0].fetch else "tx")
    common = {**_COMMON, "bootstrap.servers": bootstrap}

    def throttled(event: Any) -> None:
        if event.throttle_time > 0:
            throttles.write(1000.0 * event.throttle_time)

    watched = common | {"stats_cb": wire.statistics, "throttle_cb": throttled}
    producers: dict[str, Producer] = {}

    def producer(client_id: str) -> Producer:
        if client_id not in producers:
            options = common if client_id == FEEDER else watched
            producers[client_id] = Producer({**options, **PRODUCER, "client.id": client_id})
        return producers[client_id]

    clients: list[_Writer | _Reader] = []
    for number, place in enumerate(places):
        counter, wait = Counter(counts_of(folder, number)), _Wait(number, waits)
        if place.fetch:
            clients.append(_Reader(watched, producer(FEEDER), place, counter, wait))
        else:
            clients.append(_Writer(producer(place.client_id), place, counter, wait))
    random = np.random.default_rng(len(places))
    arrivals = [Arriving(place.arrivals, 1, random) for place in places]

    def send(place: int, messages: IntArray) -> None:
        clients[place].send(int(messages[0]))

    ticks: list[Callable[[], Any]] = [client.tick for client in clients]

    def tick() -> None:
        for each in producers.values():
            each.poll(0)
        for look in ticks:
            look()

    send_until_stdin_ends(arrivals, send, _TICK_S, tick)


def main(argv: Sequence[str]) -> None:
    """Work until stdin ends."""
    parser = OptionParser(description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("plan", type=Path)
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args(argv)
    places = TypeAdapter(tuple[Place, ...]).validate_json(asked.plan.read_text())
    _run(asked.bootstrap, places, asked.folder)


if __name__ == "__main__":
    run_job(main)
