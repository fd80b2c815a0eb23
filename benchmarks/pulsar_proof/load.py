"""One client of one topic, in a process and on a connection of its own: throttling stops both.

A producer's demand is open-loop: what its bounded queue does not take is dropped, as at a service
whose users do not wait. A consumer takes whatever it is given. What was acknowledged or received
is written down ten times a second, with the wall clock.

    python -m benchmarks.pulsar_proof.load produce pulsar://127.0.0.1:6650 TOPIC counts.csv
    80          (on stdin: from now on 80 messages a second are wanted; the end of stdin ends it)
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

import pulsar

from benchmarks.program import ROOT
from quotaplane.option_parser import OptionParser
from quotaplane.streams.script import run_job

SLOT_S: Final = 0.1
PENDING: Final = 20
"""So many messages wait at a producer at most: half a second of what the scenarios allow."""

_TICK_S = 0.04
_PAYLOAD = bytes(256)
_FOREVER_MS = 3_600_000


class Client:
    """The process, seen from outside."""

    def __init__(self, work: str, service_url: str, topic: str, counts: Path) -> None:
        self.topic = topic
        self._counts = counts
        command = [sys.executable, "-m", "benchmarks.pulsar_proof.load", work, service_url, topic]
        self._process = subprocess.Popen(
            [*command, str(counts)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            text=True,
            stderr=counts.with_suffix(".log").open("w"),
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def connected(self) -> bool:
        """Whether it has written anything yet.

        Raises:
            RuntimeError: it ended; the message is the end of its log.
        """
        if self._process.poll() is not None:
            log = self._counts.with_suffix(".log").read_text()
            raise RuntimeError(f"the client of {self.topic} ended:\n{log[-1000:]}")
        return self._counts.exists() and self._counts.stat().st_size > 0

    def want(self, messages_per_s: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{messages_per_s}\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Counter:
    """Counts per slot of the wall clock, a line each: the slot's beginning and its count."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._slot = int(time.time() / SLOT_S)
        self._count = 0

    def add(self, messages: int = 1) -> None:
        slot = int(time.time() / SLOT_S)
        with self._lock:
            if slot != self._slot:
                self._out.write(f"{self._slot * SLOT_S:.1f},{self._count}\n")
                self._out.flush()
                self._slot, self._count = slot, 0
            self._count += messages


def _produce(
    client: pulsar.Client, topic: str, counter: _Counter, wanted: Callable[[], float]
) -> None:
    producer = client.create_producer(
        topic, send_timeout_millis=_FOREVER_MS, max_pending_messages=PENDING
    )
    waiting = [0]
    lock = threading.Lock()

    def acknowledged(result: Any, _: Any) -> None:
        with lock:
            waiting[0] -= 1
        if result == pulsar.Result.Ok:
            counter.add()

    due, last = 0.0, time.monotonic()
    while True:
        time.sleep(_TICK_S)
        counter.add(0)
        now = time.monotonic()
        due += wanted() * (now - last)
        last = now
        while due >= 1.0:
            due -= 1.0
            with lock:
                full = waiting[0] >= PENDING
                waiting[0] += not full
            if not full:
                producer.send_async(_PAYLOAD, acknowledged)


def _consume(client: pulsar.Client, topic: str, counter: _Counter) -> None:
    consumer = client.subscribe(topic, "proof", receiver_queue_size=10)
    while True:
        try:
            message = consumer.receive(timeout_millis=100)
        except pulsar.Timeout:
            counter.add(0)
            continue
        consumer.acknowledge(message)
        counter.add()


def main(argv: Sequence[str]) -> None:
    """Work until stdin ends."""
    parser = OptionParser(description=__doc__)
    parser.add_argument("work", choices=("produce", "consume"))
    parser.add_argument("service_url")
    parser.add_argument("topic")
    parser.add_argument("counts", type=Path)
    asked = parser.parse_args(argv)
    rate = [0.0]

    def listen() -> None:
        for line in sys.stdin:
            rate[0] = float(line)
        os._exit(0)  # not the client's own end: that waits for messages which nobody lets through

    threading.Thread(target=listen, daemon=True).start()
    client = pulsar.Client(asked.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    with asked.counts.open("w") as out:
        counter = _Counter(out)
        if asked.work == "produce":
            _produce(client, asked.topic, counter, lambda: rate[0])
        else:
            _consume(client, asked.topic, counter)


if __name__ == "__main__":
    run_job(main)
