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
from dataclasses import replace
from itertools import pairwise
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

from benchmarks.measure import (  # noqa: E402
    batches,
    lengths,
    looked_at,
    seconds,
    session,
    timed,
)
from benchmarks.peak_memory import PeakMemory  # noqa: E402
from benchmarks.process_family import ProcessorTime, processor_time  # noqa: E402
from by_group import LIMITS, ByGroup, entries_of  # noqa: E402
from page import write_page  # noqa: E402
from quotaplane.console.option_parser import OptionParser  # noqa: E402
from quotaplane.errors import QuotaplaneError  # noqa: E402
from quotaplane.history.store import open_table  # noqa: E402
from quotaplane.history.tables import ROUNDS  # noqa: E402
from quotaplane.history.writer import HistoryWriter  # noqa: E402
from quotaplane.model import BASIC, DIMENSIONS  # noqa: E402
from quotaplane.registry.table import put_groups  # noqa: E402
from quotaplane.settings import History, Settings, parse_settings  # noqa: E402
from quotaplane.streams.job import StreamJob, prepare  # noqa: E402
from quotaplane.streams.quota.job import QuotaSpec  # noqa: E402
from quotaplane.streams.script import run_job  # noqa: E402
from quotaplane.streams.sink import BatchSink  # noqa: E402
from quotaplane.transport.kafka import KafkaTopics  # noqa: E402
from tests.servers.kafka_server import KafkaServer  # noqa: E402
from workload import QUOTA, Workload  # noqa: E402

COLD, COLD_SMALL, COLD_MILLION = 8, 100, 2
PIP82 = Workload(groups=100_000, brokers=100)
QUIET = replace(PIP82, noise=0.0)
SUPPRESSED = replace(QUIET, reported_every=5)
# A task reads one partition, and at most 64 MB of reports.
MILLION = replace(PIP82, groups=1_000_000, partitions=10)
GROWTH = (10_000, 30_000, 100_000, 300_000)
MEASURED = ROOT / "docs/measured"
KEPT = {part: MEASURED / f"benchmarks-{part}.json" for part in ("pairs", "million", "start")}
"""Kept by ``benchmarks.compare``, by ``--only million``, which needs more memory, and by
``benchmarks.start``."""
_PARTS = ("pip82", "small", "growth")


class Bench:
    """Runs of the benchmark on one Kafka server and one Spark session."""

    def __init__(self, folder: Path, kafka: KafkaServer, spark: SparkSession) -> None:
        self._folder, self.kafka, self.spark = folder, kafka, spark
        self._runs = 0

    def topic(self, name: str, partitions: int = 2) -> str:
        self._runs += 1
        return str(self.kafka.create_topic(f"{name}-{self._runs}", partitions=partitions))

    def load(self, workload: Workload, rounds: int) -> str:
        """Write some rounds of reports into a new topic, each round spread over its partitions."""
        topic = self.topic("reports", workload.partitions)
        producer = KafkaProducer(
            bootstrap_servers=self.kafka.bootstrap_servers,
            max_request_size=16 << 20,
            batch_size=1 << 20,
        )
        for reports in workload.rounds(rounds):
            for number, (broker, value) in enumerate(reports):
                producer.send(
                    topic, value, key=broker.encode(), partition=number % workload.partitions
                )
            producer.flush()
        producer.close()
        return topic

    def conf(self, topic: str, per_batch: int | None) -> dict[str, Any]:
        """Settings of a run on a topic, as a file has them."""
        folder = self._folder / topic
        return {
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
            # Reports older than a quarter of it do not count, and all are written before the job.
            "limits": {"lease_s": 7200},
        }

    def settings(self, topic: str, per_batch: int | None, **others: Any) -> Settings:
        return parse_settings({**self.conf(topic, per_batch), **others})

    def quota_job(
        self, workload: Workload, rounds: int, cold: int, **others: Any
    ) -> list[dict[str, float]]:
        """Seconds of each warm round by stage, after ``cold`` rounds."""
        rounds += cold
        topic = self.load(workload, rounds)
        settings = self.settings(topic, workload.brokers, **others)
        transport = prepare(QuotaSpec(settings))
        self._define(workload, settings)
        with (
            timed(HistoryWriter, "append_round") as history,
            timed(KafkaTopics, "publish") as out,
            looked_at(BatchSink, "__call__", self._processor_time) as used,
        ):
            job = StreamJob(self.spark, QuotaSpec(settings), transport)
            try:
                found = batches(job.query, rounds)
            finally:
                job.stop()
        rows = []
        ends = [end for _, end in used]
        costs = [_cost(*two) for two in pairwise(ends)]
        for batch, in_history, in_kafka, cost in zip(
            found[1:], lengths(history[1:]), lengths(out[1:]), costs, strict=False
        ):
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
                    **cost,
                }
            )
        _check(settings.history, workload.brokers * rounds, cold)
        shutil.rmtree(self._folder / topic, ignore_errors=True)
        return rows[cold - 1 :]

    def _processor_time(self) -> dict[str, ProcessorTime]:
        """Processor time of the job's processes."""
        return processor_time(os.getpid(), self.kafka.pid)

    def _define(self, workload: Workload, settings: Settings) -> None:
        names = workload.names()
        quotas = np.full((len(names), len(DIMENSIONS)), np.inf)
        quotas[:, :BASIC] = QUOTA
        put_groups(settings.history, names, quotas, by="bench")

    def one_process(self, workload: Workload, rounds: int) -> list[dict[str, float]]:
        """Seconds and processor seconds of each warm round of the equal yardstick."""
        rounds += 2
        topic = self.load(workload, rounds)
        conf = self.conf(topic, None)
        settings = parse_settings(conf)
        prepare(QuotaSpec(settings)).close()
        self._define(workload, settings)
        Path(settings.checkpoint).mkdir()
        file = self._folder / f"{topic}.json"
        file.write_text(json.dumps(conf))
        options = [str(file), str(workload.brokers), str(rounds)]
        return self._of_process("one_process.py", options)[2:]

    def _of_process(self, script: str, options: list[str]) -> list[dict[str, float]]:
        """The stages that a script prints."""
        done = subprocess.run(
            [sys.executable, str(ROOT / "benchmarks" / script), *options],
            check=True,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "pipelines"), *_HERE])},
        )
        stages: list[dict[str, float]] = json.loads(done.stdout)
        return stages

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
        options = [self.kafka.bootstrap_servers, topic, str(workload.brokers), str(rounds)]
        stages = self._of_process("plain.py", [*options, str(workload.interval_s)])
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


def _check(history: History, reports: int, cold: int) -> None:
    """Raise an error if many reports took no part in a round: their time would be missing.

    Some may wait, as not every batch has exactly one of each broker. In a ``cold`` round not all
    groups are known yet.
    """
    columns = ["seq", "reports", "rejected"]
    found = open_table(history, ROUNDS.name).to_pyarrow_table(columns=columns).sort_by("seq")
    used, rejected = found["reports"].to_pylist(), found["rejected"].to_pylist()
    if sum(used) < 0.95 * reports or any(rejected[cold:]):
        raise QuotaplaneError(f"not all of {reports} reports were used: {used}, {rejected}")


def _cost(before: dict[str, ProcessorTime], after: dict[str, ProcessorTime]) -> dict[str, float]:
    """Processor seconds between two looks: of each part, all, and in the system."""
    parts = {
        part: used.since(before.get(part, ProcessorTime())) for part, used in sorted(after.items())
    }
    return {
        **{f"processor, {part}": used.total_s for part, used in parts.items()},
        "processor": sum(used.total_s for used in parts.values()),
        "processor, in the system": sum(used.system_s for used in parts.values()),
    }


def median(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}


def main(argv: Sequence[str]) -> None:
    parser = OptionParser(prog="make bench")
    parser.add_argument("--rounds", type=int, default=8, help="warm rounds that count, default: 8")
    parser.add_argument("--only", choices=(*_PARTS, "cost", "million"), help="one part; no page")
    parser.add_argument(
        "--groups", type=int, default=PIP82.groups, help="of the part cost, default: 100,000"
    )
    args = parser.parse_args(argv)
    wanted = (args.only,) if args.only else _PARTS
    found: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory() as name,
        KafkaServer(Path(name, "kafka"), jvm_options="-XX:+UseSerialGC") as kafka,
    ):
        spark = session("quotaplane bench")
        bench = Bench(Path(name), kafka, spark)
        if "cost" in wanted:  # for benchmarks.compare, which reads the line
            rows = bench.quota_job(Workload(args.groups, 100), args.rounds, COLD)
            print(json.dumps(median(rows)), flush=True)
        if "million" in wanted:
            with PeakMemory(os.getpid(), kafka.pid) as memory:
                rows = bench.quota_job(MILLION, args.rounds, COLD_MILLION, shards=8)
            million = {**median(rows), "peak_gb": memory.taken_gb()}
            KEPT["million"].write_text(json.dumps(million, indent=1) + "\n", encoding="utf-8")
        if "pip82" in wanted:
            loop = bench.quota_job(PIP82, args.rounds, COLD)
            # A run of its own: looking at the memory takes processor time.
            with PeakMemory(os.getpid(), kafka.pid) as memory:
                bench.quota_job(PIP82, 2, 4)
            found["pip82"] = {
                "loop": median(loop),
                "plain": median(bench.plain(PIP82, args.rounds)),
                "one_process": median(bench.one_process(PIP82, args.rounds)),
                "quiet": median(bench.quota_job(QUIET, args.rounds, COLD)),
                "suppressed": median(bench.quota_job(SUPPRESSED, args.rounds, COLD)),
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
            measured = {PIP82.groups: found["pip82"]["loop"]} if "pip82" in found else {}
            found["growth"] = {
                groups: measured.get(groups)
                or median(bench.quota_job(Workload(groups, 100), args.rounds, COLD))
                for groups in GROWTH
            }
            print(json.dumps(found["growth"], indent=1), flush=True)
            groups = GROWTH[0]  # at PIP-82's scale a round takes many minutes
            found["by_group"] = statistics.median(bench.by_group(Workload(groups, 100), 2))
            print(json.dumps({"by_group": found["by_group"]}), flush=True)
        spark.stop()
    if not args.only:
        kept = {part: json.loads(file.read_text("utf-8")) for part, file in KEPT.items()}
        write_page(MEASURED / "benchmarks.md", found, kept)


if __name__ == "__main__":
    run_job(main)
