"""What only Pulsar has: its logins, topics that come and go, data that is gone, live topics."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from quotaplane.errors import ConfigError, TransportError
from quotaplane.pulsar.follower import Follower, read_between
from quotaplane.pulsar.options import parse_options
from quotaplane.pulsar.position import Offset
from quotaplane.pulsar.topics import last_entry
from quotaplane.settings import PulsarTransport
from quotaplane.transport import Message, open_broker_link, open_transport
from quotaplane.transport import pulsar as transport_pulsar
from tests.contract.rigs import UNREACHABLE, PulsarRig, drain
from tests.contract.test_transport import wait_until
from tests.servers.pulsar_security import STRANGER, Issuer
from tests.servers.pulsar_server import PulsarServer

NOON_MS = 1_790_000_000_000


@pytest.fixture
def client(pulsar_rig: PulsarRig) -> Iterator[pulsar.Client]:
    client = pulsar.Client(
        pulsar_rig.server.service_url,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"),
    )
    yield client
    client.close()


@pytest.fixture
def follow(pulsar_rig: PulsarRig) -> Iterator[Callable[..., Follower]]:
    """Opens what a streaming query reads with; what the test forgets is closed."""
    opened: list[Follower] = []

    def open_follower(topic: str = "", **options: Any) -> Follower:
        opened.append(Follower(parse_options(source(pulsar_rig, topic, **options))))
        return opened[-1]

    yield open_follower
    for follower in opened:
        follower.close()


def source(rig: PulsarRig, topic: str = "", **options: Any) -> dict[str, str]:
    given = {
        "service_url": rig.server.service_url,
        "admin_url": rig.server.admin_url,
        "starting": "earliest",
        "discovery_interval_s": 0,
        **({"topics": topic} if topic else {}),
        **options,
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def everything(follower: Follower, start: Offset) -> tuple[list[bytes | None], Offset]:
    """What comes until nothing more does."""
    values: list[bytes | None] = []
    while True:
        rows, end = follower.read(start)
        if not rows:
            return values, end
        values += [row.value for row in rows]
        start = end


def again(options: dict[str, str], start: Offset, end: Offset) -> list[bytes]:
    """What a restarted query reads of a batch that was not committed."""
    batches = list(read_between(parse_options(options), start, end))
    return [value for batch in batches for value in batch["value"].to_pylist()]


def send(client: pulsar.Client, topic: str, *values: bytes, **options: Any) -> list[Any]:
    producer = client.create_producer(topic, **options)
    ids = [producer.send(value) for value in values]
    producer.close()
    return ids


def send_batch(client: pulsar.Client, topic: str, *values: bytes) -> None:
    """All of them in one entry."""
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=10_000
    )
    for value in values:
        producer.send_async(value, lambda *_: None)
    producer.flush()
    producer.close()


# Reading


@pytest.mark.parametrize("stop_after", [1, 2, 3, 5])
def test_a_restart_amid_a_batch_goes_on_with_the_next_message(
    pulsar_rig: PulsarRig,
    client: pulsar.Client,
    follow: Callable[..., Follower],
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
    pulsar_rig: PulsarRig, client: pulsar.Client, follow: Callable[..., Follower]
) -> None:
    topic = pulsar_rig.report_topics[1]
    most = pulsar_rig.server.rest.call("GET", "brokers/configuration/runtime")["maxMessageSize"]
    size = 2 * int(most) + 1
    other = pulsar.Client(
        pulsar_rig.server.service_url,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"),
    )
    small = other.create_producer(topic)
    large = client.create_producer(topic, chunking_enabled=True)
    sent: list[Any] = []
    large.send_async(bytes(size), lambda *result: sent.append(result))
    between = [small.send(b"first")]
    while not sent:
        between.append(small.send(b"small"))
    other.close()
    whole = str(sent[0][1])
    first_chunk, last_chunk = map(int, re.findall(r",(\d+),-1,-1\)", whole))
    found = [each for each in between if first_chunk < each.entry_id() < last_chunk]
    assert found, f"nothing came between the chunks of {whole}"
    start = {topic: f"{found[0].ledger_id()}:{found[0].entry_id()}:-1"}
    rest, _ = everything(follow(topic), start)
    assert sorted(map(len, filter(None, rest)))[-1] == size
    # A query that begins at the end knows where that is, too.
    send(client, topic, bytes(int(most) + 1), chunking_enabled=True)
    newest = follow(topic, starting="latest")
    begin = newest.begin()
    send(client, topic, b"after")
    assert everything(newest, begin)[0] == [b"after"]


def test_a_query_may_begin_at_a_time(
    pulsar_rig: PulsarRig, client: pulsar.Client, follow: Callable[..., Follower]
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


def test_topics_and_partitions_that_appear_are_followed(
    pulsar_rig: PulsarRig, client: pulsar.Client, follow: Callable[..., Follower]
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
    path = pulsar_rig.report_topics[0].replace("://", "/")
    pulsar_rig.server.rest.call("POST", f"{path}/partitions", 3)
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


# What is gone


def forget(rig: PulsarRig, topic: str) -> None:
    """Let retention delete what is there: the topic begins a new ledger, and drops the others."""
    rest, path = rig.server.rest, topic.replace("://", "/")
    rest.call(
        "POST",
        f"namespaces/{rig.namespace}/retention",
        {
            "retentionTimeInMinutes": 0,
            "retentionSizeInMB": 0,
        },
    )
    before = rest.call("GET", f"{path}/internalStats")["ledgers"][0]["ledgerId"]
    rest.call("PUT", f"{path}/unload")

    def is_gone() -> bool:
        rest.call("POST", f"{path}/trim")
        ledgers = rest.call("GET", f"{path}/internalStats")["ledgers"]
        return all(ledger["ledgerId"] > before for ledger in ledgers)

    wait_until(is_gone)


@pytest.mark.parametrize("how", ["trimmed", "made anew"])
def test_what_is_gone_stops_a_restart_or_is_left_out(
    pulsar_rig: PulsarRig,
    client: pulsar.Client,
    follow: Callable[..., Follower],
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    topic = pulsar_rig.report_topics[1]
    send(client, topic, b"read")
    first = follow(topic)
    _, end = everything(first, first.begin())
    first.close()
    send(client, topic, b"never read")
    if how == "trimmed":
        forget(pulsar_rig, topic)
    else:
        pulsar_rig.server.rest.call("DELETE", f"{topic.replace('://', '/')}?force=true")
        pulsar_rig.server.rest.create_topic(topic)
    send(client, topic, b"left")
    with pytest.raises(TransportError) as caught:
        follow(topic).read(end)
    for part in (topic, f"after {end[topic]} may be gone", "set fail_on_data_loss to false"):
        assert part in str(caught.value)
    values, last = everything(follow(topic, fail_on_data_loss=False), end)
    assert values == [b"left"]
    assert "may be gone" in caplog.text
    assert everything(follow(topic), last) == ([], last)
    # A batch that was planned before can't be read again whole.
    with pytest.raises(TransportError, match="may be gone"):
        again(source(pulsar_rig, topic), {topic: "earliest"}, end)


def test_an_idle_topic_that_was_emptied_is_no_loss(
    pulsar_rig: PulsarRig, client: pulsar.Client, follow: Callable[..., Follower]
) -> None:
    topic = pulsar_rig.report_topics[1]
    send(client, topic, b"read")
    first = follow(topic)
    _, end = everything(first, first.begin())
    first.close()
    forget(pulsar_rig, topic)
    for admin_url in (pulsar_rig.server.admin_url, None):
        restarted = follow(topic, admin_url=admin_url)
        assert restarted.read(end) == ([], end)
    send(client, topic, b"new")
    assert everything(restarted, end)[0] == [b"new"]


def test_the_rest_api_knows_what_came_and_went(
    pulsar_rig: PulsarRig, client: pulsar.Client, follow: Callable[..., Follower]
) -> None:
    topic = pulsar_rig.report_topics[1]
    send(client, topic, b"read")
    first = follow(topic)
    _, end = everything(first, first.begin())
    first.close()
    send(client, topic, b"never read")
    forget(pulsar_rig, topic)
    with pytest.raises(TransportError, match="may be gone"):
        follow(topic).read(end)
    # Who may not ask it can't tell this from an idle topic: docs/pulsar.md says so.
    assert follow(topic, admin_url=None).read(end) == ([], end)


# Live topics


def test_live_topics_are_read_beside_others(
    pulsar_rig: PulsarRig, client: pulsar.Client, follow: Callable[..., Follower]
) -> None:
    kept, live = pulsar_rig.report_topics[1], f"non-persistent://{pulsar_rig.namespace}/live"
    producer = client.create_producer(live)
    producer.send(b"nobody hears")
    send(client, kept, b"kept 1")
    options = source(pulsar_rig, f"{kept},{live}")
    follower = follow(f"{kept},{live}", max_messages_per_trigger=3)
    begin = follower.begin()
    for number in (1, 2, 3):
        producer.send(b"live %d" % number)
    rows = []
    end = begin

    def has(count: int) -> bool:
        nonlocal end
        more, end = follower.read(end)
        assert len(more) <= 3
        rows.extend(more)
        return len(rows) >= count

    wait_until(lambda: has(4))
    assert {row.value for row in rows} == {b"kept 1", b"live 1", b"live 2", b"live 3"}
    # Between two micro-batches nothing is missed; after a restart the rest is gone, and told apart.
    producer.send(b"live 4")
    wait_until(lambda: has(5))
    assert again(options, begin, end) == [b"kept 1"]
    producer.send(b"nobody hears")
    restarted = follow(f"{kept},{live}")
    more, end = restarted.read(end)
    assert more == []
    producer.send(b"live 5")

    def came() -> bool:
        nonlocal end
        found, end = restarted.read(end)
        rows.extend(found)
        return len(rows) == 6

    wait_until(came)
    assert len({(row.topic, row.message_id) for row in rows}) == 6
    assert end[live].endswith("#5")


# The Data Source in Spark


def test_what_spark_writes_it_reads_again(
    pulsar_rig: PulsarRig, spark: SparkSession, tmp_path: Path
) -> None:
    topic, copy = pulsar_rig.topic("numbers", partitions=2), pulsar_rig.topic("copy")
    open_transport(pulsar_rig.settings()).read_recorded(spark)  # registers the source
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
    same = read.select("key", "value", "event_time", F.expr("properties['half']").alias("half"))
    wanted = numbers.select("key", "value", "event_time", F.expr("properties['half']"))
    assert sorted(same.collect()) == sorted(wanted.collect())
    assert read.select("topic", "message_id").distinct().count() == 100

    stream = spark.readStream.format("pulsar").options(**options).load()
    query = (
        stream.select("key", "value", F.lit(copy).alias("topic"))
        .writeStream.format("pulsar")
        .options(**source(pulsar_rig))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    copied = spark.read.format("pulsar").options(**source(pulsar_rig, copy)).load()
    assert sorted(copied.select("key", "value").collect()) == sorted(
        numbers.select("key", "value").collect()
    )


# Who may, and what is told otherwise


def tls(server: PulsarServer, **security: Any) -> dict[str, Any]:
    assert server.certificates is not None
    return {
        "service_url": server.service_url_tls,
        "admin_url": server.admin_url_tls,
        "security": {"ca_file": str(server.certificates.authority), **security},
    }


def with_token(server: PulsarServer, folder: Path) -> dict[str, Any]:
    return tls(server, token=server.admin_token)


def with_token_file(server: PulsarServer, folder: Path) -> dict[str, Any]:
    (folder / "token").write_text(f"{server.admin_token}\n")
    return tls(server, token_file=str(folder / "token"))


def with_certificate(server: PulsarServer, folder: Path) -> dict[str, Any]:
    assert server.certificates is not None
    return tls(
        server,
        certificate_file=str(server.certificates.client_certificate),
        key_file=str(server.certificates.client_key),
    )


@pytest.fixture
def secure_rig(secure_pulsar_server: PulsarServer) -> PulsarRig:
    return PulsarRig(secure_pulsar_server)


@pytest.mark.parametrize("security", [with_token, with_token_file, with_certificate, None])
def test_the_whole_way_is_encrypted_and_known(
    secure_rig: PulsarRig, tmp_path: Path, security: Any
) -> None:
    with Issuer(secure_rig.server.admin_token or "") as issuer:
        oauth2 = {
            "issuer_url": issuer.url,
            "audience": "pulsar",
            "private_key_file": str(issuer.write_key_file(tmp_path / "key.json")),
        }
        more = (
            security(secure_rig.server, tmp_path)
            if security
            else tls(secure_rig.server, oauth2=oauth2)
        )
        settings = secure_rig.settings(**more)
        transport, link = open_transport(settings), open_broker_link(settings)
        transport.check()
        link.send_reports([("a", b"report", NOON_MS)])
        transport.publish([Message("a", b"limits")])
        assert link.poll_limits() == [Message("a", b"limits")]
        follower = Follower(parse_options(transport_pulsar.source_options(settings)))
        assert everything(follower, follower.begin())[0] == [b"report"]
        for each in (transport, link, follower):
            each.close()


def test_a_running_query_does_not_show_secrets(
    secure_rig: PulsarRig, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    token = secure_rig.server.admin_token or ""
    settings = secure_rig.settings(**tls(secure_rig.server, token=token))
    recorded = open_transport(settings).read_recorded(spark)
    recorded.explain(extended=True)
    assert recorded.collect() == []
    with pytest.raises(Exception, match="nonsense") as caught:
        recorded.selectExpr("nonsense")
    shown = capsys.readouterr().out
    assert "Physical Plan" in shown
    assert token not in shown + str(caught.value) + repr(settings)


@pytest.mark.parametrize("whose", ["a wrong one", "a stranger's", "none"])
def test_a_wrong_token_is_one_line_without_it(secure_rig: PulsarRig, whose: str) -> None:
    stranger = secure_rig.server.stranger_token
    token = {
        "a wrong one": "eyJhbGciOiJIUzI1NiJ9.e30.wrong",
        "a stranger's": stranger,
        "none": None,
    }
    given = tls(secure_rig.server, token=token[whose])
    for admin_url in (given["admin_url"], None):
        given |= {"admin_url": admin_url, "connect_timeout_s": 1.0}
        settings = secure_rig.settings(**given)
        with pytest.raises(TransportError, match=r"check .*security") as caught:
            open_transport(settings).check()
        assert "\n" not in str(caught.value)
        assert token[whose] is None or token[whose] not in str(caught.value)


def test_the_right_to_consume_is_enough_to_read(secure_rig: PulsarRig) -> None:
    server, topic = secure_rig.server, secure_rig.report_topics[1]
    link = open_broker_link(secure_rig.settings(**tls(server, token=server.admin_token)))
    link.send_reports([("a", b"report", NOON_MS)])
    link.close()
    server.rest.call(
        "POST", f"namespaces/{secure_rig.namespace}/permissions/{STRANGER}", ["consume"]
    )
    settings = secure_rig.settings(**tls(server, token=server.stranger_token))
    transport = open_transport(settings)
    transport.check()
    with pytest.raises(TransportError, match="the role may not do this"):
        transport.publish([Message("a", b"limits")])
    transport.close()
    given = transport_pulsar.source_options(settings)
    given["topics_pattern"] = f"persistent://{secure_rig.namespace}/reports-.*"
    del given["topics"]
    follower = Follower(parse_options(given))
    assert everything(follower, follower.begin())[0] == [b"report"]
    follower.close()
    assert last_entry(settings, topic) is not None


@pytest.mark.parametrize(
    "reach", [lambda settings: open_transport(settings).check(), open_broker_link]
)
@pytest.mark.parametrize(
    ("url", "why"),
    [(f"pulsar://{UNREACHABLE}", "refused"), ("pulsar+ssl://{plain}", "SSL|EOF|closed|reset")],
)
def test_an_unreachable_cluster_is_told_in_time(
    pulsar_rig: PulsarRig, reach: Callable[[PulsarTransport], object], url: str, why: str
) -> None:
    url = url.format(plain=pulsar_rig.server.service_url.removeprefix("pulsar://"))
    settings = pulsar_rig.settings(service_url=url, admin_url=None, connect_timeout_s=1.0)
    with pytest.raises(TransportError, match=rf"{re.escape(url)}: can't be .*({why})") as caught:
        reach(settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["report_topics", "limits_topic"])
@pytest.mark.parametrize("admin", [True, False])
def test_a_missing_topic_is_named_and_not_created(
    pulsar_rig: PulsarRig, key: str, admin: bool
) -> None:
    rest, namespace = pulsar_rig.server.rest, pulsar_rig.namespace
    name = f"persistent://{namespace}/nowhere"
    more: dict[str, Any] = {key: (name,) if key == "report_topics" else name}
    if not admin:
        # Without the REST API, only such a cluster can say that a topic is missing.
        rest.call(
            "POST", f"namespaces/{namespace}/autoTopicCreation", {"allowAutoTopicCreation": False}
        )
        more["admin_url"] = None
    with pytest.raises(TransportError, match=f"'{name}'.* does not exist"):
        open_transport(pulsar_rig.settings(**more)).check()
    assert name not in rest.call("GET", f"persistent/{namespace}")


def test_a_missing_certificate_file_is_a_config_error(
    pulsar_rig: PulsarRig, tmp_path: Path
) -> None:
    security = {"ca_file": str(tmp_path / "none.pem")}
    with pytest.raises(ConfigError, match=r"transport\.security\.ca_file: .*none\.pem"):
        open_transport(pulsar_rig.settings(security=security)).check()


# Limits


@pytest.mark.parametrize("codec", ["none", "lz4", "zlib", "zstd", "snappy"])
def test_limits_are_compressed_as_configured(pulsar_rig: PulsarRig, codec: str) -> None:
    settings = pulsar_rig.settings(compression=codec)
    transport, link = open_transport(settings), open_broker_link(settings)
    limits = [Message("a", b"x" * 100_000), Message("b", b"y" * 100_000)]
    transport.publish(limits)
    assert sorted(link.poll_limits()) == limits
    stats = pulsar_rig.server.rest.call(
        "GET", f"{settings.limits_topic.replace('://', '/')}/partitioned-stats"
    )
    assert (stats["storageSize"] < 50_000) == (codec != "none")
    transport.close()
    link.close()


def test_a_link_follows_new_partitions(
    pulsar_rig: PulsarRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_pulsar, "PARTITIONS_MAX_AGE_S", 0.0)
    settings = pulsar_rig.settings()
    link = open_broker_link(settings)
    path = pulsar_rig.limits_topic.replace("://", "/")
    pulsar_rig.server.rest.call("POST", f"{path}/partitions", 5)
    transport = open_transport(settings)
    limits = [Message(f"broker-{number}", b"after") for number in range(30)]
    transport.publish(limits)
    assert sorted(link.poll_limits()) == sorted(limits)
    transport.close()
    link.close()


def test_all_outlive_a_restart_of_the_cluster(
    pulsar_rig: PulsarRig, follow: Callable[..., Follower]
) -> None:
    settings = pulsar_rig.settings(connect_timeout_s=2, publish_timeout_s=2)
    transport, link = open_transport(settings), open_broker_link(settings)
    transport.publish([Message("a", b"before")])
    assert link.poll_limits() == [Message("a", b"before")]
    follower = follow(settings.limits_topic)
    values, end = everything(follower, follower.begin())
    assert values == [b"before"]
    pulsar_rig.server.stop()
    try:
        with pytest.raises(TransportError, match=pulsar_rig.server.service_url):
            transport.publish([Message("a", b"during")])
        with pytest.raises(TransportError, match="limits can't be read"):
            link.poll_limits()
        assert follower.read(end) == ([], end)
    finally:
        pulsar_rig.server.start()

    def published() -> bool:
        try:
            transport.publish([Message("a", b"after")])
        except TransportError:
            return False
        return True

    wait_until(published)
    assert link.poll_limits()[-1] == Message("a", b"after")
    read: list[bytes | None] = []

    def followed() -> bool:
        nonlocal end
        more, end = everything(follower, end)
        read.extend(more)
        return read[-1:] == [b"after"]

    wait_until(followed)
    transport.close()
    link.close()
