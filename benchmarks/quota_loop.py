"""Measures the quota loop on a real Kafka and writes docs/measured/benchmarks.md (``make bench``).

Every run first writes all its reports. Admission control makes a micro-batch read exactly one round
of them, so a batch's duration is the cost of a round: from reports in Kafka to limits in Kafka and
the history committed. The first rounds (empty state, cold JVM) do not count.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from kafka import KafkaProducer
from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[1]
_HERE = [str(ROOT), str(ROOT / "benchmarks")]
sys.path[:0] = _HERE
# Spark's Python workers import by_group from this folder as well.
os.environ["PYTHONPATH"] = os.pathsep.join([*_HERE, os.environ.get("PYTHONPATH", "")])

from benchmarks.measure import batches, seconds, session, timed  # noqa: E402
from benchmarks.peak_memory import PeakMemory  # noqa: E402
from by_group import LIMITS, ByGroup, entries_of  # noqa: E402
from page import write_page  # noqa: E402
from quotaplane.console.option_parser import OptionParser  # noqa: E402
from quotaplane.history.writer import HistoryWriter  # noqa: E402
from quotaplane.model import BASIC, DIMENSIONS  # noqa: E402
from quotaplane.registry.table import put_groups  # noqa: E402
from quotaplane.settings import Settings, parse_settings  # noqa: E402
from quotaplane.streams.job import StreamJob, prepare  # noqa: E402
from quotaplane.streams.quota.job import QuotaSpec  # noqa: E402
from quotaplane.streams.script import run_job  # noqa: E402
from quotaplane.transport.kafka import KafkaTopics  # noqa: E402
from tests.servers.kafka_server import KafkaServer  # noqa: E402
from workload import QUOTA, Workload  # noqa: E402

COLD, COLD_SMALL = 8, 100
PIP82 = Workload(groups=100_000, brokers=100)
GROWTH = (10_000, 30_000, 100_000, 300_000)


class Bench:
    """Runs of the benchmark on one Kafka server and one Spark session."""

    def __init__(self, folder: Path, kafka: KafkaServer, spark: SparkSession) -> None:
        self._folder, self.kafka, self.spark = folder, kafka, spark
        self._runs = 0

    def topic(self, name: str) -> str:
        self._runs += 1
        return str(self.kafka.create_topic(f"{name}-{self._runs}", partitions=2))

    def load(self, workload: Workload, rounds: int) -> str:
        """Write some rounds of reports into a new topic, each round spread over its partitions."""
        topic = self.topic("reports")
        producer = KafkaProducer(
            bootstrap_servers=self.kafka.bootstrap_servers,
            max_request_size=16 << 20,
            batch_size=1 << 20,
        )
        for reports in workload.rounds(rounds):
            for number, (broker, value) in enumerate(reports):
                producer.send(topic, value, key=broker.encode(), partition=number % 2)
            producer.flush()
        producer.close()
        return topic

    def settings(self, topic: str, per_batch: int | None, **more: Any) -> Settings:
        folder = self._folder / topic
        return parse_settings(
            {
                "transport": {
                    "kind": "kafka",
                    "bootstrap_servers": self.kafka.bootstrap_servers,
                    "report_topics": [topic],
                    "limits_topic": self.topic("limits"),
                    "starting": "earliest",
                    "max_reports_per_trigger": per_batch,
                },
                "history": {"path": str(folder / "history")},
                "checkpoint": str(folder / "checkpoint"),
                "trigger": {"interval_s": 0},
                "reports": {"interval_s": 60.0},
                "brokers": {"expire_after_intervals": 90, "stale_after_intervals": 60},
                "limits": {"lease_s": 1200},
                **more,
            }
        )

    def quota_job(self, workload: Workload, rounds: int, cold: int) -> list[dict[str, float]]:
        """Seconds of each warm round by stage, after ``cold`` rounds."""
        rounds += cold
        topic = self.load(workload, rounds)
        settings = self.settings(topic, workload.brokers)
        transport = prepare(QuotaSpec(settings))
        names = workload.names()
        quotas = np.full((len(names), len(DIMENSIONS)), np.inf)
        quotas[:, :BASIC] = QUOTA
        put_groups(settings.history, names, quotas, by="bench")
        with timed(HistoryWriter, "append_round") as history, timed(KafkaTopics, "publish") as out:
            job = StreamJob(self.spark, QuotaSpec(settings), transport)
            try:
                found = batches(job.query, rounds)
            finally:
                job.stop()
        rows = []
        for batch, in_history, in_kafka in zip(found, history, out, strict=False):
            took = batch["durationMs"]
            rows.append(
                {
                    "round": seconds(batch),
                    "history": in_history,
                    "publish": in_kafka,
                    "decode, shuffle, state, collect": took["addBatch"] / 1000
                    - in_history
                    - in_kafka,
                    "offsets, plan, commit": (took["triggerExecution"] - took["addBatch"]) / 1000,
                }
            )
        shutil.rmtree(self._folder / topic, ignore_errors=True)
        return rows[cold:]

    def by_group(self, workload: Workload, rounds: int) -> list[float]:
        """Seconds of each warm round of the job keyed by group, after one cold round."""
        rounds += 1
        topic = self.load(workload, rounds)
        settings = self.settings(topic, workload.brokers)
        reports = prepare(QuotaSpec(settings)).read_reports(self.spark)
        query = (
            entries_of(reports, workload.interval_s)
            .groupBy("group_id")
            .transformWithStateInPandas(ByGroup(), LIMITS, "append", "ProcessingTime")
            .writeStream.format("noop")
            .option("checkpointLocation", settings.checkpoint)
            .start()
        )
        return self._durations(query, rounds)[1:]

    def _durations(self, query: Any, rounds: int) -> list[float]:
        try:
            return [seconds(report) for report in batches(query, rounds)[:rounds]]
        finally:
            query.stop()

    def plain(self, workload: Workload, rounds: int) -> list[dict[str, float]]:
        """Seconds of each warm round of the plain process by stage, after one cold round."""
        rounds += 1
        topic = self.load(workload, rounds)
        done = subprocess.run(
            [
                sys.executable,
                str(ROOT / "benchmarks" / "plain.py"),
                self.kafka.bootstrap_servers,
                topic,
                str(workload.brokers),
                str(rounds),
                str(workload.interval_s),
            ],
            check=True,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT / "pipelines")},
        )
        stages: list[dict[str, float]] = json.loads(done.stdout)
        # The client reads in bursts, so every round gets the mean reading time.
        read = statistics.mean(stage["read"] for stage in stages)
        return [
            {"round": read + stage["parse"] + stage["law"], **stage, "read": read}
            for stage in stages[1:]
        ]

    def nothing(self, workload: Workload, rounds: int, cold: int) -> list[float]:
        """Seconds of each warm micro-batch of a query that only reads the topic."""
        rounds += cold
        topic = self.load(workload, rounds)
        settings = self.settings(topic, workload.brokers)
        query = (
            prepare(QuotaSpec(settings))
            .read_reports(self.spark)
            .writeStream.format("noop")
            .option("checkpointLocation", settings.checkpoint)
            .start()
        )
        return self._durations(query, rounds)[cold:]


def median(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}


def main(argv: Sequence[str]) -> None:
    parser = OptionParser(prog="make bench")
    parser.add_argument("--rounds", type=int, default=8, help="warm rounds that count, default: 8")
    parser.add_argument("--only", choices=("pip82", "small", "growth"), help="one part; no page")
    args = parser.parse_args(argv)
    wanted = (args.only,) if args.only else ("pip82", "small", "growth")
    found: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory() as name,
        KafkaServer(Path(name, "kafka"), jvm_options="-XX:+UseSerialGC") as kafka,
    ):
        spark = session("quotaplane bench")
        bench = Bench(Path(name), kafka, spark)
        if "pip82" in wanted:
            with PeakMemory(os.getpid(), kafka.pid) as memory:
                loop = bench.quota_job(PIP82, args.rounds, COLD)
            found["pip82"] = {
                "loop": median(loop),
                "loop_range": [min(r["round"] for r in loop), max(r["round"] for r in loop)],
                "plain": median(bench.plain(PIP82, args.rounds)),
                "peak_gb": memory.taken_gb(),
            }
            print(json.dumps(found["pip82"], indent=1), flush=True)
        if "small" in wanted:
            small = Workload(groups=12, brokers=6, spread=6)
            found["small"] = {
                "loop": median(bench.quota_job(small, 50, COLD_SMALL)),
                "nothing": statistics.median(bench.nothing(small, 50, COLD_SMALL)),
            }
            print(json.dumps(found["small"], indent=1), flush=True)
        if "growth" in wanted:
            found["growth"] = {
                groups: median(bench.quota_job(Workload(groups, 100), args.rounds, COLD))
                for groups in GROWTH
            }
            print(json.dumps(found["growth"], indent=1), flush=True)
            groups = GROWTH[0]  # at PIP-82's scale a round takes many minutes
            found["by_group"] = statistics.median(bench.by_group(Workload(groups, 100), 2))
            print(json.dumps({"by_group": found["by_group"]}), flush=True)
        spark.stop()
    if not args.only:
        write_page(ROOT / "docs/measured/benchmarks.md", found)


if __name__ == "__main__":
    run_job(main)
