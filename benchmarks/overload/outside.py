"""The job's surroundings while it is measured: its load, a program that changes quotas, a reader
of the limits topic.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from types import TracebackType
from typing import Any, Final

import numpy as np
from kafka import KafkaConsumer, TopicPartition

from benchmarks.overload.figures import Published, Write
from benchmarks.overload.load import WRITTEN, new_group
from benchmarks.overload.phases import BROKERS, PAIR_QUOTA, PAIRS, Phase, pair_name
from benchmarks.program import ROOT
from benchmarks.workload import QUOTA
from quotaplane.model import BASIC, DIMENSIONS
from quotaplane.registry.table import put_groups
from quotaplane.settings import History
from quotaplane.wire.limits import decode_limits

_WRITE_EVERY_S: Final = 5.0


def put(history: History, names: list[str], quota: float) -> None:
    """Set the quotas of groups, as `quotaplane groups put` does."""
    quotas: np.ndarray[Any, Any] = np.full((len(names), len(DIMENSIONS)), np.inf)
    quotas[:, :BASIC] = quota
    put_groups(history, names, quotas, by="overload")


def put_probes(history: History) -> None:
    """The groups of all pairs, and the one whose quota changes."""
    put(history, [pair_name(pair) for pair in range(PAIRS)], PAIR_QUOTA)
    put(history, [WRITTEN], QUOTA)


class Part(threading.Thread):
    """Something that goes on until the end of the measurement."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        """Work; a failure is kept for ``end``."""
        try:
            self.work()
        except Exception as error:
            self.failure = error

    def work(self) -> None:
        """Until ``ended``."""
        raise NotImplementedError

    def end(self) -> None:
        """Stop.

        Raises:
            Exception: it failed before.
        """
        self.ended.set()
        self.join()
        if self.failure is not None:
            raise self.failure


class SeenLimits:
    """When which limits of pairs were there, and of ``WRITTEN``."""

    def __init__(self) -> None:
        self._pairs = {pair_name(pair): pair for pair in range(PAIRS)}
        self._rows: list[tuple[float, int, bool, float]] = []
        self.first_seen_s: dict[float, float] = {}
        """When a limit of ``WRITTEN`` was there for the first time, by limit."""

    def take(self, value: bytes, at_s: float) -> None:
        """Take in a message of the limits topic."""
        message = decode_limits(value)
        if message.broker.startswith("invented"):
            return
        broker = int(message.broker.rpartition("-")[2])
        for group, limit in zip(message.groups, message.limits[:, 0].tolist(), strict=True):
            if group in self._pairs:
                pair = self._pairs[group]
                self._rows.append((at_s, pair, broker != pair, limit))
            elif group == WRITTEN:
                self.first_seen_s.setdefault(round(limit, 3), at_s)

    def published(self) -> Published:
        """The figures so far."""
        at_s, pair, second, limit = zip(*self._rows, strict=True)
        return Published(np.array(at_s), np.array(pair), np.array(second), np.array(limit))


class LimitsReader(Part):
    """Reads the limits topic of a Kafka."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        self.seen = SeenLimits()
        self._consumer = KafkaConsumer(bootstrap_servers=servers, group_id=None)
        partitions = [TopicPartition(topic, 0)]
        self._consumer.assign(partitions)
        self._consumer.seek_to_end(*partitions)
        self._consumer.position(partitions[0])

    def work(self) -> None:
        """Read until the end."""
        while not self.ended.is_set():
            for records in self._consumer.poll(timeout_ms=100).values():
                for record in records:
                    self.seen.take(record.value, time.time())
        self._consumer.close()


class Writer(Part):
    """Changes a quota every few seconds, whether the job follows or not."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history
        self._writes: list[tuple[float, Write]] = []

    def work(self) -> None:
        """Write until the end."""
        while not self.ended.wait(_WRITE_EVERY_S):
            self.write(time.time())

    def write(self, begun_s: float) -> None:
        """Write once, each time another quota, by which its limits are known."""
        number = len(self._writes) + 1
        quota = QUOTA + 100.0 * BROKERS * (number % 10) + BROKERS * number
        before_s = time.monotonic()
        put(self._history, [WRITTEN], quota)
        took_s = time.monotonic() - before_s
        self._writes.append((round(quota / BROKERS, 3), Write(begun_s, begun_s + took_s)))

    def writes(self, first_seen_s: dict[float, float]) -> list[Write]:
        """All writes, and when limits made of them, or of a later one, were in the topic."""
        seen_s = [first_seen_s.get(limit, float("inf")) for limit, _ in self._writes]
        later = np.minimum.accumulate(np.array([*seen_s, np.inf])[::-1])[::-1]
        return [
            replace(write, published_s=float(at_s))
            for (_, write), at_s in zip(self._writes, later[:-1].tolist(), strict=True)
        ]


class NewGroups(Part):
    """Defines new groups each second while the phase wants it."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history
        self.per_s = 0
        self.put = 0

    def work(self) -> None:
        """Until the end; a commit that takes longer than a second is followed by a larger one."""
        done = int(time.time())
        while not self.ended.wait(0.05):
            now = int(time.time())
            seconds = range(done + 1, now + 1)
            done = now
            names = [new_group(second, n) for second in seconds for n in range(self.per_s)]
            if names:
                put(self._history, names, QUOTA)
                self.put += len(names)


class Load:
    """The process that sends reports."""

    def __init__(self, servers: str, topic: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.overload.load", servers, topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'pipelines'}:{ROOT}"},
            cwd=ROOT,
        )

    def __enter__(self) -> Load:
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "sending":
            raise RuntimeError("the process that sends reports ended")
        return self

    def become(self, phase: Phase) -> None:
        """Send as this phase wants it from now on."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(phase)) + "\n")
        self._process.stdin.flush()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
