"""Limits of consumers, measured at the consumer, with the windows that the page recommends."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.servers.kafka_server import KafkaServer
from tests.servers.plugged_kafka import Job, Reports, plugged
from tests.waiting import wait_until

pytestmark = pytest.mark.nightly

LIMIT: Final = 2_000_000.0
MESSAGE_BYTES: Final = 1000
MESSAGES: Final = 30_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with plugged(tmp_path_factory.mktemp("fetch")) as server:
        yield server


@pytest.fixture(scope="module")
def reports(server: KafkaServer) -> Iterator[Reports]:
    """The reports of the broker, which limits the client ``reader``."""
    job, reports = Job(server), Reports(server)
    job.create_topics()
    job.attach({"client=reader": "acme"})
    job.limit({"acme": {"dispatch_bytes": LIMIT}})
    reports.wait_for("limit_dispatch_bytes_per_s", "acme", LIMIT)
    yield reports
    reports.close()


class Reader:
    """A consumer of all partitions of a topic, from their beginning."""

    def __init__(self, server: KafkaServer, client_id: str, topic: str, partitions: int) -> None:
        self.of_partition = [0] * partitions
        """Messages received."""
        self._seen: tuple[float, int] = (0.0, 0)
        settings: dict[str, Any] = {
            "bootstrap.servers": server.bootstrap_servers,
            "client.id": client_id,
            "group.id": client_id,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "statistics.interval.ms": 250,
            "stats_cb": self._statistics,
        }
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])

    def _statistics(self, text: str) -> None:
        seen = json.loads(text)
        self._seen = time.monotonic(), sum(each["rxbytes"] for each in seen["brokers"].values())

    def close(self) -> None:
        self._consumer.close()

    def read(self, within_s: float) -> None:
        for message in self._consumer.consume(1000, within_s):
            assert message.error() is None
            partition = message.partition()
            assert partition is not None
            self.of_partition[partition] += 1

    def rate_over(self, seconds: float) -> float:
        """Bytes per second on the wire from now on."""
        deadline, first = time.monotonic() + seconds, self._seen
        while time.monotonic() < deadline:
            self.read(0.05)
        return (self._seen[1] - first[1]) / (self._seen[0] - first[0])


def filled(server: KafkaServer, partitions: int) -> str:
    """A topic with messages in batches of 16 kB."""
    topic = server.create_topic(f"filled-{partitions}", partitions=partitions)
    producer = Producer(
        {"bootstrap.servers": server.bootstrap_servers, "batch.size": 16_384, "linger.ms": 20}
    )
    for message in range(MESSAGES):
        producer.produce(topic, bytes(MESSAGE_BYTES), partition=message % partitions)
    assert producer.flush(60) == 0
    return topic


@pytest.mark.parametrize("partitions", [1, 8, 32])
def test_a_consumer_gets_its_limit_and_another_one_all(
    server: KafkaServer, reports: Reports, partitions: int
) -> None:
    topic = filled(server, partitions)
    reports.wait_for("dispatch_bytes_per_s", "acme", 0.0)
    with closing(Reader(server, "reader", topic, partitions)) as reader:
        reader.rate_over(3)  # The first window may be filled at once.
        with closing(Reader(server, "other", topic, partitions)) as other:
            begin = time.monotonic()
            while sum(other.of_partition) < MESSAGES:
                other.read(0.2)
                reader.read(0.0)
            assert MESSAGES * MESSAGE_BYTES / (time.monotonic() - begin) > 3 * LIMIT
        assert reader.rate_over(6) == pytest.approx(LIMIT, rel=0.1)
        received = sum(reader.of_partition)
        # Each partition has its turn.
        assert min(reader.of_partition) > received / partitions / 2

        def is_reported() -> bool:
            reader.read(0.0)
            reports.read()
            used = reports.last("dispatch_bytes_per_s")["acme"]
            throttled = reports.last("throttled_dispatch_bytes_per_s")["acme"]
            return used == pytest.approx(LIMIT, rel=0.1) and throttled >= LIMIT / 2

        wait_until(is_reported, 20, said=lambda: str(reports.all[-3:]))
    assert "other" not in {group for report in reports.all for group in report.groups}
