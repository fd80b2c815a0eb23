"""The quota job with a real Kafka: a test sends reports and reads limits from another process."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kafka import KafkaConsumer, KafkaProducer

from quotaplane.wire.limits import decode_limits
from quotaplane.wire.reports import encode_stock_report
from tests.job import ROOT, RunningJob, history_table, put_quotas, report_of, write_conf
from tests.servers.kafka_server import KafkaServer


class Cluster:
    """Simulated brokers that report usage and obey the limits that they read."""

    def __init__(self, server: KafkaServer, topics: list[str], limits_topic: str) -> None:
        self.topics, self.limits_topic = topics, limits_topic
        self.limits: dict[str, float] = {}
        self._sent = 0
        self._gzip, self._plain = (
            KafkaProducer(
                bootstrap_servers=server.bootstrap_servers,
                compression_type=codec,
                max_request_size=16 * 1024 * 1024,
            )
            for codec in ("gzip", None)
        )
        self._consumer = KafkaConsumer(
            limits_topic,
            bootstrap_servers=server.bootstrap_servers,
            auto_offset_reset="earliest",
            consumer_timeout_ms=50,
        )

    def report(self, interval_s: float, **demand: float) -> None:
        """Send a report per broker: ``stock_*`` in stock Pulsar's format, the others in ours."""
        self._sent += 1
        for number, (broker, want) in enumerate(demand.items()):
            used = min(want, self.limits.get(broker, np.inf))
            if broker.startswith("stock"):
                counts = np.array([[used * interval_s, 1000.0, np.nan, np.nan]])
                value = encode_stock_report(broker, ["tenant/ns"], counts)
            else:
                own = {"sequence": self._sent, "window_ms": int(interval_s * 1000)}
                value = report_of(broker, used, group="tenant/ns", **own)
            producer = self._gzip if number % 2 else self._plain
            producer.send(self.topics[number % 2], value, key=broker.encode()).get(60)

    def send_raw(self, value: bytes) -> None:
        self._plain.send(self.topics[0], value).get(60)

    def listen(self) -> list[Any]:
        updates = []
        for message in self._consumer:
            update = decode_limits(message.value)
            assert message.key.decode() == update.broker
            if len(update.limits):
                self.limits[update.broker] = update.limits[0, 0]
            updates.append(update)
        return updates


@pytest.fixture
def cluster(kafka_server: KafkaServer) -> Cluster:
    mark = uuid.uuid4().hex[:8]
    topics = [kafka_server.create_topic(f"usage-{mark}-{n}", partitions=2) for n in (0, 1)]
    return Cluster(kafka_server, topics, kafka_server.create_topic(f"limits-{mark}", partitions=1))


@pytest.fixture
def conf(kafka_server: KafkaServer, cluster: Cluster, tmp_path: Path) -> Path:
    return write_conf(
        tmp_path,
        {
            "kind": "kafka",
            "bootstrap_servers": kafka_server.bootstrap_servers,
            "report_topics": cluster.topics,
            "limits_topic": cluster.limits_topic,
        },
        # However slow a batch is, or a restart, nobody falls silent meanwhile.
        reports={"interval_s": 2.0},
        brokers={"stale_after_intervals": 60, "expire_after_intervals": 60},
        limits={"lease_s": 60},
        trigger={"interval_s": 0.5},
    )


def wait_until_fair(job: RunningJob, cluster: Cluster, want_c: float, **share: float) -> None:
    """Report usage until each broker has its share of the quota."""

    def is_fair() -> bool:
        cluster.report(2.0, stock_a=80, own_b=80, stock_c=want_c)
        time.sleep(0.5)
        cluster.listen()
        return cluster.limits == {k: pytest.approx(v, rel=0.1) for k, v in share.items()}

    job.wait_until(is_fair)


def bad_letters(job: RunningJob) -> list[dict[str, Any]]:
    letters = history_table(job.settings, "rejected_reports").to_pylist()
    return [letter for letter in letters if letter["counts_as_bad"]]


def test_reports_in_limits_out_and_stop(cluster: Cluster, conf: Path) -> None:
    """Two quotas, a broker that wakes, and four reports that nobody can read."""
    with RunningJob(conf) as job:
        put_quotas(job.settings, **{"tenant/ns": 120.0})
        wait_until_fair(job, cluster, want_c=0.0, stock_a=59, own_b=59, stock_c=2)
        # The idle broker wakes.
        wait_until_fair(job, cluster, want_c=60.0, stock_a=40, own_b=40, stock_c=40)

        for bad in (b"\xff\x00noise", os.urandom(64), b"\n\x03abc\xff", b"x" * 9_000_000):
            cluster.send_raw(bad)
        put_quotas(job.settings, **{"tenant/ns": 60.0})
        wait_until_fair(job, cluster, want_c=60.0, stock_a=20, own_b=20, stock_c=20)
        job.wait_until(lambda: len(bad_letters(job)) == 4)
        # Nothing is sent any more, so the next status line finds nothing left to read.
        job.wait_until(lambda: any(" backlog=0 " in line for line in job.printed()))
        job.stop()
    letters = bad_letters(job)
    assert {letter["raw"] for letter in letters} >= {b"\xff\x00noise", b"x" * 4096}
    assert all(letter["position"].startswith(cluster.topics[0]) for letter in letters)


def test_a_cluster_that_is_away_is_one_clear_line(tmp_path: Path) -> None:
    away = {
        "kind": "kafka",
        "bootstrap_servers": "127.0.0.1:1",
        "report_topics": ["r"],
        "limits_topic": "l",
        "timeout_s": 3,
    }
    done = subprocess.run(
        [ROOT / "spark-submit.sh", "quota", "--conf", str(write_conf(tmp_path, away))],
        capture_output=True,
        text=True,
        timeout=300,
    )
    (line,) = done.stderr.strip().splitlines()
    assert done.returncode not in (0, 1)
    assert "127.0.0.1:1" in line
    assert not (tmp_path / "checkpoint").exists()
