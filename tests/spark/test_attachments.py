"""The quota job publishes who belongs to which group: at its start, after changes, and alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from quotaplane.client.agent import BrokerClient
from quotaplane.errors import DeposedError
from quotaplane.groups.attachments import PARTS
from quotaplane.registry.attachments import attach
from quotaplane.streams.job import StreamJob, prepare
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.transport import open_attachments_link
from quotaplane.wire.attachments import AttachmentsMessage, decode_attachments
from quotaplane.wire.signatures import SigningKeys
from tests.job import put_quotas, settings_in
from tests.spark.loops import QuotaLoop, running
from tests.waiting import wait_until

SIGNING = {"keys": {"a": "0123456789abcdef0123456789abcdef"}, "sign_with": "a"}


def spec_of(folder: Path, checkpoint: str = "checkpoint") -> QuotaSpec:
    return QuotaSpec(
        settings_in(
            folder,
            checkpoint=str(folder / checkpoint),
            trigger={"interval_s": 0.1},
            reports={"interval_s": 1.0},
            limits={"signing": SIGNING},
            shards=1,
        )
    )


class Brokers(QuotaLoop):
    """A job's brokers, and what they know of attachments."""

    def __init__(self, spark: SparkSession, spec: QuotaSpec) -> None:
        super().__init__(spark, spec.settings, quota=100.0)
        self.keys = SigningKeys.of(spec.settings.limits.signing)
        attachments = open_attachments_link(spec.settings.transport)
        self.client = BrokerClient(
            self.link, "b", now_ms=lambda: 0, attachments=attachments, keys=self.keys
        )

    def parts(self) -> list[AttachmentsMessage]:
        """What is in the topic, by part."""
        topic = open_attachments_link(self.settings.transport)
        values = [message.value for message in topic.poll_limits().messages]
        return sorted(decode_attachments(value, self.keys) for value in values)

    def hear(self, group: str | None, **who: str) -> None:
        """Report until the group is this one."""

        def heard() -> bool:
            self.report("b")
            self.client.poll()
            return self.client.group_of(**who) == group

        wait_until(heard)


def test_all_parts_are_published_at_the_start_and_then_what_changes(
    spark: SparkSession, tmp_path: Path
) -> None:
    spec = spec_of(tmp_path)
    brokers, history = Brokers(spark, spec), spec.settings.history
    attach(history, "tenant", "acme", "g", "ann")
    with running(spark, spec, brokers.transport) as job:
        brokers.hear("g", tenant="acme")
        first = brokers.parts()
        assert [message.part for message in first] == [*range(PARTS)]
        assert {(message.epoch, message.seq) for message in first} == {(job.epoch, first[0].seq)}
        put_quotas(spec.settings, **{"user=alice": 5.0})
        brokers.hear("user=alice", user="alice", client="app")
        attach(history, "scope", "user=alice", "g", "ann")
        brokers.hear("g", user="alice")
        attach(history, "tenant", "acme", None, "ann")
        brokers.hear(None, tenant="acme")
        changed = [message for message in brokers.parts() if message.seq > first[0].seq]
        assert len(changed) == 2
    assert brokers.client.refused == 0
    again = QuotaSpec(spec.settings)
    last_seq = max(row["seq"] for row in brokers.rows("rounds"))
    with running(spark, again, prepare(again)):
        wait_until(lambda: (brokers.report("b"), brokers.parts()[0].seq > last_seq)[1])
        assert len({message.seq for message in brokers.parts()}) == 1, "all anew"


@pytest.mark.nightly
def test_a_deposed_job_publishes_no_attachments(spark: SparkSession, tmp_path: Path) -> None:
    older = spec_of(tmp_path, "older")
    brokers = Brokers(spark, older)
    first = StreamJob(spark, older, brokers.transport)
    wait_until(lambda: len(brokers.parts()) == PARTS)
    newer = spec_of(tmp_path, "newer")
    newer.query_name = "newer"  # of one session, two queries can't have the same name
    second = StreamJob(spark, newer, prepare(newer))
    wait_until(lambda: {message.epoch for message in brokers.parts()} == {second.epoch})
    attach(newer.settings.history, "tenant", "acme", "g", "ann")

    def go_on() -> None:
        while not first.wait(timeout_s=0.1):
            brokers.report("b")

    with pytest.raises(DeposedError):
        go_on()
    first.stop()
    brokers.hear("g", tenant="acme")
    assert {message.epoch for message in brokers.parts()} == {second.epoch}
    second.stop()
