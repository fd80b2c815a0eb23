"""Measures the quota job under overload on a real Kafka and writes docs/overload.md.

    python -m benchmarks.overload [--phase-s 60] [--pause-s 600]

Between any two phases the load is normal for as long as a phase. Everything is seen from outside:
the table ``usage`` says which reports were used and when, and the limits topic when a quota that
another process changed came into force.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import duckdb
import numpy as np
from deltalake import DeltaTable
from kafka import KafkaConsumer, TopicPartition

from benchmarks.overload.load import BROKERS, PROBE, broker_name, group_names
from benchmarks.overload.page import write_page
from benchmarks.overload.phases import (
    FAULTS,
    FRESH_WITHIN_S,
    INTERVAL_S,
    NORMAL,
    Figures,
    Phase,
    Write,
    fresh,
    goodput,
    of_writes,
    useful_after_s,
)
from benchmarks.peak_memory import PeakMemory
from benchmarks.program import ROOT
from benchmarks.workload import QUOTA
from quotaplane.history.store import ensure_tables, table_uri
from quotaplane.model import BASIC, DIMENSIONS, BoolArray
from quotaplane.option_parser import OptionParser
from quotaplane.registry.table import put_groups
from quotaplane.settings import History
from quotaplane.wire.limits import decode_limits
from tests.job import RunningJob, write_conf
from tests.servers.kafka_server import KafkaServer

_WRITE_EVERY_S: Final = 5.0
_LOW, _HIGH = 1000.0, 2000.0
"""The two quotas of the probe."""


class Probe(threading.Thread):
    """Changes the probe's quota again and again, and reads in the limits topic when that works."""

    def __init__(self, history: History, servers: str, topic: str, begun_s: float) -> None:
        super().__init__(daemon=True)
        self._history, self._begun_s = history, begun_s
        self._ended = threading.Event()
        self._limits = KafkaConsumer(bootstrap_servers=servers, group_id=None)
        partitions = [TopicPartition(topic, 0)]
        self._limits.assign(partitions)
        self._limits.seek_to_end(*partitions)
        self.writes: list[Write] = []

    def run(self) -> None:
        quota = _HIGH
        while not self._ended.wait(_WRITE_EVERY_S):
            quota = _LOW if quota == _HIGH else _HIGH
            begun_s = self._now_s()
            put_probe(self._history, quota)
            committed_s = self._now_s()
            self.writes.append(Write(begun_s, committed_s, self._published(quota)))
        self._limits.close()

    def end(self) -> None:
        """End after the write that is under way."""
        self._ended.set()
        self.join()

    def _published(self, quota: float) -> float:
        """When the first limit of the probe that fits its new quota was in the topic."""
        while not self._ended.is_set():
            for records in self._limits.poll(timeout_ms=100).values():
                if any(_limit_of_probe(record.value) == quota / BROKERS for record in records):
                    return self._now_s()
        return float("inf")

    def _now_s(self) -> float:
        return time.time() - self._begun_s


def _limit_of_probe(value: bytes) -> float:
    message = decode_limits(value)
    if PROBE not in message.groups:
        return float("nan")
    return float(message.limits[message.groups.index(PROBE), 0])


def put_probe(history: History, quota: float) -> None:
    """Change the quota of the probe, as `quotaplane groups put` does."""
    put_groups(history, [PROBE], _quotas(1, quota), by="overload")


def _quotas(count: int, quota: float) -> np.ndarray[Any, Any]:
    quotas = np.full((count, len(DIMENSIONS)), np.inf)
    quotas[:, :BASIC] = quota
    return quotas


class Load:
    """The process that sends reports."""

    def __init__(self, servers: str, topic: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.overload.load", servers, topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'pipelines'}:{ROOT}"},
            cwd=ROOT,
        )

    def __enter__(self) -> Load:
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "sending":
            raise RuntimeError("the process that sends reports ended")
        return self

    def become(self, phase: Phase) -> None:
        """Send as this phase wants it from now on."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(phase)) + "\n")
        self._process.stdin.flush()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


def measure(folder: Path, phase_s: float, pause_s: float) -> list[Figures]:
    """Run everything; a line for each phase goes to stdout."""
    with KafkaServer(folder / "kafka", heap_mb=1024) as kafka:
        reports = kafka.create_topic("reports", partitions=2)
        limits = kafka.create_topic("limits", partitions=1)
        servers = kafka.bootstrap_servers
        conf = write_conf(
            folder / "job",
            {
                "kind": "kafka",
                "bootstrap_servers": servers,
                "report_topics": [reports],
                "limits_topic": limits,
            },
            reports={"interval_s": INTERVAL_S},
        )
        history = History(path=str(folder / "job" / "history"))
        ensure_tables(history)
        names = group_names()
        put_groups(history, names, _quotas(len(names), QUOTA), by="overload")
        put_probe(history, _HIGH)
        with RunningJob(conf, "--driver-memory", "4g") as job, Load(servers, reports) as load:
            job.wait_until(lambda: job.rounds() >= 5)
            return _phases(job, load, history, (servers, limits), phase_s, pause_s)


def _phases(
    job: RunningJob,
    load: Load,
    history: History,
    where: tuple[str, str],
    phase_s: float,
    pause_s: float,
) -> list[Figures]:
    begun_s = time.time()
    probe = Probe(history, *where, begun_s)
    probe.start()
    spans: list[tuple[Phase, float, float, float]] = []
    load.become(NORMAL)
    time.sleep(phase_s)  # the start of the JVM does not count
    with PeakMemory(job.process.pid) as memory:
        for phase in _with_breaks():
            begin_s = time.time() - begun_s
            memory.taken_gb()
            load.become(phase)
            if phase.job_paused:
                _paused(job, pause_s)
            else:
                time.sleep(phase_s)
            spans.append((phase, begin_s, time.time() - begun_s, memory.taken_gb()))
            print(f"{time.time() - begun_s:5.0f} s  {phase.name}", flush=True)
    time.sleep(2 * FRESH_WITHIN_S)
    probe.end()
    found = _used(history, begun_s)
    return [
        Figures(
            phase.name,
            goodput(found, begin_s, end_s),
            useful_after_s(found, end_s, end_s + phase_s),
            *of_writes(probe.writes, begin_s, end_s),
            peak_gb=peak_gb,
        )
        for phase, begin_s, end_s, peak_gb in spans
        if phase is not _BREAK
    ]


_BREAK: Final = replace(NORMAL, name="(normal again)")


def _with_breaks() -> Iterator[Phase]:
    yield NORMAL
    for phase in FAULTS:
        yield phase
        yield _BREAK


def _paused(job: RunningJob, pause_s: float) -> None:
    group = os.getpgid(job.process.pid)
    os.killpg(group, signal.SIGSTOP)
    try:
        time.sleep(pause_s)
    finally:
        os.killpg(group, signal.SIGCONT)


_USED: Final = """
SELECT broker, epoch_us(published_at) / 1e6 AS published, epoch_us(ended_at) / 1e6 AS used
FROM usage JOIN (
    SELECT seq, lead(round_at) OVER (ORDER BY seq) AS ended_at FROM rounds
) USING (seq)
WHERE resource_group = $1 AND ended_at IS NOT NULL
"""
"""A report is used when the round that read it has ended, so when the next one begins."""


def _used(history: History, begun_s: float) -> BoolArray:
    """``fresh`` of the reports of the brokers that exist, by the table ``usage``."""
    tables = {
        name: DeltaTable(table_uri(history, name)).to_pyarrow_dataset()
        for name in ("usage", "rounds")
    }
    with duckdb.connect() as database:
        for name, table in tables.items():
            database.register(name, table)
        rows = database.execute(_USED, [PROBE]).fetchnumpy()
    index = {broker_name(number): number for number in range(BROKERS)}
    brokers = np.array([index[name] for name in rows["broker"]], np.int64)
    published, used = rows["published"] - begun_s, rows["used"] - begun_s
    since = published >= 0
    return fresh(brokers[since], published[since], used[since], BROKERS)


def main() -> None:
    """Measure, and write the page."""
    parser = OptionParser(prog="make overload", description=__doc__)
    parser.add_argument("--phase-s", type=float, default=60.0)
    parser.add_argument("--pause-s", type=float, default=600.0)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="quotaplane-overload-"))
    try:
        figures = measure(folder, asked.phase_s, asked.pause_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(write_page(asked.docs / "overload.md", figures, asked.phase_s, asked.pause_s))


if __name__ == "__main__":
    main()
