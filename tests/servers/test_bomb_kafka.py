"""A record that exhausts the job's memory: each start's message, and how the job continues."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pytest
from kafka import KafkaProducer

from tests.job import RunningJob, history_table, put_quotas, report_of, write_conf
from tests.servers.kafka_server import KafkaServer

MEMORY = ("--driver-memory", "640m")
BOMB_BYTES = 300_000_000
"""Twice this does not fit into memory; Kafka's client decompresses a record and copies it."""


@pytest.mark.nightly
def test_a_batch_that_takes_the_memory_is_refused_then_skipped_unread(
    kafka_server: KafkaServer, tmp_path: Path
) -> None:
    mark = uuid.uuid4().hex[:8]
    topic = kafka_server.create_topic(f"bomb-{mark}")
    conf = write_conf(
        tmp_path,
        {
            "kind": "kafka",
            "bootstrap_servers": kafka_server.bootstrap_servers,
            "report_topics": [topic],
            "limits_topic": kafka_server.create_topic(f"limits-{mark}"),
            "starting": "earliest",
        },
        reports={"interval_s": 60},
        limits={"lease_s": 1200},
    )
    producer = KafkaProducer(
        bootstrap_servers=kafka_server.bootstrap_servers,
        compression_type="zstd",
        max_request_size=2**31 - 1,
    )
    producer.send(topic, bytes(BOMB_BYTES)).get(120)
    (log,) = kafka_server.data(topic)
    assert log.stat().st_size < 30_000

    for code, says in (
        (1, "Spark's JVM is gone (killed, or out of memory); after a restart the job continues"),
        (1, f"batch 0, which reads {topic}/0@0 to 0, failed 2 times; after 3 failures the job"),
        (7, f"batch 0 failed 3 times and is not run again; it reads {topic}/0@0 to 0; last"),
    ):
        with RunningJob(conf, *MEMORY) as job:
            put_quotas(job.settings, g=100.0)
            job.ended(code)
        errors = [line for line in job.printed() if line.startswith("quotaplane: error:")]
        assert says in errors[-1]

    with RunningJob(conf, *MEMORY, "--skip-batch", "0") as job:
        job.wait_until(lambda: (tmp_path / "checkpoint/commits/0").exists())
        producer.send(topic, report_of("a", 80.0), timestamp_ms=int(time.time() * 1000)).get(60)
        job.wait_until(lambda: history_table(job.settings, "usage").num_rows == 1)
        job.stop()
    producer.close(timeout=60)
    (letter,) = history_table(job.settings, "rejected_reports").to_pylist()
    assert (letter["reason"], letter["position"]) == ("skipped_batch", f"{topic}/0@0 to 0")
    assert letter["detail"] == "batch 0 was committed without its 1 reports"
