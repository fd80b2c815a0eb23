"""Contract of every transport: the rest of the code relies on this and on nothing else."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from chispa.schema_comparer import assert_schema_equality
from pyspark.sql import SparkSession

from quotaplane.settings import DeltaTransport, KafkaTransport, PulsarTransport
from quotaplane.streams.checkpoint import CheckpointFolder
from quotaplane.transport import open_attachments_link, open_broker_link, open_transport
from quotaplane.transport.base import BrokerLink, Message, Polled, Transport
from tests.contract.rigs import Arrived, Rig, drain, limits_of, rig_of, started
from tests.waiting import wait_until

NOON_MS = 1_790_000_000_000
"""A time in 2026; reports of one test are published from here on."""


def numbered(broker: str, first: int, count: int) -> list[tuple[str, bytes, int]]:
    return [
        (broker, f"{broker}:{number}".encode(), NOON_MS + number)
        for number in range(first, first + count)
    ]


def test_check_accepts_topics_that_can_be_used(rig: Rig) -> None:
    transport = open_transport(rig.settings())
    transport.check()
    transport.check()
    transport.close()
    transport.close()


def test_columns_are_exactly_those_of_the_contract(rig: Rig, spark: SparkSession) -> None:
    reports = open_transport(rig.settings()).read_reports(spark)
    assert reports.isStreaming
    columns = "value binary, published_at_ms long, position string, key binary, topic string"
    wanted = spark.createDataFrame([], columns)
    assert_schema_equality(reports.schema, wanted.schema, ignore_nullable=True)


# --- one stream, followed over several starts ----------------------------------------------------

NAMES = ["a", "größe", "pulsar://b1:6650", *(f"b{number}" for number in range(5))]
TIMES_MS = [
    1_790_035_200_001,  # the first second after midnight UTC
    1_773_027_000_123,  # in an hour that summer time leaves out
    NOON_MS + 86_400_000,
]
ODD = [b"", bytes(range(256)), b"\xff\xfe\x00", "größe".encode()]
LARGE = bytes(range(256)) * 36_000  # 9.2 MB
SENT: list[list[tuple[str, bytes, int]]] = [
    [],
    [
        *((name, f"{name}:0".encode(), NOON_MS) for name in NAMES),
        *(("odd", value, at) for value, at in itertools.product(ODD, TIMES_MS)),
    ],
    [*numbered("a", 1, 5), ("a", LARGE, NOON_MS), *numbered("b", 0, 5), *numbered("c", 0, 5)],
    numbered("a", 6, 3),
    [],
]
"""Reports that are sent before each start."""


class Followed(NamedTuple):
    """A stream that started once for each of ``SENT``."""

    settings: DeltaTransport | KafkaTransport | PulsarTransport
    checkpoint: Path
    arrived: list[list[Arrived]]
    """By start."""

    @property
    def all(self) -> list[Arrived]:
        return [row for rows in self.arrived for row in rows]


@pytest.fixture(scope="module")
def followed(
    kind: str,
    spark: SparkSession,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Followed:
    folder = tmp_path_factory.mktemp(f"followed-{kind}")
    settings = rig_of(kind, request.getfixturevalue, folder / "topics").settings()
    link, arrived = open_broker_link(settings), []
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    try:
        for reports in SENT:
            link.send_reports(reports)
            arrived.append(drain(spark, open_transport(settings), folder / "checkpoint"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    link.close()
    return Followed(settings, folder / "checkpoint", arrived)


def test_each_start_goes_on_without_loss_or_doubling(followed: Followed) -> None:
    for reports, rows in zip(SENT, followed.arrived, strict=True):
        assert sorted((row.value, row.published_at_ms) for row in rows) == sorted(
            (value, at) for _, value, at in reports
        )


def test_a_report_has_its_brokers_key_and_the_topic_that_it_was_sent_to(
    followed: Followed,
) -> None:
    settings, arrived = followed.settings, followed.arrived[1]
    assert {row.value: row.key for row in arrived if row.value.endswith(b":0")} == {
        f"{name}:0".encode(): name.encode() for name in NAMES
    }
    if isinstance(settings, DeltaTransport):
        assert {row.topic for row in arrived} == {None}, "it has one table of reports"
        return
    whole = {str(row.topic).partition("-partition-")[0] for row in arrived}
    assert whole == {*settings.report_topics}
    assert all(row.position.startswith(str(row.topic)) for row in arrived)


def test_what_batches_read_is_read_again_between_their_offsets_always_in_one_order(
    followed: Followed, spark: SparkSession
) -> None:
    transport = open_transport(followed.settings)
    folder = CheckpointFolder(spark, str(followed.checkpoint))
    batches = {row.batch for row in followed.all}
    assert len(batches) >= 3
    for batch in batches:
        between = folder.reports_between(batch)
        once, again = (
            [
                tuple(row.values())
                for rows in transport.read_between(*between)
                for row in rows.to_pylist()
            ]
            for _ in range(2)
        )
        assert once == again
        expected = sorted(tuple(row)[1:] for row in followed.all if row.batch == batch)
        assert sorted(row for row in once if row in set(expected)) == expected
        if batch:
            assert sorted(once) == expected
    transport.close()


def test_positions_name_a_report_for_good(
    followed: Followed, spark: SparkSession, tmp_path: Path
) -> None:
    positions = {row.position: row.value for row in followed.all}
    assert len(positions) == len(followed.all)
    again = drain(spark, open_transport(followed.settings), tmp_path / "checkpoint")
    assert {row.position: row.value for row in again} == positions


def test_a_batch_that_was_not_committed_comes_again_the_same(
    followed: Followed, spark: SparkSession, tmp_path: Path
) -> None:
    """Reports behind it come in later batches."""
    checkpoint = Path(shutil.copytree(followed.checkpoint, tmp_path / "checkpoint"))
    lost = max(row.batch for row in followed.arrived[2])
    for folder, first in (("commits", lost), ("offsets", lost + 1)):
        for file in (checkpoint / folder).iterdir():
            number = file.name.removeprefix(".").removesuffix(".crc")
            if number.isdigit() and int(number) >= first:
                file.unlink()
    again = drain(spark, open_transport(followed.settings), checkpoint)
    same, before = ([row for row in rows if row.batch == lost] for rows in (again, followed.all))
    assert sorted(same) == sorted(before)
    later = [row.value for row in again if row.batch != lost]
    assert sorted(later) == sorted(row.value for row in followed.arrived[3])


# --- streams of their own ------------------------------------------------------------------------


def test_a_later_report_never_comes_in_an_earlier_batch(
    rig: Rig, spark: SparkSession, tmp_path: Path
) -> None:
    link = open_broker_link(rig.settings())
    for number in range(5):
        link.send_reports([report for broker in "abc" for report in numbered(broker, number, 1)])
    link.close()
    arrived = drain(spark, open_transport(rig.settings(per_batch=4)), tmp_path / "checkpoint")
    assert len(arrived) == 15
    for broker in (b"a", b"b", b"c"):
        own = [row for row in arrived if row.value.startswith(broker)]
        by_time = sorted(own, key=lambda row: row.published_at_ms)
        batches = [row.batch for row in by_time]
        assert batches == sorted(batches)


def test_admission_control_bounds_a_batch(rig: Rig, spark: SparkSession, tmp_path: Path) -> None:
    link = open_broker_link(rig.settings())
    for number in range(6):
        # One report a send: two sends are two files of the one and two records of the other.
        link.send_reports(numbered("a", number, 1))
    link.close()
    arrived = drain(spark, open_transport(rig.settings(per_batch=2)), tmp_path / "checkpoint")
    sizes = [len(list(rows)) for _, rows in itertools.groupby(arrived, lambda row: row.batch)]
    assert sizes == [2, 2, 2]


def test_latest_leaves_out_what_was_there(rig: Rig, spark: SparkSession, tmp_path: Path) -> None:
    link = open_broker_link(rig.settings())
    link.send_reports(numbered("a", 0, 3))
    values: list[bytes] = []
    query = started(
        open_transport(rig.settings(starting="latest"))
        .read_reports(spark)
        .writeStream.foreachBatch(
            lambda batch, _: values.extend(bytes(row.value) for row in batch.collect())
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
    )
    try:
        link.send_reports(numbered("a", 3, 2))
        wait_until(lambda: len(values) >= 2)
        query.processAllAvailable()
    finally:
        query.stop()
        link.close()
    assert sorted(values) == [b"a:3", b"a:4"]


@pytest.mark.parametrize(
    "limits",
    [
        [Message("a", bytes(range(256))), Message("c", b"\xff"), Message("größe", b"")],
        [Message("a", b"x" * 9_000_000), Message("b", b"y")],
        [],
    ],
    ids=["odd", "large", "none"],
)
def test_limits_come_back_with_keys_and_bytes(
    ends: tuple[Transport, BrokerLink], limits: list[Message]
) -> None:
    transport, link = ends
    transport.publish(limits)
    assert sorted(limits_of(link)) == limits
    assert limits_of(link) == []
    transport.publish([Message("a", b"next")])
    assert limits_of(link) == [Message("a", b"next")]


def test_limits_of_one_broker_come_in_order(ends: tuple[Transport, BrokerLink]) -> None:
    transport, link = ends
    brokers = ["a", "b", "c", "d", "e"]
    for number in range(4):
        for half in (0, 1):
            value = f"{number}.{half}".encode()
            transport.publish([Message(broker, value) for broker in brokers])
    came = limits_of(link)
    for broker in brokers:
        assert [value for key, value in came if key == broker] == [
            f"{number}.{half}".encode() for number in range(4) for half in (0, 1)
        ]


def test_a_poll_ends_while_somebody_writes_without_an_end(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quotaplane.transport.delta.PORTION_VERSIONS", 4)
    for kind in ("kafka", "pulsar"):
        monkeypatch.setattr(f"quotaplane.transport.{kind}.PORTION_MESSAGES", 4)
    transport = open_transport(rig.settings())
    written = itertools.count()

    def write(count: int) -> list[bytes]:
        values = [b"%d" % next(written) for _ in range(count)]
        for value in values:
            transport.publish([Message(f"broker-{value.decode()}", value)])
        return values

    before = write(6)
    link = open_broker_link(rig.settings(), limits_from="earliest")
    came: list[Polled] = []
    for _ in range(20):
        write(6)
        portion = link.poll_limits()
        assert len(portion.messages) <= 4
        assert portion.more
        came += portion.messages
        if portion.caught_up:
            break
        assert not {message.value for message in came} >= set(before)
    assert {message.value for message in came} >= set(before)
    assert len({message.position for message in came}) == len(came)
    transport.close()
    link.close()


def test_a_link_hears_what_came_after_it_was_opened(rig: Rig) -> None:
    transport = open_transport(rig.settings())
    transport.publish([Message("a", b"old")])
    late = open_broker_link(rig.settings())
    all_of_it = open_broker_link(rig.settings(), limits_from="earliest")
    transport.publish([Message("a", b"new")])
    assert limits_of(late) == [Message("a", b"new")]
    assert limits_of(all_of_it) == [Message("a", b"old"), Message("a", b"new")]
    for each in (transport, late, all_of_it):
        each.close()


def test_a_link_of_attachments_has_the_newest_message_of_each_key(rig: Rig) -> None:
    settings = rig.settings(**rig.attachments_topic())
    transport = open_transport(settings)
    assert not transport.check()
    early = open_attachments_link(settings)
    assert limits_of(early) == []
    sent = {"0": b"zero", "1": bytes(range(256)), "it's": b"x" * 900_000}
    transport.publish_attachments([Message(*each) for each in sent.items()])
    assert dict(limits_of(early)) == sent
    transport.publish_attachments([Message("1", b"new")])
    assert dict(limits_of(early))["1"] == b"new"
    transport.publish([Message("b", b"a limit")])
    transport.publish_attachments([])
    assert limits_of(early) == []
    late = open_attachments_link(settings)
    assert dict(limits_of(late)) == {**sent, "1": b"new"}
    for each in (transport, early, late):
        each.close()


def test_every_link_hears_everything(rig: Rig, ends: tuple[Transport, BrokerLink]) -> None:
    transport, first = ends
    second = open_broker_link(rig.settings())
    transport.publish([Message("a", b"1"), Message("b", b"2")])
    for link in (first, second):
        assert sorted(limits_of(link)) == [Message("a", b"1"), Message("b", b"2")]
    second.close()
    second.close()
