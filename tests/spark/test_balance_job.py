"""The balance job end to end: reports in, a plan out, killed between, and its record."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from quotabalance.job.job import BalanceSpec
from quotabalance.wire.balance_plans import PlanMessage, decode_plan
from quotabalance.wire.load_reports import encode_load_report
from quotaplane.deltalog.read import read_rows
from quotaplane.history.store import open_table
from quotaplane.settings import Settings, parse_settings
from quotaplane.streams.job import StreamJob, prepare
from quotaplane.transport import open_broker_link
from quotaplane.transport.base import BrokerLink, Topics
from quotaplane.transport.delta import DeltaTopics
from tests.unit.balance.load_report_cases import load_of
from tests.waiting import wait_beside

TABLES = ("load", "balance_decisions", "balance_rounds", "rejected_reports")


class CutOffError(RuntimeError):
    """The job ends here, as if it were killed."""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    options = {"confirm_samples": 1, "confirm_window_samples": 1, "noise_z": 0.0}
    return parse_settings(
        {
            "transport": {"kind": "delta", "path": str(tmp_path / "topics")},
            "history": {"path": str(tmp_path / "history")},
            "checkpoint": str(tmp_path / "checkpoint"),
            "trigger": {"interval_s": 0.1},
            "balance": {"round_interval_s": 0.5, "cluster": "east", "options": options},
        }
    )


class Feeder:
    """Brokers b1 to b3; b1 has ten bundles, the others none."""

    def __init__(self, settings: Settings) -> None:
        topics = Topics(settings.balance.loads_topic, settings.balance.plans_topic)
        self.link: BrokerLink = open_broker_link(
            settings.transport, limits_from="earliest", topics=topics
        )
        self.sequence = 0
        self.plans: list[bytes] = []

    def send(self, *more: bytes) -> None:
        self.sequence += 1
        now_ms = time.time_ns() // 1_000_000
        loads = {"b1": (1e6,) * 10, "b2": (), "b3": ()}
        values = [
            encode_load_report(load_of(name, load, sequence=self.sequence, at_ms=now_ms))
            for name, load in loads.items()
        ]
        self.link.send_reports([("", value, now_ms) for value in (*values, *more)])

    def poll(self) -> list[PlanMessage]:
        self.plans += [polled.value for polled in self.link.poll_limits().messages]
        return [decode_plan(value) for value in self.plans]


def rows(settings: Settings, name: str) -> pa.Table:
    return read_rows(open_table(settings.history, name))


def start(spark: SparkSession, settings: Settings) -> StreamJob:
    spec = BalanceSpec(settings)
    return StreamJob(spark, spec, prepare(spec))


@pytest.mark.nightly
def test_a_job_that_is_killed_after_it_published_decides_the_same_again(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = Feeder(settings) if prepare(BalanceSpec(settings)) else None
    assert sent is not None
    sent.send(b"junk")
    publish = DeltaTopics.publish

    def then_die(self: DeltaTopics, messages: Any) -> None:
        publish(self, messages)
        raise CutOffError

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTopics, "publish", then_die)
        job = start(spark, settings)
        with pytest.raises(Exception, match="CutOffError"):
            wait_beside(job, lambda: False)
        job.stop()
    before = {name: rows(settings, name) for name in TABLES}
    assert len(sent.poll()) == 1
    assert before["balance_rounds"].num_rows == 1

    job = start(spark, settings)
    sent.send()
    wait_beside(job, lambda: len(sent.poll()) > 1 and rows(settings, "balance_rounds").num_rows > 1)
    job.stop()
    first, again = sent.plans[:2]
    assert first == again, "the same bytes: the batch that ran again decided the same"
    plan = sent.poll()[0]
    for name in TABLES:
        table = rows(settings, name)
        same = table.filter(pc.equal(table["seq"], plan.seq))
        assert (
            same.num_rows == before[name].filter(pc.equal(before[name]["seq"], plan.seq)).num_rows
        )
    rejected = rows(settings, "rejected_reports").to_pylist()
    assert [row["reason"] for row in rejected] == ["wrong_protobuf"]
    decisions = rows(settings, "balance_decisions").to_pylist()
    moves = sorted(
        (row for row in decisions if row["seq"] == plan.seq and row["kind"] == "move"),
        key=lambda row: row["place"],
    )
    assert [(m["subject"], m["source"], m["target"]) for m in moves] == [
        move[:3] for move in plan.decisions.moves
    ]
    assert moves
    assert rows(settings, "load")["cluster"].unique().to_pylist() == ["east"]
