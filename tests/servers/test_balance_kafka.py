"""The balance job with a real Kafka: load reports of both formats in, a plan out, a restart."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from quotabalance.cli.replay_rounds import differences_of
from quotabalance.job.job import BalanceSpec
from quotabalance.record.recorded_rounds import read_record
from tests.job import settings_in
from tests.servers.kafka_server import KafkaServer
from tests.spark.loops import BalanceLoop, running
from tests.unit.balance.load_report_cases import bundle_of
from tests.waiting import wait_beside


@pytest.mark.nightly
def test_kafka_end_to_end(spark: SparkSession, kafka_server: KafkaServer, tmp_path: Path) -> None:
    mark = uuid.uuid4().hex[:8]
    settings = settings_in(
        tmp_path,
        {
            "kind": "kafka",
            "bootstrap_servers": kafka_server.bootstrap_servers,
            "report_topics": ["unused"],
            "limits_topic": "unused-limits",
            "starting": "earliest",
        },
        trigger={"interval_s": 0.2},
        balance={
            "round_interval_s": 2.0,
            "loads_topic": kafka_server.create_topic(f"loads-{mark}", partitions=3),
            "plans_topic": kafka_server.create_topic(f"plans-{mark}", partitions=1),
            "options": {"confirm_samples": 1, "sample_period_s": 0.5},
        },
    )
    loop = BalanceLoop(settings)

    def has_plan() -> bool:
        loop.report(b"junk")
        time.sleep(0.5)
        return bool(loop.decided())

    with running(spark, BalanceSpec(settings)) as job:
        wait_beside(job, has_plan, 240)
    # Between two batches a restarted query begins with a report; from then on the timer decides.
    with running(spark, BalanceSpec(settings)) as job:
        loop.link.send_reports([("junk", b"junk", time.time_ns() // 1_000_000)])
        rounds = len(loop.rows("balance_rounds"))
        wait_beside(job, lambda: len(loop.rows("balance_rounds")) >= rounds + 2)
    moves = loop.decided()[0].decisions.moves
    assert moves
    assert {move.source for move in moves} == {"b1:8080"}
    assert {move.target for move in moves} <= {"b2:8080", "b3:8080"}
    assert {move.bundle for move in moves} <= {bundle_of(n) for n in range(10)}
    assert {row["reason"] for row in loop.rows("rejected_reports")} == {"wrong_protobuf"}
    recorded = list(read_record(settings.history))
    assert differences_of(recorded) == []
    assert recorded[0].loads.reports["broker"].to_pylist() == ["b1:8080", "b2:8080", "b3:8080"]
    loop.link.close()
