"""Properties of Kafka alone: codecs, encryption, logins, partitions, and missing clusters."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from quotaplane.errors import MessageTooLargeError, TransportError
from quotaplane.settings import KafkaTransport
from quotaplane.transport import (
    kafka,
    kafka_client,
    open_attachments_link,
    open_broker_link,
    open_transport,
)
from quotaplane.transport.base import Message
from quotaplane.wire.attachments_update import MAX_ATTACHMENTS_BYTES
from tests.contract.rigs import UNREACHABLE, KafkaRig, both_ends, drain, limits_of
from tests.servers.kafka_server import KafkaServer
from tests.waiting import wait_until

NOON_MS = 1_790_000_000_000


@pytest.mark.parametrize("security", [KafkaServer.login, KafkaServer.mutual_tls])
def test_the_whole_way_is_encrypted(
    kafka_rig: KafkaRig, spark: SparkSession, tmp_path: Path, security: Any
) -> None:
    settings = kafka_rig.settings(**security(kafka_rig.server))
    with both_ends(settings) as (transport, link):
        transport.check()
        link.send_reports([("a", b"report", NOON_MS)])
        transport.publish([Message("a", b"limits")])
        assert limits_of(link) == [Message("a", b"limits")]
        arrived = drain(spark, transport, tmp_path / "checkpoint")
        assert [(row.value, row.published_at_ms) for row in arrived] == [(b"report", NOON_MS)]


def test_a_running_query_does_not_show_secrets(
    kafka_rig: KafkaRig, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = kafka_rig.settings(**kafka_rig.server.login())
    reports = open_transport(settings).read_reports(spark)
    reports.explain(extended=True)
    assert "kafka.sasl.jaas.config=*********(redacted)" in capsys.readouterr().out
    link = open_broker_link(settings)
    link.send_reports([("a", b"report", NOON_MS)])
    link.close()

    def fail(batch: DataFrame, _: int) -> None:
        batch.explain(extended=True)
        raise ValueError("on purpose")

    writer = reports.writeStream.foreachBatch(fail).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(StreamingQueryException, match="on purpose") as caught:
        query.awaitTermination(300)
    query.explain(extended=True)
    plans = capsys.readouterr().out
    assert "Physical Plan" in plans
    # A part of the password that every form of escaping leaves alone.
    assert "odd=characters" not in plans + str(caught.value)


def test_a_wrong_password_is_one_line_without_it(
    kafka_rig: KafkaRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = kafka_rig.server.login(password="not-the-password")
    settings = kafka_rig.settings(**wrong, timeout_s=2.0)
    with pytest.raises(TransportError, match=r"check .*transport\.security") as caught:
        open_transport(settings).check()
    assert "\n" not in str(caught.value)
    assert "not-the-password" not in str(caught.value) + caplog.text


@pytest.mark.parametrize(
    "reach", [lambda settings: open_transport(settings).check(), open_broker_link]
)
def test_an_unreachable_cluster_is_told_in_time(
    kafka_rig: KafkaRig,
    monkeypatch: pytest.MonkeyPatch,
    reach: Callable[[KafkaTransport], object],
) -> None:
    waits_ms: list[int] = []

    def noting(client: Any) -> Any:
        def open_client(**options: Any) -> Any:
            waits_ms.append(options["bootstrap_timeout_ms"])
            return client(**options)

        return open_client

    for module, name in ((kafka, "KafkaAdminClient"), (kafka_client, "KafkaConsumer")):
        monkeypatch.setattr(module, name, noting(getattr(module, name)))
    settings = kafka_rig.settings(bootstrap_servers=UNREACHABLE, timeout_s=1.0)
    with pytest.raises(TransportError, match=rf"{UNREACHABLE}.*ECONNREFUSED") as caught:
        reach(settings)
    assert waits_ms == [1000]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["report_topics", "limits_topic", "attachments_topic"])
def test_a_missing_topic_is_named_and_not_created(kafka_rig: KafkaRig, key: str) -> None:
    wrong: Any = ("nowhere",) if key == "report_topics" else "nowhere"
    with pytest.raises(TransportError, match="'nowhere' does not exist"):
        open_transport(kafka_rig.settings(**{key: wrong})).check()
    admin = KafkaAdminClient(bootstrap_servers=kafka_rig.server.bootstrap_servers)
    assert "nowhere" not in admin.list_topics()
    admin.close()


def test_a_topic_of_attachments_that_is_not_compacted_is_named(kafka_rig: KafkaRig) -> None:
    topic = kafka_rig.attachments_topic("compact,delete")
    (line,) = open_transport(kafka_rig.settings(**topic)).check()
    assert f"topic {topic['attachments_topic']!r}: cleanup.policy is compact,delete" in line
    assert "set cleanup.policy=compact (docs/operate/kafka.md)" in line


def test_attachments_that_are_too_large_for_their_topic_are_named(kafka_rig: KafkaRig) -> None:
    settings = kafka_rig.settings(**kafka_rig.attachments_topic(most_bytes=1_048_588))
    parts = [Message(str(part), b"x" * 10_000) for part in range(64)]
    parts[7], parts[9] = Message("7", b"x" * 1_900_000), Message("9", b"x" * MAX_ATTACHMENTS_BYTES)
    with closing(open_transport(settings)) as transport:
        for few in (parts, parts[7:8], parts[9:]):
            with pytest.raises(MessageTooLargeError, match=r"set its max\.message\.bytes"):
                transport.publish_attachments(few)
        others = [part for part in parts if part.key not in ("7", "9")]
        transport.publish_attachments(others)
        with closing(open_attachments_link(settings)) as link:
            assert {*limits_of(link)} == {*others}, "the first ones twice"


def test_a_topic_as_in_the_docs_takes_the_largest_attachments(kafka_rig: KafkaRig) -> None:
    """docs/operate/kafka.md, Topics, has this size."""
    settings = kafka_rig.settings(**kafka_rig.attachments_topic(most_bytes=2_200_000))
    largest = Message("7", bytes(MAX_ATTACHMENTS_BYTES))
    with closing(open_transport(settings)) as transport:
        transport.publish_attachments([largest])
        with closing(open_attachments_link(settings)) as link:
            assert limits_of(link) == [largest]


def test_publishing_to_a_missing_topic_fails(kafka_rig: KafkaRig) -> None:
    settings = kafka_rig.settings(limits_topic="nowhere", timeout_s=1)
    transport = open_transport(settings)
    with pytest.raises(TransportError, match=kafka_rig.server.bootstrap_servers):
        transport.publish([Message("a", b"limits")])
    transport.close()


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_compressed_reports_of_other_programs_are_read(
    kafka_rig: KafkaRig, spark: SparkSession, tmp_path: Path, codec: str
) -> None:
    producer = KafkaProducer(
        bootstrap_servers=kafka_rig.server.bootstrap_servers, compression_type=codec, linger_ms=50
    )
    values = [f"{number}".encode() * 500 for number in range(20)]
    for value in values:
        producer.send(kafka_rig.report_topics[0], value, b"a", timestamp_ms=NOON_MS)
    producer.close(timeout=60)
    arrived = drain(spark, open_transport(kafka_rig.settings()), tmp_path / "checkpoint")
    assert sorted(row.value for row in arrived) == sorted(values)


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "zstd"])
def test_limits_are_compressed_as_configured(kafka_rig: KafkaRig, codec: str) -> None:
    limits = [Message("a", b"x" * 100_000), Message("b", b"y" * 100_000)]
    with both_ends(kafka_rig.settings(compression=codec)) as (transport, link):
        transport.publish(limits)
        assert sorted(limits_of(link)) == limits


def test_reports_come_from_every_topic_and_partition(
    kafka_rig: KafkaRig, spark: SparkSession, tmp_path: Path
) -> None:
    link = open_broker_link(kafka_rig.settings())
    link.send_reports([(f"broker-{number}", b"%d" % number, NOON_MS) for number in range(40)])
    link.close()
    arrived = drain(spark, open_transport(kafka_rig.settings()), tmp_path / "checkpoint")
    assert sorted(int(row.value) for row in arrived) == list(range(40))
    places = {row.position.partition("@")[0] for row in arrived}
    assert places == {f"{topic}/{part}" for topic in kafka_rig.report_topics for part in (0, 1)}


def test_a_record_without_a_value_comes_as_an_empty_report(
    kafka_rig: KafkaRig, spark: SparkSession, tmp_path: Path
) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka_rig.server.bootstrap_servers)
    producer.send(kafka_rig.report_topics[0], None, b"a", partition=1)
    producer.close(timeout=60)
    (arrived,) = drain(spark, open_transport(kafka_rig.settings()), tmp_path / "checkpoint")
    assert arrived.value == b""
    assert arrived.position == f"{kafka_rig.report_topics[0]}/1@0"


def test_a_message_over_the_limit_is_refused(kafka_rig: KafkaRig) -> None:
    transport = open_transport(kafka_rig.settings())
    with pytest.raises(TransportError, match="max_request_size"):
        transport.publish([Message("a", b"x" * (16 << 20))])
    transport.publish([Message("a", b"small")])
    transport.close()


def test_a_link_follows_new_partitions(
    kafka_rig: KafkaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_client, "METADATA_MAX_AGE_MS", 100)
    settings = kafka_rig.settings()
    link = open_broker_link(settings)
    transport = open_transport(settings)
    transport.publish([Message("a", b"before")])
    assert limits_of(link) == [Message("a", b"before")]
    admin = KafkaAdminClient(bootstrap_servers=kafka_rig.server.bootstrap_servers)
    admin.create_partitions({kafka_rig.limits_topic: 5})
    admin.wait_for_topics([kafka_rig.limits_topic])
    admin.close()
    fresh = open_transport(settings)
    limits = [Message(f"broker-{number}", b"after") for number in range(30)]
    fresh.publish(limits)
    came: list[Message] = []

    def all_came() -> bool:
        came.extend(limits_of(link))
        return len(came) >= len(limits)

    wait_until(all_came, 120)
    assert sorted(came) == sorted(limits)
    for each in (transport, fresh, link):
        each.close()


def test_deleted_reports_stop_the_stream_or_are_left_out(
    kafka_rig: KafkaRig, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kafka_rig.report_topics[0]
    producer = KafkaProducer(bootstrap_servers=kafka_rig.server.bootstrap_servers)
    checkpoint = tmp_path / "checkpoint"
    producer.send(topic, b"0", partition=0).get(timeout=60)
    drain(spark, open_transport(kafka_rig.settings()), checkpoint)
    for number in (1, 2, 3):
        producer.send(topic, b"%d" % number, partition=0).get(timeout=60)
    producer.close(timeout=60)
    admin = KafkaAdminClient(bootstrap_servers=kafka_rig.server.bootstrap_servers)
    admin.delete_records({TopicPartition(topic, 0): 3})
    admin.close()
    with pytest.raises(StreamingQueryException):
        drain(spark, open_transport(kafka_rig.settings()), checkpoint)
    arrived = drain(spark, open_transport(kafka_rig.settings(fail_on_data_loss=False)), checkpoint)
    assert [row.value for row in arrived] == [b"3"]


@pytest.mark.nightly
def test_both_ends_outlive_a_restart_of_the_cluster(kafka_rig: KafkaRig) -> None:
    with both_ends(kafka_rig.settings(timeout_s=5)) as (transport, link):
        transport.publish([Message("a", b"before")])
        assert limits_of(link) == [Message("a", b"before")]
        kafka_rig.server.stop()
        try:
            with pytest.raises(TransportError, match=kafka_rig.server.bootstrap_servers):
                transport.publish([Message("a", b"during")])
            with pytest.raises(TransportError, match=r"topic '.+' can't be read"):
                limits_of(link)
        finally:
            kafka_rig.server.start()

        def published() -> bool:
            with suppress(TransportError):
                transport.publish([Message("a", b"after")])
                return True
            return False

        wait_until(published, 120)
        assert limits_of(link)[-1] == Message("a", b"after")


class _NotUtf8(str):
    """The name of a header that Kafka's own clients read, and kafka-python does not."""

    def encode(self, encoding: str = "", errors: str = "") -> bytes:
        return b"\xff\xfe"


def test_a_record_that_the_client_can_not_read_keeps_no_other_from_being_read_again(
    kafka_rig: KafkaRig, spark: SparkSession, tmp_path: Path
) -> None:
    settings = kafka_rig.settings()
    topic = settings.report_topics[0]
    producer = KafkaProducer(bootstrap_servers=settings.bootstrap_servers)
    for number in range(5):
        headers = [(_NotUtf8("h"), b"")] if number in (1, 2) else []
        sent = producer.send(topic, b"%d" % number, headers=headers, partition=0)
        sent.get(timeout=60)  # each in a batch of its own
    producer.close()
    transport = open_transport(settings)
    assert len(drain(spark, transport, tmp_path / "checkpoint")) == 5
    between = {topic: {"0": 0}}, {topic: {"0": 5}}
    rows = [row for batch in transport.read_between(*between) for row in batch.to_pylist()]
    assert [row["value"] for row in rows] == [b"0", b"3", b"4"]
    transport.close()
