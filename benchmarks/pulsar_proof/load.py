"""The clients of one scenario: each topic has a connection of its own, as throttling stops one.

A producer's demand is open-loop: what its bounded queue does not take is dropped, as at a service
whose users do not wait. A consumer takes whatever it is given. For each place (a broker's topics)
a file has a line for each tenth of a second: its beginning on the wall clock, the messages that
were wanted, and those that were acknowledged, or received. Where topics lose their broker, a client
that is not connected wants nothing: how soon clients connect again is not what is measured.

    python -m benchmarks.pulsar_proof.load pulsar://127.0.0.1:6650 plan.json FOLDER
    [80, 20]     (on stdin: what each place wants from now on; the end of stdin ends it)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pulsar
from pydantic import TypeAdapter

from benchmarks.program import ROOT
from benchmarks.pulsar_proof.scenarios import Arrivals
from quotaplane.console.option_parser import OptionParser
from quotaplane.model import FloatArray, IntArray
from quotaplane.streams.script import run_job

SLOT_S: Final = 0.1
_PENDING: Final = 20
"""Most messages that wait at a place's producers: half a second of what the scenarios allow.
Each producer may have ``_LEAST_PENDING``."""
_LEAST_PENDING: Final = 4
_ON_OFF_S: Final = 0.25
"""How long an on-off producer sends on average, and then pauses."""
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


class Load:
    """The process of a scenario's clients, seen from outside."""

    def __init__(self, service_url: str, places: Sequence[Place], folder: Path) -> None:
        self.counts = [counts_of(folder, number) for number in range(len(places))]
        plan = folder / "plan.json"
        plan.write_text(json.dumps([asdict(place) for place in places]))
        self._log = folder / "load.log"
        module = "benchmarks.pulsar_proof.load"
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, service_url, str(plan), str(folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            text=True,
            stderr=self._log.open("w"),
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def connected(self) -> bool:
        """Whether all clients are connected.

        Raises:
            RuntimeError: the process ended; has the end of its log.
        """
        if self._process.poll() is not None:
            raise RuntimeError(f"clients ended:\n{self._log.read_text()[-1000:]}")
        return all(path.exists() and path.stat().st_size > 0 for path in self.counts)

    def want(self, rates: Sequence[float]) -> None:
        """From now on the places want so many messages a second."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(list(rates))}\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """End it; a second call does nothing."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def counts_of(folder: Path, place: int) -> Path:
    """The file of a place."""
    return folder / f"counts-{place}.csv"


class _Counter:
    """Counts per slot of the wall clock."""

    def __init__(self, path: Path) -> None:
        self._out = path.open("w")
        self._lock = threading.Lock()
        self._slot = int(time.time() / SLOT_S)
        self._wanted = self._done = 0

    def add(self, wanted: int = 0, done: int = 0) -> None:
        slot = int(time.time() / SLOT_S)
        with self._lock:
            if slot != self._slot:
                self._out.write(f"{self._slot * SLOT_S:.1f},{self._wanted},{self._done}\n")
                self._out.flush()
                self._slot, self._wanted, self._done = slot, 0, 0
            self._wanted += wanted
            self._done += done


class _Topic:
    """A topic's producer, and its consumer where the receipts count."""

    def __init__(self, service_url: str, topic: str, place: Place, counter: _Counter) -> None:
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


class Arriving:
    """How many messages are due at each topic of a place.

    Args:
        kind: see ``Scenario.arrivals``.
        topics: their number.
        random: makes the noise.
    """

    def __init__(self, kind: Arrivals, topics: int, random: np.random.Generator) -> None:
        self._kind, self._random = kind, random
        weights = 1.0 / np.sqrt(np.arange(1, topics + 1))
        self._parts = weights / weights.sum()
        # Not all at the same moment.
        self._due = random.random(topics)
        self._on = random.random(topics) < 0.5

    def take(self, rate: float, passed_s: float) -> IntArray:
        """Messages that have become due in the last ``passed_s`` seconds, (topics,)."""
        expected: FloatArray = rate * passed_s * self._parts
        if self._kind == "poisson":
            return self._random.poisson(expected)
        if self._kind == "on_off":
            changes = self._random.random(len(expected)) < passed_s / _ON_OFF_S
            self._on ^= changes
            expected = 2.0 * expected * self._on
        self._due += expected
        due = self._due.astype(np.int64)
        self._due -= due
        return due


def _client(service_url: str) -> pulsar.Client:
    return pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def _run(service_url: str, places: Sequence[Place], folder: Path) -> None:
    """Send what is wanted, until stdin ends."""
    wanted = [0.0] * len(places)

    def listen() -> None:
        for line in sys.stdin:
            wanted[:] = json.loads(line)
        os._exit(0)  # not the clients' own end: that waits for messages which nobody lets through

    threading.Thread(target=listen, daemon=True).start()
    counters: list[_Counter] = []
    topics: list[list[_Topic]] = []
    for number, place in enumerate(places):
        counter = _Counter(counts_of(folder, number))
        topics.append([_Topic(service_url, topic, place, counter) for topic in place.topics])
        counters.append(counter)
    random = np.random.default_rng(len(places))
    arrivals = [Arriving(place.arrivals, len(place.topics), random) for place in places]
    last = time.monotonic()
    while True:
        time.sleep(_TICK_S)
        now = time.monotonic()
        for counter, of_place, due, rate in zip(counters, topics, arrivals, wanted, strict=True):
            counter.add()
            messages = due.take(rate, now - last)
            for topic in np.flatnonzero(messages).tolist():
                of_place[topic].send(int(messages[topic]))
        last = now


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
