"""Reading Pulsar by the Data Source: restarts, chunks, times, topics that appear, live ones."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pulsar
import pytest
from chispa import assert_df_equality
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from quotaplane.pulsar.source import PulsarDataSource
from quotaplane.pulsar.topic_pool import TopicPool
from quotaplane.transport import open_transport
from tests.contract.pulsar_following import again, everything, send, send_batch, source
from tests.contract.rigs import PulsarRig, drain, started
from tests.servers.pulsar_clients import quiet_client
from tests.waiting import wait_until

NOON_MS = 1_790_000_000_000


@pytest.mark.parametrize("stop_after", [1, 2, 3, 5])
def test_a_restart_amid_a_batch_goes_on_with_the_next_message(
    pulsar_rig: PulsarRig,
    client: pulsar.Client,
    follow: Callable[..., TopicPool],
    stop_after: int,
) -> None:
    topic = pulsar_rig.report_topics[1]
    send_batch(client, topic, b"0", b"1", b"2", b"3")
    send_batch(client, topic, b"4", b"5", b"6")
    first = follow(topic, max_messages_per_trigger=stop_after)
    begin = first.begin()
    rows, end = first.read(begin)
    assert [row.value for row in rows] == [b"%d" % number for number in range(stop_after)]
    assert again(source(pulsar_rig, topic), begin, end) == [row.value for row in rows]
    rest, last = everything(follow(topic), end)
    assert rest == [b"%d" % number for number in range(stop_after, 7)]
    assert again(source(pulsar_rig, topic), end, last) == rest


def test_a_message_whose_chunks_lie_around_an_offset_is_not_lost(
    pulsar_rig: PulsarRig, client: pulsar.Client, follow: Callable[..., TopicPool]
) -> None:
    topic = pulsar_rig.report_topics[1]
    most = pulsar_rig.server.rest.call("GET", "brokers/configuration/runtime")["maxMessageSize"]
    size = 2 * int(most) + 1
    other = quiet_client(pulsar_rig.server.service_url)
    small = other.create_producer(topic)
    large = client.create_producer(topic, chunking_enabled=True)
    # After each chunk the broker reads from the producer again only when the rate has paid for it.
    rest = pulsar_rig.server.rest
    slow = {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": int(most) // 2}
    rest.call("POST", f"{topic}/publishRate", slow)
    wait_until(lambda: rest.call("GET", f"{topic}/publishRate?applied=true"))
    sent: list[Any] = []
    large.send_async(bytes(size), lambda *result: sent.append(result))
    wait_until(lambda: rest.counter(topic))
    between = [small.send(b"first")]
    while not sent:
        between.append(small.send(b"small"))
    other.close()
    whole = str(sent[0][1])
    first_chunk, last_chunk = map(int, re.findall(r",(\d+),-1,-1\)", whole))
    found = [each for each in between if first_chunk < each.entry_id() < last_chunk]
    assert found, f"nothing came between the chunks of {whole}"
    rest.call("DELETE", f"{topic}/publishRate")
    start = {topic: f"{found[0].ledger_id()}:{found[0].entry_id()}:-1"}
    values, _ = everything(follow(topic), start)
    assert sorted(map(len, filter(None, values)))[-1] == size
    # A query that begins at the end knows where that is, too.
    send(client, topic, bytes(int(most) + 1), chunking_enabled=True)
    newest = follow(topic, starting="latest")
    _, begin = newest.read(newest.begin())
    send(client, topic, b"after")
    assert everything(newest, begin)[0] == [b"after"]


def test_a_query_may_begin_at_a_time(
    pulsar_rig: PulsarRig, client: pulsar.Client, follow: Callable[..., TopicPool]
) -> None:
    topic = pulsar_rig.report_topics[0]
    send(client, topic, b"before", b"before, too")
    time.sleep(0.02)
    since_ms = time.time_ns() // 1_000_000
    follower = follow(topic, starting=since_ms)
    begin = follower.begin()
    assert everything(follower, begin) == ([], begin)
    send(client, topic, b"1", b"2", b"3")
    values, end = everything(follower, begin)
    assert sorted(filter(None, values)) == [b"1", b"2", b"3"]
    assert sorted(again(source(pulsar_rig, topic), begin, end)) == sorted(filter(None, values))


def test_a_first_batch_that_failed_loses_nothing(
    pulsar_rig: PulsarRig, client: pulsar.Client, spark: SparkSession, tmp_path: Path
) -> None:
    spark.dataSource.register(PulsarDataSource)
    topic = pulsar_rig.report_topics[1]
    send(client, topic, b"before")
    options = source(pulsar_rig, topic, starting="latest")
    stream = spark.readStream.format("pulsar").options(**options).load()
    came: list[bytes] = []

    def fail(batch: DataFrame, number: int) -> None:
        raise RuntimeError("not committed")

    def collect(batch: DataFrame, number: int) -> None:
        came.extend(bytes(row.value) for row in batch.collect())

    checkpoint = str(tmp_path / "checkpoint")
    failing = stream.writeStream.foreachBatch(fail).option("checkpointLocation", checkpoint)
    with pytest.raises(StreamingQueryException, match="not committed"):
        started(failing)
    send(client, topic, b"between 1", b"between 2")
    writer = stream.writeStream.foreachBatch(collect).option("checkpointLocation", checkpoint)
    query = started(writer)
    try:
        send(client, topic, b"after")
        query.processAllAvailable()
    finally:
        query.stop()
    assert came == [b"between 1", b"between 2", b"after"]


def test_topics_and_partitions_that_appear_are_followed(
    pulsar_rig: PulsarRig, client: pulsar.Client, follow: Callable[..., TopicPool]
) -> None:
    pattern = f"persistent://{pulsar_rig.namespace}/reports-.*"
    follower = follow(topics_pattern=pattern, starting="latest")
    begin = follower.begin()
    assert sorted(name.rpartition("/")[2] for name in begin) == [
        "reports-1-partition-0",
        "reports-1-partition-1",
        "reports-2",
    ]
    send(client, pulsar_rig.topic("reports-3"), b"new topic")
    send(client, pulsar_rig.topic("others"), b"another")
    pulsar_rig.server.rest.call("POST", f"{pulsar_rig.report_topics[0]}/partitions", 3)
    send(client, f"{pulsar_rig.report_topics[0]}-partition-2", b"new partition")
    values, end = everything(follower, begin)
    assert sorted(filter(None, values)) == [b"new partition", b"new topic"]
    assert len(end) == 5
    # Named, not matched, a topic is followed just so, without the REST API.
    named = follow(pulsar_rig.report_topics[0], admin_url=None)
    assert everything(named, named.begin())[0] == [b"new partition"]


def test_a_message_without_a_value_is_an_empty_report(
    pulsar_rig: PulsarRig, client: pulsar.Client, spark: SparkSession, tmp_path: Path
) -> None:
    topic = pulsar_rig.report_topics[1]
    producer = client.create_producer(topic)
    sent = producer.send(None, partition_key="a", event_timestamp=NOON_MS)
    (arrived,) = drain(spark, open_transport(pulsar_rig.settings()), tmp_path / "checkpoint")
    assert (arrived.value, arrived.published_at_ms) == (b"", NOON_MS)
    assert arrived.position == f"{topic}@{sent.ledger_id()}:{sent.entry_id()}:-1"


def test_live_topics_are_read_beside_others(
    pulsar_rig: PulsarRig, client: pulsar.Client, follow: Callable[..., TopicPool]
) -> None:
    kept, live = pulsar_rig.report_topics[1], f"non-persistent://{pulsar_rig.namespace}/live"
    producer = client.create_producer(live)
    producer.send(b"nobody hears")
    send(client, kept, b"kept 1")
    options = source(pulsar_rig, f"{kept},{live}")
    follower = follow(f"{kept},{live}", max_messages_per_trigger=3)
    begin = follower.begin()

    def listening() -> int:
        """How many readers are sent what is published; they ask for it after they subscribed."""
        stats = pulsar_rig.server.rest.call("GET", f"{live}/stats")
        readers = [c for s in stats["subscriptions"].values() for c in s["consumers"]]
        return sum(reader["availablePermits"] > 0 for reader in readers)

    wait_until(lambda: listening() == 1)
    for number in (1, 2, 3):
        producer.send(b"live %d" % number)
    rows, end = [], begin

    def has(count: int, follower: TopicPool) -> bool:
        nonlocal end
        more, end = follower.read(end)
        assert len(more) <= 3
        rows.extend(more)
        return len(rows) >= count

    wait_until(lambda: has(4, follower))
    assert {row.value for row in rows} == {b"kept 1", b"live 1", b"live 2", b"live 3"}
    # Between two micro-batches nothing is missed; after a restart the rest is gone, and told apart.
    producer.send(b"live 4")
    wait_until(lambda: has(5, follower))
    assert again(options, begin, end) == [b"kept 1"]
    producer.send(b"nobody hears")
    restarted = follow(f"{kept},{live}")
    more, end = restarted.read(end)
    assert more == []
    wait_until(lambda: listening() == 2)
    producer.send(b"live 5")
    wait_until(lambda: has(6, restarted))
    assert len({(row.topic, row.message_id) for row in rows}) == len(rows) == 6
    assert end[live].endswith("#5")


same_rows = partial(
    assert_df_equality, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True
)


def test_what_spark_writes_it_reads_again(
    pulsar_rig: PulsarRig, spark: SparkSession, tmp_path: Path
) -> None:
    topic, copy = pulsar_rig.topic("numbers", partitions=2), pulsar_rig.topic("copy")
    spark.dataSource.register(PulsarDataSource)
    at = F.timestamp_millis(F.lit(NOON_MS) + F.col("id"))
    numbers = spark.range(100).select(
        F.concat(F.lit("k"), F.col("id") % 7).alias("key"),
        F.col("id").cast("string").cast("binary").alias("value"),
        at.alias("event_time"),
        F.create_map(F.lit("half"), (F.col("id") / 2).cast("string")).alias("properties"),
    )
    options = source(pulsar_rig, topic)
    numbers.write.format("pulsar").options(**options).mode("append").save()
    read = spark.read.format("pulsar").options(**options).load()
    assert read.rdd.getNumPartitions() == 2
    assert read.columns == [
        *("key", "value", "topic", "message_id", "publish_time", "event_time", "properties"),
    ]
    columns = ["key", "value", "event_time", F.expr("properties['half']").alias("half")]
    same_rows(read.select(*columns), numbers.select(*columns))
    assert read.select("topic", "message_id").distinct().count() == 100

    stream = spark.readStream.format("pulsar").options(**options).load()
    started(
        stream.select("key", "value", F.lit(copy).alias("topic"))
        .writeStream.format("pulsar")
        .options(**source(pulsar_rig))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    ).stop()
    copied = spark.read.format("pulsar").options(**source(pulsar_rig, copy)).load()
    same_rows(copied.select("key", "value"), numbers.select("key", "value"))
