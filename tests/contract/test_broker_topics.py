"""A report topic per broker, on real servers: which are read, and which broker each names."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from quotaplane.errors import InputError, TransportError
from quotaplane.settings.transports import brokers_of, topic_of
from quotaplane.transport import open_broker_link, open_transport
from tests.contract.rigs import KafkaRig, PulsarRig, drain

NOON_MS = 1_790_000_000_000


class PerBroker:
    """A rig whose brokers have a report topic each."""

    def __init__(self, rig: KafkaRig | PulsarRig) -> None:
        self.rig = rig
        if isinstance(rig, KafkaRig):
            self.name = f"{rig.limits_topic}-of.{{broker}}"
        else:
            self.name = f"persistent://{rig.namespace}/of-{{broker}}"
        self.settings = rig.settings(report_topics=(self.name,))

    def create(self, broker: str, partitions: int = 1) -> str:
        topic = topic_of(self.name, broker)
        if isinstance(self.rig, KafkaRig):
            return self.rig.server.create_topic(topic, partitions=partitions)
        return self.rig.server.rest.create_topic(
            topic, partitions=partitions if partitions > 1 else 0
        )


@pytest.fixture(params=["kafka", "pulsar"])
def per_broker(request: pytest.FixtureRequest) -> PerBroker:
    return PerBroker(request.getfixturevalue(f"{request.param}_rig"))


def test_each_brokers_topic_is_read_also_one_that_is_new(
    per_broker: PerBroker, spark: SparkSession, tmp_path: Path
) -> None:
    settings, checkpoint = per_broker.settings, tmp_path / "checkpoint"
    with pytest.raises(TransportError, match=r"there is no topic .*create at least one broker's"):
        open_transport(settings).check()
    per_broker.create("b.1", partitions=2)
    per_broker.create("b_2")
    open_transport(settings).check()
    link = open_broker_link(settings)
    link.send_reports(
        [(name, f"{name} {n}".encode(), NOON_MS) for name in ("b.1", "b_2") for n in (1, 2)]
    )
    first = drain(spark, open_transport(settings), checkpoint)
    per_broker.create("b-3")
    link.send_reports([("b-3", b"b-3 1", NOON_MS), ("b.1", b"b.1 3", NOON_MS)])
    second = drain(spark, open_transport(settings), checkpoint)
    with pytest.raises(InputError, match="needs names of letters"):
        link.send_reports([("b 4", b"", NOON_MS)])
    link.close()
    for rows, values in (
        (first, [b"b.1 1", b"b.1 2", b"b_2 1", b"b_2 2"]),
        (second, [b"b-3 1", b"b.1 3"]),
    ):
        assert sorted(row.value for row in rows) == values
        named = brokers_of(settings.report_topics, [row.topic for row in rows])
        assert named == [row.value.split()[0] for row in rows] == [row.key for row in rows]


def test_kafkas_sizes_are_checked_of_each_brokers_topic(kafka_rig: KafkaRig) -> None:
    rig = PerBroker(kafka_rig)
    topics = [rig.create(f"b{number:02d}") for number in range(12)]
    (line,) = open_transport(rig.settings).check(8 << 20)
    assert f"topics {', '.join(map(repr, topics[:10]))} and 2 more can hold records" in line
    offsets = open_transport(rig.settings).offset_since(NOON_MS)
    assert offsets == {topic: {"0": 0} for topic in topics}


def test_keys_of_kafka_arrive_as_they_are(
    kafka_rig: KafkaRig, spark: SparkSession, tmp_path: Path
) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka_rig.server.bootstrap_servers)
    keys = [None, b"", b"\xff\xfe", b"b1", b"x" * 100_000]
    for number, key in enumerate(keys):
        producer.send(kafka_rig.report_topics[0], b"%d" % number, key, timestamp_ms=NOON_MS).get(60)
    producer.close()
    arrived = drain(spark, open_transport(kafka_rig.settings()), tmp_path / "checkpoint")
    assert [row.key for row in sorted(arrived, key=lambda row: row.value)] == keys
