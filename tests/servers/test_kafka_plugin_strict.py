"""Strict transitions on two brokers with the plugin: use moves, and the quota always holds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pytest
from kafka import KafkaConsumer

from quotaplane.history.store import ensure_tables
from quotaplane.model import DIMENSIONS
from quotaplane.registry.table import put_groups
from quotaplane.settings import Settings
from quotaplane.wire.limits import decode_limits
from quotaplane.wire.pb.quotaplane_pb2 import UsageReport
from tests.job import RunningJob, write_conf
from tests.jvm.kafka_plugin import plugin_jar
from tests.servers.kafka_cluster import KafkaCluster
from tests.servers.plugged_kafka import (
    ATTACHMENTS,
    COMPACTED,
    LIMITS,
    LOAD,
    REPORTS,
    Load,
    plugin_properties,
)

pytestmark = pytest.mark.nightly

GROUP: Final = "client=limited"
QUOTA: Final = 4_000_000.0
LEAST: Final = 10_000.0
"""Default of ``quotaplane.least.bytes.per.second``."""
BYTES: Final = DIMENSIONS.index("publish_bytes")
LEASE_S: Final = 15.0
PROMISED_AFTER_S: Final = LEASE_S + 2 * 1.0
"""With a new checkpoint, since its first round: docs/explain/laws.md."""
FIRST, SECOND = "broker-1", "broker-2"


def cluster_in(folder: Path) -> KafkaCluster:
    """Two brokers that keep to strict transitions; not started."""
    settings = {
        "bootstrap_servers": "{bootstrap_servers}",
        "transition": "strict",
        "limits_lease_ms": f"{1000 * LEASE_S:.0f}",
    }
    properties = plugin_properties(**settings)
    return KafkaCluster(folder, servers=2, extra_jars=[plugin_jar()], properties=properties)


def conf_in(folder: Path, cluster: KafkaCluster) -> Path:
    transport = {
        "kind": "kafka",
        "bootstrap_servers": cluster.bootstrap_servers,
        "report_topics": [REPORTS],
        "limits_topic": LIMITS,
        "attachments_topic": ATTACHMENTS,
    }
    limits = {"transition": "strict", "lease_s": LEASE_S}
    quick = {"reports": {"interval_s": 1.0}, "trigger": {"interval_s": 0.5}, "shards": 1}
    return write_conf(folder, transport, limits=limits, **quick)


def put_quota(settings: Settings) -> None:
    ensure_tables(settings.history)
    rates = np.full((1, len(DIMENSIONS)), np.inf)
    rates[0, BYTES] = QUOTA
    put_groups(settings.history, [GROUP], rates, by="test")


class Event(NamedTuple):
    """A limit that the job sent, or one that a broker reported to hold."""

    at_s: float
    """Kafka's time of the record."""
    is_report: bool
    broker: str
    version: tuple[int, int]
    """Epoch and seq."""
    limit: float


class Topics:
    """Limits and reports of the group, from the beginning of their topics on."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._consumer = KafkaConsumer(
            LIMITS,
            REPORTS,
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            group_id=None,
        )
        self.events: list[Event] = []

    def close(self) -> None:
        self._consumer.close()

    def read(self) -> None:
        for records in self._consumer.poll(timeout_ms=200).values():
            for record in records:
                found = _limits if record.topic == LIMITS else _reports
                self.events += found(record.timestamp / 1000, record.value)
        self.events.sort()

    def limit(self, broker: str) -> float:
        """The newest limit that a broker reported to hold; NaN: none."""
        found = [each.limit for each in self.events if each.is_report and each.broker == broker]
        return found[-1] if found else np.nan


def _limits(at_s: float, value: bytes) -> Iterator[Event]:
    message = decode_limits(value)
    for group, limits in zip(message.groups, message.limits, strict=True):
        assert group == GROUP
        version = (message.epoch, message.seq)
        yield Event(at_s, False, message.broker, version, float(limits[BYTES]))


def _reports(at_s: float, value: bytes) -> Iterator[Event]:
    report = UsageReport.FromString(value)
    if GROUP in report.groups and report.applied_seqs:
        row = [*report.groups].index(GROUP)
        version = (report.applied_epoch, report.applied_seqs[row])
        limit = report.limit_publish_bytes_per_s[row]
        if not np.isnan(limit):
            yield Event(at_s, True, report.broker, version, limit)


def most_in_force(events: list[Event]) -> list[tuple[float, float]]:
    """After each event: its time, and the sum of what brokers may use at most."""
    sums = []
    possible: dict[str, dict[tuple[int, int], float]] = {}
    for event in events:
        of_broker = possible.setdefault(event.broker, {})
        if event.is_report:
            # A broker that acknowledges a limit uses no older one any more.
            for version in [version for version in of_broker if version < event.version]:
                del of_broker[version]
        else:
            of_broker[event.version] = event.limit
        sums.append(
            (event.at_s, sum(max(each.values(), default=0.0) for each in possible.values()))
        )
    return sums


def test_use_moves_between_brokers_and_limits_never_exceed_the_quota(tmp_path: Path) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(cluster_in(tmp_path / "kafka"))
        for topic in (LIMITS, REPORTS):
            cluster.create_topic(topic, [1])
        cluster.create_topic(ATTACHMENTS, [1], configs=COMPACTED)
        cluster.create_topic(LOAD, [1, 2])
        job = stack.enter_context(RunningJob(conf_in(tmp_path / "job", cluster)))
        put_quota(job.settings)
        topics = stack.enter_context(closing(Topics(cluster)))
        first = Load(cluster.bootstrap_servers, "limited", partition=0)
        stack.callback(first.end)

        def wait_for(expected: dict[str, float]) -> None:
            def holds() -> bool:
                topics.read()
                limits = {broker: topics.limit(broker) for broker in expected}
                return limits == pytest.approx(expected, abs=0.1 * QUOTA)

            job.wait_until(holds, within_s=120)

        wait_for({FIRST: QUOTA, SECOND: 0.0})
        begun = min(event.at_s for event in topics.events if not event.is_report)
        while time.time() < begun + PROMISED_AFTER_S:
            topics.read()

        # The other broker wakes: half of what the first one has moves, while it is in use.
        second = Load(cluster.bootstrap_servers, "limited", partition=1)
        stack.callback(second.end)
        wait_for({FIRST: QUOTA / 2, SECOND: QUOTA / 2})
        before = second.sent
        both = first.rate_over(5) + (second.sent - before) / 5
        assert both == pytest.approx(QUOTA, rel=0.15)

        # The first one falls silent, and all moves.
        first.pause()
        wait_for({FIRST: 0.0, SECOND: QUOTA})
        first.resume()
        wait_for({FIRST: QUOTA / 2, SECOND: QUOTA / 2})

        promised = [most for at_s, most in most_in_force(topics.events) if at_s > begun]
        assert max(promised) <= QUOTA * 1.001
        assert_cuts_come_first(topics.events)


def assert_cuts_come_first(events: list[Event]) -> None:
    """A broker held to its cut, and said so, before the other one's limit was raised by that."""
    held = {FIRST: 0.0, SECOND: 0.0}
    reported = {FIRST: 0.0, SECOND: 0.0}
    sent: dict[tuple[str, tuple[int, int]], float] = {}
    raises = 0
    for event in events:
        if event.is_report:
            reported[event.broker] = event.limit
            most = max(sent[event.broker, event.version], LEAST)
            assert event.limit <= most * 1.001
        else:
            sent[event.broker, event.version] = event.limit
            other = SECOND if event.broker == FIRST else FIRST
            if event.limit > held[event.broker] + 0.05 * QUOTA:
                raises += 1
                assert event.limit + reported[other] <= QUOTA * 1.001
            held[event.broker] = event.limit
    assert raises >= 4
