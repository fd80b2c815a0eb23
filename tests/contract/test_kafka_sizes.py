"""Records that hold more than a report: who refuses them, and what the job says of the topics."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaError, MessageSizeTooLargeError
from pyspark.sql import SparkSession

from quotaplane.transport import open_transport
from tests.contract.rigs import KafkaRig, drain

MOST = 8 << 20
ADVISED = {"compression.type": "uncompressed", "max.message.bytes": str(MOST)}
"""As docs/operate/kafka.md creates the topics of reports."""


def send_zeros(rig: KafkaRig, topic: str, size: int) -> None:
    """A few kB on their way."""
    producer = KafkaProducer(
        bootstrap_servers=rig.server.bootstrap_servers,
        compression_type="zstd",
        max_request_size=2**31 - 1,
    )
    try:
        producer.send(topic, bytes(size), b"a", partition=0).get(120)
    finally:
        producer.close(timeout=60)


def test_a_topic_as_advised_refuses_what_decompresses_to_more_than_a_report(
    kafka_rig: KafkaRig, spark: SparkSession, tmp_path: Path
) -> None:
    advised = kafka_rig.server.create_topic(f"sizes-{uuid.uuid4().hex[:8]}", configs=ADVISED)
    for size in (MOST + 1, 100_000_000):
        with pytest.raises(MessageSizeTooLargeError):
            send_zeros(kafka_rig, advised, size)
    # More than the server's heap of 512 MB: it refuses this one request, and goes on.
    with pytest.raises(KafkaError):
        send_zeros(kafka_rig, advised, 600_000_000)
    send_zeros(kafka_rig, advised, 8_000_000)
    transport = open_transport(kafka_rig.settings(report_topics=(advised,)))
    (arrived,) = drain(spark, transport, tmp_path / "checkpoint")
    assert arrived.value == bytes(8_000_000)
    assert list(transport.check(MOST)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"compression.type": "producer"},
        {"compression.type": "zstd"},
        {"max.message.bytes": str(2 * MOST)},
    ],
)
def test_topics_that_take_larger_records_are_named_in_one_line(
    kafka_rig: KafkaRig, change: dict[str, str]
) -> None:
    advised, other = (
        kafka_rig.server.create_topic(f"sizes-{uuid.uuid4().hex[:8]}", configs=ADVISED | more)
        for more in ({}, change)
    )
    (line,) = open_transport(kafka_rig.settings(report_topics=(advised, other))).check(MOST)
    assert repr(other) in line
    assert repr(advised) not in line
    assert "compression.type=uncompressed and max.message.bytes=8388608" in line
    assert "\n" not in line


def test_nothing_is_warned_of_where_nobody_asks(kafka_rig: KafkaRig) -> None:
    assert list(open_transport(kafka_rig.settings()).check()) == []
