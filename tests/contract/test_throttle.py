"""The throttle job over every transport: requests in, decisions out, each once in the history."""

from __future__ import annotations

import argparse
import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from quotaplane.model import DIMENSIONS
from quotaplane.registry.table import put_groups
from quotaplane.settings import Settings, Throttle
from quotaplane.streams.checkpoint import CheckpointFolder
from quotaplane.streams.job import StreamJob, prepare
from quotaplane.streams.sink import BatchSink
from quotaplane.streams.throttle.dry_run import add_options, dry_run
from quotaplane.streams.throttle.job import ThrottleSpec, topics_of
from quotaplane.transport import open_broker_link
from quotaplane.transport.base import BrokerLink
from tests.contract.rigs import KafkaRig, PulsarRig, Rig, limits_of

NOW_MS = int(time.time() * 1000)
SERVERS_IN_SOAK = pytest.mark.parametrize(
    "rig",
    ["delta", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("kafka", "pulsar"))],
    indirect=True,
)
"""What is tested depends on the transport only by what ``test_transport`` has tested of each."""


@pytest.fixture
def settings(rig: Rig, tmp_path: Path) -> Settings:
    mark = uuid.uuid4().hex[:8]
    throttle = Throttle(events_topic=f"events-{mark}", decisions_topic=f"decisions-{mark}")
    if isinstance(rig, KafkaRig):
        for topic in topics_of(throttle):
            rig.server.create_topic(topic, partitions=2)
    if isinstance(rig, PulsarRig):
        for topic in topics_of(throttle):
            rig.topic(topic, partitions=2)
    return Settings.model_validate(
        {
            "transport": rig.settings().model_dump(),
            "history": {"path": str(tmp_path / "history")},
            "checkpoint": str(tmp_path / "checkpoint"),
            "throttle": throttle.model_dump(),
            "trigger": {"interval_s": 0.1},
        }
    )


@pytest.fixture
def service(settings: Settings) -> Iterator[BrokerLink]:
    """A service that has no enforcer of its own."""
    link = open_broker_link(
        settings.transport, limits_from="earliest", topics=topics_of(settings.throttle)
    )
    yield link
    link.close()


@contextmanager
def running(spark: SparkSession, settings: Settings) -> Iterator[StreamJob]:
    job = StreamJob(spark, ThrottleSpec(settings), prepare(ThrottleSpec(settings)))
    try:
        yield job
    finally:
        job.stop()


def put(settings: Settings, *, hard: bool, **messages_per_s: float) -> None:
    quotas = np.full((len(messages_per_s), len(DIMENSIONS)), np.inf)
    quotas[:, 0] = list(messages_per_s.values())
    terms = pa.table({"throttle": ['{"*": {"mode": "hard"}}' if hard else "{}"] * len(quotas)})
    put_groups(settings.history, list(messages_per_s), quotas, "ann", policy=terms)


def ask(service: BrokerLink, *events: Any) -> None:
    """Events as JSON, or bytes as they are."""
    values = [e if isinstance(e, bytes) else json.dumps(e).encode() for e in events]
    keys = ["?" if isinstance(e, bytes) else str(e.get("entity")) for e in events]
    service.send_reports(list(zip(keys, values, [NOW_MS] * len(values), strict=True)))


def event(entity: str, units: float, after_ms: int = 0, **more: Any) -> dict[str, Any]:
    return {"entity": entity, "units": units, "at_ms": NOW_MS - 50_000 + after_ms, **more}


def decisions(job: StreamJob, service: BrokerLink, count: int) -> list[dict[str, Any]]:
    """What the service is told, by the ids of its requests."""
    told: list[dict[str, Any]] = []
    deadline = time.monotonic() + 300
    while len(told) < count:
        told += [json.loads(value) for _, value in limits_of(service)]
        assert not job.wait(timeout_s=0.1)
        assert time.monotonic() < deadline, told
    return sorted(told, key=lambda one: str(one["id"]))


def table(settings: Settings, name: str) -> list[dict[str, Any]]:
    rows = DeltaTable(f"{settings.history.path}/{name}").to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: str(row.get("id")))


def test_requests_in_decisions_out_and_each_once_over_restarts(
    spark: SparkSession, settings: Settings, service: BrokerLink
) -> None:
    put(settings, hard=True, a=10.0)
    put(settings, hard=False, b=10.0)
    ask(service, event("a", 15.0, id="1"), event("b", 15.0, id="2"), event("c", 9e9, id="3"))
    with running(spark, settings) as job:
        first = decisions(job, service, 3)
        ask(service, event("a", 1.0, 100, id="4"), event("b", 1.0, 100, id="5"))
        second = decisions(job, service, 2)
    said = ["id", "entity", "admitted", "throttle_ms", "balance", "error", "late_ms"]
    assert [[one[name] for name in said] for one in first + second] == [
        ["1", "a", True, 0, -5.0, None, 0],
        ["2", "b", True, 500, -5.0, None, 0],
        ["3", "c", True, 0, None, None, 0],
        ["4", "a", False, 400, -4.0, "THROTTLING_QUOTA_EXCEEDED", 0],
        ["5", "b", True, 500, -5.0, None, 0],
    ]
    assert first[0]["at_ms"] == NOW_MS - 50_000
    assert first[0]["dimension"] == "publish_messages"
    assert len({one["position"] for one in first + second}) == 5

    # Killed between the sinks and the commit of its last batch, the job does that batch again.
    commits = Path(f"{settings.checkpoint}-throttle", "commits")
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    for name in (str(last), f".{last}.crc"):
        (commits / name).unlink()
    ask(service, event("a", 1.0, 1000, id="6"))
    with running(spark, settings) as job:
        again = decisions(job, service, 1)
        while again[-1]["id"] != "6":
            again += decisions(job, service, 1)
    assert all(one in second for one in again[:-1])
    assert again[-1]["balance"] == 4.0
    kept = table(settings, "decisions")
    assert [row["id"] for row in kept] == list("123456")
    assert [row["balance"] for row in kept] == [
        one["balance"] for one in [*first, *second, again[-1]]
    ]
    metrics = [row for row in table(settings, "throttle_metrics") if row["entity"] == "a"]
    assert sum(row["events"] for row in metrics) == 3
    assert sum(row["units_admitted"] for row in metrics) == 16.0


@pytest.mark.soak
def test_a_batch_that_fails_is_skipped_and_what_was_used_is_kept(
    spark: SparkSession,
    settings: Settings,
    service: BrokerLink,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(settings, hard=True, a=10.0)
    ask(service, event("a", 12.0, id="before"))
    with running(spark, settings) as job:
        decisions(job, service, 1)

    def failing(self: BatchSink, outputs: DataFrame, seq: int) -> None:
        if outputs.count():
            raise RuntimeError("too large")

    ask(service, event("a", 100.0, id="left out"))
    with monkeypatch.context() as patch:
        patch.setattr(BatchSink, "__call__", failing)
        with running(spark, settings) as job, pytest.raises(StreamingQueryException):
            job.wait(300)
    batch = CheckpointFolder(spark, f"{settings.checkpoint}-throttle").unfinished_batch()
    assert batch is not None
    skipping = StreamJob(spark, ThrottleSpec(settings), prepare(ThrottleSpec(settings)), batch)
    assert skipping.wait(300)
    skipping.stop()
    (letter,) = table(settings, "rejected_events")
    assert (letter["seq"], letter["reason"]) == (batch, "skipped_batch")
    assert letter["position"]
    ask(service, event("a", 1.0, 100, id="after"))
    with running(spark, settings) as job:
        (told,) = decisions(job, service, 1)
    assert (told["id"], told["balance"]) == ("after", -1.0)


@SERVERS_IN_SOAK
def test_what_cannot_be_used_is_kept_and_stops_nothing(
    spark: SparkSession, settings: Settings, service: BrokerLink
) -> None:
    put(settings, hard=True, a=10.0)
    ask(
        service,
        b"",
        b"\xff\x00no json",
        b'{"entity": "a", "at_ms": 9223372036854775807, "units": 1, "id": "far"}',
        b'{"entity": "a", "at_ms": "now", "units": 1, "id": "text"}',
        event("a", -1.0, id="below"),
        event("a", 1.0, 10**8, id="ahead"),
        event("a", 1.0, dimension="height", id="odd"),
        event("a", 2.0, dimension="publish_bytes", id="other"),
        event("a", 1.0, id="good"),
    )
    with running(spark, settings) as job:
        told = decisions(job, service, 2)
    assert [(one["id"], one["balance"]) for one in told] == [("good", 9.0), ("other", None)]
    letters = table(settings, "rejected_events")
    assert {row["id"]: row["reason"] for row in letters if row["id"]} == {
        "ahead": "future",
        "below": "bad_units",
        "far": "no_time",
        "odd": "bad_dimension",
        "text": "no_time",
    }
    raw = {row["raw"] for row in letters if row["id"] is None}
    assert raw == {b"", b"\xff\x00no json"}
    assert all(row["position"] for row in letters)


@SERVERS_IN_SOAK
def test_what_a_topic_holds_may_be_tried_on_other_quotas(
    spark: SparkSession, settings: Settings, service: BrokerLink
) -> None:
    events = [event("a", 6.0, 10 * number, id=str(number)) for number in range(4)]
    ask(service, *reversed(events))
    ask(service, b"noise")
    parser = argparse.ArgumentParser()
    add_options(parser)
    args = parser.parse_args(["--events", "topic", "--json"])
    definitions = pa.table(
        {
            "group": ["a"],
            "publish_messages_per_s": [10.0],
            "throttle": ['{"*": {"mode": "hard"}}'],
        }
    )
    found = json.loads(dry_run(spark, settings, definitions, args))
    assert (found["events"], found["refused"], found["rejected"]) == (4, 2, {"no_entity": 1})
    assert found["most"][0]["units_refused"] == 12.0
