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
from typing import Final

import numpy as np
from kafka import KafkaProducer

from benchmarks.overload.phases import INTERVAL_S, NORMAL, Phase
from benchmarks.workload import QUOTA
from quotaplane.model import BASIC
from quotaplane.wire.report_stock import encode_stock_report

BROKERS: Final = 100
GROUPS: Final = 20_000
SPREAD: Final = 5
PROBE: Final = "probe/all"
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
    """All groups with a quota but for the probe."""
    return [f"tenant-{number % 500:03d}/namespace-{number:05d}" for number in range(GROUPS)]


def _encoded(broker: str, groups: list[str], random: np.random.Generator) -> bytes:
    """A stock report of ``INTERVAL_S``; the probe is used far above any quota."""
    rates = random.uniform(0.2, 0.4, (len(groups), BASIC)) * QUOTA / SPREAD
    if groups[0] == PROBE:
        rates[0] = 10 * QUOTA
    return encode_stock_report(broker, groups, np.round(rates * INTERVAL_S))


class ReportLoad:
    """The reports of all brokers; those that do not depend on the time are encoded once."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(5)
        names = np.array(group_names(), dtype=object)
        first = self._random.integers(0, BROKERS, GROUPS)
        on = (first[:, None] + BROKERS // SPREAD * np.arange(SPREAD)) % BROKERS
        self._own = [
            [PROBE, *names[(on == number).any(axis=1)].tolist()] for number in range(BROKERS)
        ]
        self._reports = [
            [_encoded(broker_name(number), own, self._random) for _ in range(_VARIANTS)]
            for number, own in enumerate(self._own)
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

    def report(self, broker: int, turn: int, undefined_groups: int) -> bytes:
        """The next report of a broker."""
        report = self._reports[broker][turn % _VARIANTS]
        if not undefined_groups:
            return report
        # Stock reports are protobuf: two in a row are one with the entries of both.
        names = [f"undefined/{self._named + n:012d}" for n in range(undefined_groups)]
        self._named += undefined_groups
        return report + _encoded(broker_name(broker), names, self._random)

    def invented(self, count: int) -> list[tuple[str, bytes]]:
        """(broker, report) of brokers that do not exist."""
        return [(f"invented-{n:05d}", report) for n, report in enumerate(self._invented[:count])]


def main(servers: str, topic: str) -> None:
    """Send until stdin ends."""
    load = ReportLoad()
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

    threading.Thread(target=follow, daemon=True).start()
    print("sending", flush=True)
    due_s, turn = time.monotonic(), 0
    while not ended.is_set():
        now = phase
        for number in range(BROKERS):
            report = load.report(number, turn, now.undefined_groups)
            producer.send(topic, report, key=broker_name(number).encode(), partition=number % 2)
            # The reports of an interval are spread over it, as those of real brokers are.
            _wait_until(due_s + INTERVAL_S / now.times * (number + 1) / BROKERS, ended)
        for number, (name, report) in enumerate(load.invented(now.invented_brokers)):
            producer.send(topic, report, key=name.encode(), partition=number % 2)
        producer.flush()
        turn += 1
        due_s = max(due_s + INTERVAL_S / now.times, time.monotonic() - INTERVAL_S)
    producer.close()


def _wait_until(due_s: float, ended: threading.Event) -> None:
    left_s = due_s - time.monotonic()
    if left_s > 0.002:
        ended.wait(left_s)


if __name__ == "__main__":
    main(*sys.argv[1:])
