"""The runs of the measurement, and one of them from its reports to its figures."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from benchmarks.peak_memory import pss_kb
from benchmarks.process_family import family, parts
from benchmarks.quota_loop import Bench
from benchmarks.scale_out.load import Load
from benchmarks.scale_out.observed_round import PARTS
from benchmarks.workload import QUOTA
from quotaplane.history.store import ensure_tables
from quotaplane.model import BASIC, DIMENSIONS
from quotaplane.registry.table import put_groups
from quotaplane.settings import load_settings
from tests.servers.kafka_server import KafkaServer
from tests.servers.spark_standalone import SparkStandalone
from tests.spark.fixtures import ROOT, launcher_environment

ACTIVE: Final = 0.1
"""The share of the groups that are reported in the last rounds of a run."""
ALL: Final = "all"
_LEAST_FREE_KB: Final = 1_200_000
"""With less memory available a run is stopped, before the system chooses a process to kill."""
_LONGEST_S: Final = 540.0
_ENTRIES_OF_TASK: Final = 1_000_000
_GROUPS_OF_SHARD: Final = 125_000


@dataclass(frozen=True)
class Run:
    """A size, and what it runs on."""

    groups: int
    executors: int
    """How many a standalone cluster has, each with one core; 0: all in the driver's JVM."""
    spread: int = 5
    """Brokers of a group."""
    brokers: int = 100
    heap_gb: int = 2
    """Heap of each executor's JVM, or of the only one."""
    driver_writes: bool = False
    """The driver writes the history, as if the executors had another disk."""
    cold_rounds: int = 4
    whole_rounds: int = 5
    """Rounds with reports of all groups."""
    active_rounds: int = 3
    """Rounds with reports of the active groups."""

    @property
    def shards(self) -> int:
        """At most 125,000 groups in each, and at least one for each core of the machine."""
        return max(2, -(-self.groups // _GROUPS_OF_SHARD))

    @property
    def load(self) -> Load:
        """Its reports. A task decodes at most 64 MB of them."""
        tasks = self.groups * self.spread / _ENTRIES_OF_TASK
        partitions = next(n for n in (2, 4, 5, 10, 20, 25, 50, 100) if n >= tasks)
        return Load(
            groups=self.groups,
            brokers=self.brokers,
            spread=self.spread,
            partitions=partitions,
            shares=(1.0,) * (self.cold_rounds + self.whole_rounds) + (ACTIVE,) * self.active_rounds,
        )

    def median_rounds(self, rows: list[dict[str, float]]) -> dict[str, dict[str, float]]:
        """Medians of the figures of its warm rounds, by kind of round; of the first as it is."""
        warm = {
            "whole": rows[self.cold_rounds : self.cold_rounds + self.whole_rounds],
            "active": rows[self.cold_rounds + self.whole_rounds :],
        }
        found = {kind: _medians(of_kind) for kind, of_kind in warm.items()}
        return {"first": rows[0], **found}


def _medians(rows: list[dict[str, float]]) -> dict[str, float]:
    names = {name: None for row in rows for name in row}
    return {name: statistics.median(row.get(name, 0) for row in rows) for name in names}


def measured(run: Run, folder: Path, history: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Run it in an empty folder.

    ``history``: where, instead of in the folder; the options of Spark that it needs are ``spark``.

    Returns:
        ``rows``: the figures of each round; ``peak_gb``: of each part, and of all; ``feed_s``;
        ``stopped``: why there are no rows.
    """
    conf, plan, found = (folder / name for name in ("conf.yaml", "plan.json", "found.json"))
    history = dict(history or {})
    options = history.pop("spark", [])
    # Without compiled code a server takes longer to store the reports than to start.
    with KafkaServer(folder / "kafka", jvm_options="-XX:+UseSerialGC") as kafka:
        begun_s = time.monotonic()
        _in_child(_prepare, run, conf, kafka, history)
        feed_s = time.monotonic() - begun_s
        with _cluster(run, folder / "cluster") as (of_cluster, workers):
            about = {
                "settings": str(conf),
                "executors": run.executors,
                "workers": workers,
                "driver_writes": run.driver_writes,
                "rounds": len(run.load.shares),
                "found": str(found),
            }
            plan.write_text(json.dumps(about), encoding="utf-8")
            script = str(ROOT / "benchmarks/scale_out/job.py")
            words = [script, *options, *of_cluster, str(plan)]
            with _process(words, folder / "job.log") as job:
                peak_gb, stopped = _watched(job, workers)
    result = {"peak_gb": peak_gb, "feed_s": feed_s}
    if not found.exists():
        log = (folder / "job.log").read_text(errors="replace")
        return {**result, "stopped": stopped or log[-2000:]}
    return {**result, "rows": json.loads(found.read_text("utf-8"))}


@contextmanager
def _cluster(run: Run, folder: Path) -> Iterator[tuple[list[str], list[int]]]:
    """The launcher's options for the cluster of a run, and the processes of its workers."""
    if not run.executors:
        yield ["--driver-memory", f"{run.heap_gb}g"], []
        return
    folder.mkdir()
    memory = f"{run.heap_gb + 1}g"
    with SparkStandalone(folder, launcher_environment(), run.executors, memory=memory) as cluster:
        options = ["--master", cluster.url, "--properties-file", str(cluster.options_file)]
        options += ["--executor-memory", f"{run.heap_gb}g", "--driver-memory", "3g"]
        yield options, cluster.workers


def _in_child(work: Callable[..., None], *arguments: Any) -> None:
    """Run ``work`` in a process of its own: it takes gigabytes, which the system then gets back.

    Raises:
        RuntimeError: it failed, and has printed why.
    """
    child = get_context("fork").Process(target=work, args=arguments)
    child.start()
    child.join()
    if child.exitcode:
        raise RuntimeError(f"{work.__name__} ended with {child.exitcode}")


def _prepare(run: Run, conf: Path, kafka: KafkaServer, history: Mapping[str, Any]) -> None:
    """Write the settings file, the groups into the history, and the reports into the topic."""
    load = run.load
    bench = Bench(conf.parent, kafka, None)  # type: ignore[arg-type]
    topic = bench.load(load, len(load.shares))
    raw = bench.conf(topic, load.brokers) | {"shards": run.shards}
    raw["history"] |= history
    conf.write_text(yaml.safe_dump(raw), encoding="utf-8")
    settings = load_settings(str(conf))
    ensure_tables(settings.history)
    names = load.names()
    quotas = np.full((len(names), len(DIMENSIONS)), np.inf)
    quotas[:, :BASIC] = QUOTA
    put_groups(settings.history, names, quotas, by="bench")


@contextmanager
def _process(words: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The launcher with a job, in a process group of its own; in the end all of it is killed."""
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"PYTHONPATH": f"{ROOT / 'pipelines'}:{ROOT}"}
    with log.open("wb") as out:
        job = subprocess.Popen(
            [str(ROOT / "spark-submit.sh"), *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield job
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def _watched(job: subprocess.Popen[bytes], workers: list[int]) -> tuple[dict[str, float], str]:
    """Peak memory of each part and of all until the job ends; why it was stopped, or ""."""
    peak_kb: dict[str, int] = defaultdict(int)
    until_s = time.monotonic() + _LONGEST_S
    while job.poll() is None:
        of_part = _memory_kb(job.pid, workers)
        for part, kb in of_part.items():
            peak_kb[part] = max(peak_kb[part], kb)
        stopped = ""
        if _available_kb() < _LEAST_FREE_KB:
            stopped = f"the machine's memory was used up: {of_part[ALL] / 1e6:.1f} GB by it"
        elif time.monotonic() > until_s:
            stopped = f"it was not done after {_LONGEST_S:g} s"
        if stopped:
            for pid in [pid for root in (job.pid, *workers) for pid in family(root)]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return _in_gb(peak_kb), stopped
        time.sleep(0.5)
    return _in_gb(peak_kb), ""


def _in_gb(kb: Mapping[str, int]) -> dict[str, float]:
    return {part: each / 1e6 for part, each in kb.items()}


def _memory_kb(driver: int, workers: list[int]) -> dict[str, int]:
    """Memory by ``PARTS``, of several executors that of the larger one; and of all together."""
    of_roots = [
        {part: sum(map(pss_kb, pids)) for part, pids in parts(root).items()}
        for root in (driver, *workers)
    ]
    of_driver, of_workers = of_roots[0], of_roots[1:]

    def largest(part: str, of_roots: list[dict[str, int]]) -> int:
        return max((each.get(part, 0) for each in of_roots), default=0)

    found = (
        of_driver.get("driver", 0),
        of_driver.get("jvm", 0),
        largest("jvm", of_workers),
        largest("workers", [of_driver, *of_workers]),
    )
    everything = sum(sum(each.values()) for each in of_roots)
    return {**dict(zip(PARTS, found, strict=True)), ALL: everything}


def _available_kb() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
