"""Sends the reports of all brokers, as the phase wants it, in a process of its own.

    python -m benchmarks.overload.load BOOTSTRAP_SERVERS TOPIC

Reads phases from stdin, a JSON object a line (the fields of ``Phase``), and changes to each at
once. Ends with its stdin.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

import numpy as np
from kafka import KafkaProducer

from benchmarks.overload.phases import (
    BROKERS,
    GROUPS,
    INTERVAL_S,
    NORMAL,
    PAIR_QUOTA,
    SPREAD,
    Phase,
    pair_name,
    second_is_busy,
)
from benchmarks.workload import QUOTA
from quotaplane.model import BASIC
from quotaplane.wire.report_stock import encode_stock_report

WRITTEN: Final = "probe/written"
"""A group on each broker, whose quota the benchmark changes to see how long that takes."""
_VARIANTS: Final = 4
_INVENTED_GROUPS: Final = 50


def broker_name(number: int) -> str:
    """The name of a broker that exists.

    >>> broker_name(7)
    'broker-007'
    """
    return f"broker-{number:03d}"


def group_names() -> list[str]:
    """All groups with a quota but for the probes."""
    return [f"tenant-{number % 500:03d}/namespace-{number:05d}" for number in range(GROUPS)]


def new_group(second: int, number: int) -> str:
    """A group that was defined at this second; the broker of this number has it."""
    return f"new/namespace-{second}-{number:03d}"


def _encoded(broker: str, groups: list[str], random: np.random.Generator) -> bytes:
    """A stock report of ``INTERVAL_S``, of groups that are used far below their quotas."""
    rates = random.uniform(0.2, 0.4, (len(groups), BASIC)) * QUOTA / SPREAD
    return encode_stock_report(broker, groups, np.round(rates * INTERVAL_S))


class ReportLoad:
    """The reports of all brokers; those that do not depend on the time are encoded once."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(5)
        names = np.array(group_names(), dtype=object)
        first = self._random.integers(0, BROKERS, GROUPS)
        on = (first[:, None] + BROKERS // SPREAD * np.arange(SPREAD)) % BROKERS
        self._reports = [
            [
                _encoded(
                    broker_name(number), names[(on == number).any(axis=1)].tolist(), self._random
                )
                for _ in range(_VARIANTS)
            ]
            for number in range(BROKERS)
        ]
        self._invented = [
            _encoded(
                f"invented-{number:05d}",
                self._random.choice(names, _INVENTED_GROUPS, replace=False).tolist(),
                self._random,
            )
            for number in range(1000)
        ]
        self._named = 0

    def report(self, broker: int, turn: int, at_s: float, phase: Phase) -> bytes:
        """The next report of a broker."""
        # Stock reports are protobuf: two in a row are one with the entries of both.
        report = self._reports[broker][turn % _VARIANTS] + self._probes(broker, at_s)
        more: list[str] = []
        if phase.undefined_groups:
            more = [f"undefined/{self._named + n:012d}" for n in range(phase.undefined_groups)]
            self._named += len(more)
        if phase.new_groups_per_s:
            # Those of the last minute, a little after they were defined.
            more = [new_group(second, broker) for second in range(int(at_s) - 60, int(at_s) - 1)]
        return report + _encoded(broker_name(broker), more, self._random) if more else report

    @staticmethod
    def _probes(broker: int, at_s: float) -> bytes:
        """The broker's use of its two pairs, and of the group whose quota changes."""
        second = second_is_busy(at_s)
        pairs = broker, (broker - 1) % BROKERS
        busy = not second[pairs[0]], second[pairs[1]]
        used = np.zeros((3, BASIC))
        used[:2][list(busy)] = 10 * PAIR_QUOTA
        used[2] = 10 * QUOTA
        groups = [*map(pair_name, pairs), WRITTEN]
        return encode_stock_report(broker_name(broker), groups, used * INTERVAL_S)

    def invented(self, count: int) -> list[tuple[str, bytes]]:
        """(broker, report) of brokers that do not exist."""
        return [(f"invented-{n:05d}", report) for n, report in enumerate(self._invented[:count])]


Send = Callable[[int, str, bytes, float], None]
"""Called with a partition, the broker, its report, and its time (seconds since 1970)."""


def send_all(phase: Callable[[], Phase], send: Send, ended: threading.Event) -> None:
    """Send what the phase wants at each time, until the end."""
    load = ReportLoad()
    due_s, turn, owed = time.monotonic(), 0, False
    while not ended.is_set():
        now = phase()

        def report(number: int, at_s: float, now: Phase = now, turn: int = turn) -> None:
            send(number % 2, broker_name(number), load.report(number, turn, at_s, now), at_s)

        for number in range(BROKERS):
            report(number, time.time())
            # The reports of an interval are spread over it, as those of real brokers are.
            _wait_until(due_s + INTERVAL_S / now.times * (number + 1) / BROKERS, ended)
        for number, (name, value) in enumerate(load.invented(now.invented_brokers)):
            send(number % 2, name, value, time.time())
        if now.backlog_s and not owed:
            # All at once: what the brokers would have sent, had the pause begun so long ago.
            for ago_s in np.arange(now.backlog_s, INTERVAL_S, -INTERVAL_S).tolist():
                for number in range(BROKERS):
                    report(number, time.time() - ago_s)
        owed = now.backlog_s > 0
        turn += 1
        due_s = max(due_s + INTERVAL_S / now.times, time.monotonic() - INTERVAL_S)


def main(servers: str, topic: str) -> None:
    """Send to Kafka until stdin ends."""
    phase = NORMAL
    ended = threading.Event()
    producer = KafkaProducer(
        bootstrap_servers=servers, max_request_size=16 << 20, batch_size=1 << 18, linger_ms=5
    )

    def follow() -> None:
        nonlocal phase
        for line in sys.stdin:
            phase = Phase(**json.loads(line))
        ended.set()

    def send(partition: int, broker: str, report: bytes, at_s: float) -> None:
        key, at_ms = broker.encode(), int(at_s * 1000)
        producer.send(topic, report, key, partition=partition, timestamp_ms=at_ms)

    threading.Thread(target=follow, daemon=True).start()
    print("sending", flush=True)
    send_all(lambda: phase, send, ended)
    producer.close()


def _wait_until(due_s: float, ended: threading.Event) -> None:
    left_s = due_s - time.monotonic()
    if left_s > 0.002:
        ended.wait(left_s)


if __name__ == "__main__":
    main(*sys.argv[1:])
