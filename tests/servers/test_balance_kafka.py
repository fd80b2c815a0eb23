"""The balance job with a real Kafka: load reports of both formats in, a plan out, a restart."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from quotabalance.cli.replay_rounds import differences_of
from quotabalance.job.job import BalanceSpec
from quotabalance.record.recorded_rounds import read_record
from quotabalance.wire.balance_plans import PlanMessage, decode_plan
from quotabalance.wire.load_reports import encode_load_report
from quotaplane.deltalog.read import read_rows
from quotaplane.history.store import open_table
from quotaplane.settings import parse_settings
from quotaplane.streams.job import StreamJob, prepare
from quotaplane.transport import open_broker_link
from quotaplane.transport.base import Topics
from tests.servers.kafka_server import KafkaServer
from tests.unit.balance.load_report_cases import bundle_of, load_of, local_broker_data


@pytest.mark.nightly
def test_kafka_end_to_end(spark: SparkSession, kafka_server: KafkaServer, tmp_path: Path) -> None:
    mark = uuid.uuid4().hex[:8]
    topics = Topics(
        kafka_server.create_topic(f"loads-{mark}", partitions=3),
        kafka_server.create_topic(f"plans-{mark}", partitions=1),
    )
    settings = parse_settings(
        {
            "transport": {
                "kind": "kafka",
                "bootstrap_servers": kafka_server.bootstrap_servers,
                "report_topics": ["unused"],
                "limits_topic": "unused-limits",
                "starting": "earliest",
            },
            "history": {"path": str(tmp_path / "history")},
            "checkpoint": str(tmp_path / "checkpoint"),
            "trigger": {"interval_s": 0.2},
            "balance": {
                "round_interval_s": 2.0,
                "loads_topic": topics.incoming,
                "plans_topic": topics.outgoing,
                "options": {"confirm_samples": 1, "sample_period_s": 0.5},
            },
        }
    )
    link = open_broker_link(settings.transport, limits_from="earliest", topics=topics)
    plans: list[PlanMessage] = []
    sequence = 0

    def a_plan_after(job: StreamJob, count: int) -> None:
        nonlocal sequence
        deadline = time.monotonic() + 240
        while len(plans) <= count:
            sequence += 1
            now_ms = time.time_ns() // 1_000_000
            stock = local_broker_data("b3:8080", bundles=0, lastUpdate=now_ms)
            values = {
                "b1:8080": encode_load_report(
                    load_of("b1:8080", (1e6,) * 10, sequence=sequence, at_ms=now_ms, cpu=50.0)
                ),
                "b2:8080": encode_load_report(
                    load_of("b2:8080", (), sequence=sequence, at_ms=now_ms)
                ),
                "b3:8080": json.dumps(stock).encode(),
                "junk": b"junk",
            }
            link.send_reports([(broker, value, now_ms) for broker, value in values.items()])
            plans.extend(decode_plan(polled.value) for polled in link.poll_limits().messages)
            assert not job.wait(timeout_s=0.5)
            assert time.monotonic() < deadline

    spec = BalanceSpec(settings)
    job = StreamJob(spark, spec, prepare(spec))
    a_plan_after(job, 0)
    job.stop()
    job = StreamJob(spark, spec, prepare(spec))
    # Between two batches a restarted query begins with a report; from then on the timer decides.
    link.send_reports([("junk", b"junk", time.time_ns() // 1_000_000)])
    rounds = read_rows(open_table(settings.history, "balance_rounds")).num_rows
    deadline = time.monotonic() + 120
    while read_rows(open_table(settings.history, "balance_rounds")).num_rows < rounds + 2:
        assert not job.wait(timeout_s=0.2)
        assert time.monotonic() < deadline
    job.stop()
    link.close()

    moves = plans[0].decisions.moves
    assert moves
    assert {move.source for move in moves} == {"b1:8080"}
    assert {move.target for move in moves} <= {"b2:8080", "b3:8080"}
    assert {move.bundle for move in moves} <= {bundle_of(n) for n in range(10)}
    rejected = read_rows(open_table(settings.history, "rejected_reports"))
    assert set(rejected["reason"].to_pylist()) == {"wrong_protobuf"}
    recorded = list(read_record(settings.history))
    assert differences_of(recorded) == []
    assert recorded[0].loads.reports["broker"].to_pylist() == ["b1:8080", "b2:8080", "b3:8080"]
