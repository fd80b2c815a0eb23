"""Properties of the embedded transport alone: tables are compacted and trimmed while in use."""

from __future__ import annotations

import fcntl
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.table import TableOptimizer
from pyspark.sql import SparkSession

from quotaplane.errors import TransportError
from quotaplane.transport import (
    delta,
    delta_topic,
    open_attachments_link,
    open_broker_link,
    open_transport,
)
from quotaplane.transport.base import Message
from tests.contract.rigs import DeltaRig, drain, limits_of


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def files_of(rig: DeltaRig, topic: str) -> int:
    return len(DeltaTable(f"{rig.settings().path}/{topic}").file_uris())


def test_positions_outlive_compaction(
    delta_rig: DeltaRig, spark: SparkSession, tmp_path: Path
) -> None:
    transport, link = open_transport(delta_rig.settings()), open_broker_link(delta_rig.settings())
    for number in range(3):
        link.send_reports([("a", b"%d" % number, now_ms())])
    before = drain(spark, transport, tmp_path / "before")
    delta.maintain(delta_rig.settings())
    assert files_of(delta_rig, "reports") == 1
    after = drain(spark, transport, tmp_path / "after")
    assert {row.position: row.value for row in after} == {row.position: row.value for row in before}


def test_attachments_are_kept_however_old_and_replaced_ones_are_not(
    delta_rig: DeltaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = delta_rig.settings()
    transport, early = open_transport(settings), open_attachments_link(settings)
    for number in range(3):
        transport.publish_attachments([Message(key, b"%d" % number) for key in "ab"])
    rows = DeltaTable(f"{settings.path}/attachments_topic").to_pyarrow_table()
    assert len(rows) == 2
    monkeypatch.setattr("time.time", lambda: 2e9)
    delta.maintain(settings, keep_s=1.0)
    for link in (early, open_attachments_link(settings)):
        assert sorted(limits_of(link)) == [Message("a", b"2"), Message("b", b"2")]


def test_old_messages_can_be_deleted_under_readers(
    delta_rig: DeltaRig, spark: SparkSession, tmp_path: Path
) -> None:
    transport, link = open_transport(delta_rig.settings()), open_broker_link(delta_rig.settings())
    checkpoint = tmp_path / "checkpoint"
    link.send_reports([("a", b"old", now_ms() - 7_200_000), ("a", b"young", now_ms())])
    transport.publish([Message("a", b"0")])
    assert len(drain(spark, transport, checkpoint)) == 2
    assert limits_of(link) == [Message("a", b"0")]
    delta.maintain(delta_rig.settings(), keep_s=3600)
    link.send_reports([("a", b"new", now_ms())])
    transport.publish([Message("a", b"1")])
    assert [row.value for row in drain(spark, transport, checkpoint)] == [b"new"]
    assert limits_of(link) == [Message("a", b"1")]
    left = drain(spark, transport, tmp_path / "fresh")
    assert sorted(row.value for row in left) == [b"new", b"young"]


def test_an_append_that_cannot_be_compacted_yet_was_no_failure(
    delta_rig: DeltaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(_: Any, **options: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(delta_topic, "COMPACT_EVERY", 3)
    transport, link = open_transport(delta_rig.settings()), open_broker_link(delta_rig.settings())
    sent = [Message("a", b"%d" % number) for number in range(6)]
    with monkeypatch.context() as patch:
        patch.setattr(TableOptimizer, "compact", no_space)
        for message in sent[:5]:
            transport.publish([message])
    assert files_of(delta_rig, "limits_topic") == 5
    transport.publish(sent[5:])
    assert files_of(delta_rig, "limits_topic") == 1
    assert limits_of(link) == sent


def test_an_append_that_cannot_be_checkpointed_was_no_failure(
    delta_rig: DeltaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deltalake package makes checkpoints of its own accord, after what it has committed."""
    monkeypatch.setattr(delta_topic, "COMPACT_EVERY", 8)
    transport, link = open_transport(delta_rig.settings()), open_broker_link(delta_rig.settings())
    log = Path(delta_rig.settings().path) / "limits_topic" / "_delta_log"
    (log / "_last_checkpoint" / "in the way").mkdir(parents=True)
    sent = [Message("a", b"%d" % number) for number in range(110)]
    for message in sent:
        transport.publish([message])
    assert limits_of(link) == sent


def test_the_log_is_checkpointed_while_it_is_written(
    delta_rig: DeltaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_topic, "COMPACT_EVERY", 3)
    link = open_broker_link(delta_rig.settings())
    for number in range(3):
        link.send_reports([("a", b"%d" % number, now_ms())])
    log = Path(delta_rig.settings().path) / "reports" / "_delta_log"
    assert [path.name for path in log.glob("*.checkpoint.parquet")] == [
        "00000000000000000004.checkpoint.parquet"  # creation, three appends, the compaction
    ]


def test_nobody_waits_for_the_other_topic_nor_for_files_to_be_deleted(
    delta_rig: DeltaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport, link = open_transport(delta_rig.settings()), open_broker_link(delta_rig.settings())
    listener = open_broker_link(delta_rig.settings(), limits_from="earliest")
    limits = [Message("a", b"%d" % number) for number in range(6)]
    heard, deleted = [], []
    compact, vacuum = TableOptimizer.compact, DeltaTable.vacuum

    def publish(number: int) -> None:
        transport.publish([limits[number]])

    def compact_meanwhile(self: TableOptimizer, **options: Any) -> None:
        if self.table.table_uri.endswith("reports/"):
            publish(2)
        else:
            link.send_reports([("a", b"during", now_ms())])
        compact(self, **options)

    def vacuum_meanwhile(self: DeltaTable, **options: Any) -> None:
        publish(3 if not deleted else 4)
        link.send_reports([("a", b"meanwhile", now_ms())])
        heard.extend(limits_of(listener))
        # As if this were two days later: there is something to delete.
        deleted.append(vacuum(self, **options | {"retention_hours": 0}))

    for number in (0, 1):
        publish(number)
        link.send_reports([("a", b"before", now_ms())])
    with monkeypatch.context() as patch:
        # Whoever would have to wait fails instead.
        patch.setattr(fcntl, "LOCK_EX", fcntl.LOCK_EX | fcntl.LOCK_NB)
        patch.setattr(TableOptimizer, "compact", compact_meanwhile)
        patch.setattr(DeltaTable, "vacuum", vacuum_meanwhile)
        delta.maintain(delta_rig.settings())
    publish(5)
    assert [len(files) for files in deleted] == [2, 4]
    assert heard + limits_of(listener) == limits
    reports = DeltaTable(f"{delta_rig.settings().path}/reports").to_pyarrow_table()
    values = sorted(reports["value"].to_pylist())
    assert values == [b"before", b"before", b"during", b"meanwhile", b"meanwhile"]


def test_several_brokers_send_at_once(
    delta_rig: DeltaRig, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_topic, "COMPACT_EVERY", 4)
    failures: list[BaseException] = []

    def send(broker: str) -> None:
        try:
            link = open_broker_link(delta_rig.settings())
            for number in range(6):
                link.send_reports([(broker, f"{broker}{number}".encode(), number)])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=send, args=(broker,)) for broker in "abcde"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    arrived = drain(spark, open_transport(delta_rig.settings()), tmp_path / "checkpoint")
    assert sorted(row.value.decode() for row in arrived) == sorted(
        f"{broker}{number}" for broker in "abcde" for number in range(6)
    )


def test_some_other_table_is_refused(delta_rig: DeltaRig) -> None:
    path = f"{delta_rig.settings().path}/reports"
    write_deltalake(path, pa.table({"something": [1]}))
    with pytest.raises(TransportError, match=r"reports: is not a topic .*transport\.path"):
        open_transport(delta_rig.settings()).check()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(TransportError, match=f"{tmp_path}/file") as caught:
        open_transport(DeltaRig(tmp_path / "file").settings()).check()
    assert "\n" not in str(caught.value)
