"""The baseline: one plain Python process that reads the same messages and runs the same law.

Without Spark, state, history and publishing: the minimum that a round needs.

    python benchmarks/plain.py BOOTSTRAP TOPIC BROKERS ROUNDS INTERVAL_S   (prints JSON)
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator

import numpy as np
from kafka import KafkaConsumer, TopicPartition

from quotaplane.laws import Problem, get_law
from quotaplane.model import BASIC, RATE_COLUMNS
from quotaplane.quota.estimate.demand import observe
from quotaplane.quota.headroom import without_history
from quotaplane.settings import Reports
from quotaplane.wire.reports import decode
from workload import QUOTA


def values_of_rounds(bootstrap: str, topic: str, brokers: int) -> Iterator[list[bytes]]:
    """The reports of each round: ``brokers`` messages."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        # about a round per poll, so that each round's time includes its own reading
        max_poll_records=brokers,
        max_partition_fetch_bytes=12 << 20,
        fetch_max_bytes=24 << 20,
    )
    partitions = sorted(consumer.partitions_for_topic(topic) or ())
    consumer.assign([TopicPartition(topic, number) for number in partitions])
    consumer.seek_to_beginning()
    waiting: list[bytes] = []
    while True:
        while len(waiting) < brokers:
            for records in consumer.poll(1000).values():
                waiting.extend(record.value for record in records)
        yield waiting[:brokers]
        waiting = waiting[brokers:]


def main(bootstrap: str, topic: str, brokers: int, rounds: int, interval_s: float) -> None:
    arriving = values_of_rounds(bootstrap, topic, brokers)
    reports, law = Reports(interval_s=interval_s), get_law("max_min")
    took = []
    for _ in range(rounds):
        begun = time.perf_counter()
        values = next(arriving)
        read = time.perf_counter()
        now_ms = int(time.time() * 1000)
        decoded = decode(
            values,
            np.full(len(values), now_ms),
            [str(number) for number in range(len(values))],
            now_ms=now_ms,
            reports=reports,
        )
        parsed = time.perf_counter()
        entries = decoded.entries
        _, group = np.unique(entries["group_id"].to_numpy(), return_inverse=True)
        order = np.argsort(group, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(group))])
        quota, ones = np.full(len(starts) - 1, QUOTA), np.ones(len(group))
        never = np.full(len(group), np.inf)
        for name in RATE_COLUMNS[:BASIC]:
            usage = entries[name].to_numpy()[order]
            shown = observe(usage, never)
            problem = Problem(starts, quota, usage, never, shown, ones, 0.0 * ones)
            law(without_history(problem, ones == 0.0))
        done = time.perf_counter()
        took.append({"read": read - begun, "parse": parsed - read, "law": done - parsed})
    print(json.dumps(took))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
