"""Producers or consumers of all topics, in one process; counts each second what got through.

A producer's demand is open-loop: what its bounded queue does not take is dropped and counted. Each
second a line says of each topic how many messages were acknowledged and the longest time that one
of them took, and of all of them the 99th percentile.

    python -m benchmarks.balance_proof.load produce pulsar://127.0.0.1:6650 out.jsonl
    {"persistent://t/n/a": 80}     (on stdin: the topics and what they want per second)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pulsar

from benchmarks.balance_proof.scenes import MESSAGE_BYTES
from benchmarks.program import ROOT
from quotaplane.console.option_parser import OptionParser
from quotaplane.streams.script import run_job

PENDING_S: Final = 10.0
"""A producer's queue holds what is wanted in so many seconds."""
_TICK_S: Final = 0.05
_FOREVER_MS: Final = 3_600_000


class LoadProcess:
    """The process, seen from outside."""

    def __init__(self, work: str, service_url: str, out: Path) -> None:
        self._out = out
        command = [sys.executable, "-m", "benchmarks.balance_proof.load", work, service_url]
        self._process = subprocess.Popen(
            [*command, str(out)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'pipelines'}:{ROOT}"},
            stdin=subprocess.PIPE,
            text=True,
            stderr=out.with_suffix(".log").open("w"),
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def want(self, rates: Mapping[str, float]) -> None:
        """From now on these topics want so many messages per second."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(dict(rates)) + "\n")
        self._process.stdin.flush()

    def counted(self) -> dict[str, int]:
        """Messages so far by topic.

        Raises:
            RuntimeError: the process ended; has the end of its log.
        """
        if self._process.poll() is not None:
            log = self._out.with_suffix(".log").read_text()
            raise RuntimeError(f"the load ended:\n{log[-1000:]}")
        totals: dict[str, int] = defaultdict(int)
        for second in read_seconds(self._out):
            for topic, (count, _) in second["topics"].items():
                totals[topic] += count
        return totals

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def read_seconds(out: Path) -> list[dict[str, Any]]:
    """The lines that a process has written completely."""
    if not out.exists():
        return []
    text = out.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


class _Counts:
    """The messages of this second; written to the file when the second is over."""

    def __init__(self, out: Path) -> None:
        self._file = out.open("w")
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._topics: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
        self._took_s: list[float] = []
        self._dropped = self._failed = 0

    def passed(self, topic: str, took_s: float) -> None:
        with self._lock:
            count = self._topics[topic]
            count[0] += 1
            count[1] = max(count[1], took_s)
            self._took_s.append(took_s)

    def lost(self, *, dropped: int = 0, failed: int = 0) -> None:
        with self._lock:
            self._dropped += dropped
            self._failed += failed

    def write_each_second(self) -> None:
        while True:
            now = time.time()
            time.sleep(int(now) + 1 - now)
            with self._lock:
                topics, took_s = self._topics, sorted(self._took_s)
                line = {
                    "at": int(now),
                    "topics": {topic: [int(n), round(s, 4)] for topic, (n, s) in topics.items()},
                    "p99_s": round(took_s[int(0.99 * len(took_s))], 4) if took_s else 0.0,
                    "dropped": self._dropped,
                    "failed": self._failed,
                }
                self._begin()
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()


class _Producing:
    """All producers, driven by one thread."""

    def __init__(self, client: pulsar.Client, counts: _Counts) -> None:
        self._client, self._counts = client, counts
        self._wanted: dict[str, float] = {}
        self._producers: dict[str, Any] = {}
        self._waiting: dict[str, int] = defaultdict(int)
        self._lock = threading.Lock()

    def want(self, rates: Mapping[str, float]) -> None:
        for topic in rates:
            if topic not in self._producers:
                self._producers[topic] = self._client.create_producer(
                    topic,
                    send_timeout_millis=_FOREVER_MS,
                    max_pending_messages=100_000,
                    batching_enabled=True,
                    batching_max_publish_delay_ms=5,
                )
        self._wanted = dict(rates)

    def _send(self, topic: str, producer: Any) -> None:
        begun_s = time.monotonic()

        def acknowledged(result: Any, _: Any) -> None:
            with self._lock:
                self._waiting[topic] -= 1
            if result == pulsar.Result.Ok:
                self._counts.passed(topic, time.monotonic() - begun_s)
            else:
                self._counts.lost(failed=1)

        with self._lock:
            self._waiting[topic] += 1
        producer.send_async(bytes(MESSAGE_BYTES), acknowledged)

    def run(self) -> None:
        due: dict[str, float] = defaultdict(float)
        last = time.monotonic()
        while True:
            time.sleep(_TICK_S)
            now = time.monotonic()
            passed_s, last = now - last, now
            for topic, rate in self._wanted.items():
                due[topic] += rate * passed_s
                whole = int(due[topic])
                due[topic] -= whole
                room = max(int(rate * PENDING_S) + 1 - self._waiting[topic], 0)
                for _ in range(min(whole, room)):
                    self._send(topic, self._producers[topic])
                if whole > room:
                    self._counts.lost(dropped=whole - room)


class _Consuming:
    """All consumers; each message's time is from its publishing until it is here."""

    def __init__(self, client: pulsar.Client, counts: _Counts) -> None:
        self._client, self._counts = client, counts
        self._consumers: dict[str, Any] = {}

    def want(self, rates: Mapping[str, float]) -> None:
        for topic in rates:
            if topic not in self._consumers:
                self._consumers[topic] = self._client.subscribe(
                    topic, "proof", message_listener=self._listener(topic)
                )

    def _listener(self, topic: str) -> Any:
        def received(consumer: Any, message: Any) -> None:
            self._counts.passed(topic, time.time() - message.publish_timestamp() / 1000.0)
            consumer.acknowledge(message)

        return received

    def run(self) -> None:
        threading.Event().wait()


def main(argv: Sequence[str]) -> None:
    """Work until stdin ends."""
    parser = OptionParser(description=__doc__)
    parser.add_argument("work", choices=("produce", "consume"))
    parser.add_argument("service_url")
    parser.add_argument("out", type=Path)
    asked = parser.parse_args(argv)
    client = pulsar.Client(asked.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    counts = _Counts(asked.out)
    working = (_Producing if asked.work == "produce" else _Consuming)(client, counts)
    for target in (working.run, counts.write_each_second):
        threading.Thread(target=target, daemon=True).start()
    for line in sys.stdin:
        working.want(json.loads(line))
    os._exit(0)  # not the client's own end: that waits for messages


if __name__ == "__main__":
    run_job(main)
