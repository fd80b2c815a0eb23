"""The enforcer while 100 topics a second are created, on a cluster's REST API in memory.

    python -m benchmarks.overload.enforcer [--flood-s 40] [--topics-per-s 100] [--live-s 0]

There is no Pulsar, but real HTTP. With ``--live-s`` topics are deleted so many seconds after their
creation, for a long run: then the memory of the enforcer's process is sampled, too.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.machine import machine
from benchmarks.overload import fake_cluster
from benchmarks.program import ROOT
from benchmarks.soak_day.samples import slope, use_of
from quotaplane.agents.conditions import Conditions
from quotaplane.console.option_parser import OptionParser
from quotaplane.pulsar_admin.rest import Rest
from tests.unit.enforce.enforce_cluster import FakePulsar, Running

_LOW, _HIGH = 1000.0, 3000.0
_PROBE_EVERY_S: Final = 5.0
_SAMPLE_EVERY_S: Final = 5.0
_NEAR: Final = 0.1


class _Cluster(FakePulsar):
    """A cluster in another process, which the enforcer reaches over HTTP."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder=folder)
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=fake_cluster.main, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.url = self._pipe.recv()
        self._turn = asyncio.Lock()

    def rest(self, conditions: Conditions | None = None, **security: Any) -> Rest:
        """A client over HTTP."""
        return Rest(self.transport(**security), conditions=conditions)

    async def ask(self, what: str, *arguments: Any) -> Any:
        async with self._turn:
            self._pipe.send((what, *arguments))
            return await asyncio.to_thread(self._pipe.recv)


class Flood:
    """One run."""

    def __init__(self, cluster: _Cluster, running: Running) -> None:
        self._cluster, self._running = cluster, running
        self.born_s: dict[str, float] = {}
        self.rated_s: dict[str, float] = {}
        self.probes: list[tuple[float, float]] = []
        """When each change of the other group's limit began, and how long its rates took."""
        self.samples: list[tuple[float, float, int, int, int]] = []
        self.over = asyncio.Event()

    async def create(self, per_s: int, seconds: float, live_s: float) -> None:
        """Create topics, and delete them after ``live_s`` (0: never)."""
        begun_s, made, oldest = time.time(), 0, 0
        while (passed_s := time.time() - begun_s) < seconds:
            names = [f"flood-{n:06d}" for n in range(made, int(passed_s * per_s))]
            made += len(names)
            if names:
                await self._cluster.ask("come", names)
                self.born_s |= dict.fromkeys(names, time.time())
            due = int((passed_s - live_s) * per_s) if live_s else 0
            if due > oldest:
                self.rated_s |= await self._cluster.ask("flooded_rated")
                await self._cluster.ask("go", [f"flood-{n:06d}" for n in range(oldest, due)])
                oldest = due
            await asyncio.sleep(0.1)

    async def probe(self) -> None:
        """Change the other group's limit again and again, until the run is over."""
        limit = _HIGH
        while not self.over.is_set():
            limit = _LOW if limit == _HIGH else _HIGH
            begun_s = time.time()
            self._cluster.link.send("pulsar://b0", limit, group="h", safe=_HIGH)
            self._cluster.link.send("pulsar://b0", 100_000.0, group="g", safe=100_000.0)
            while abs(await self._cluster.ask("others_rate") / limit - 1.0) > _NEAR:
                await asyncio.sleep(0.05)
            self.probes.append((begun_s, time.time() - begun_s))
            await asyncio.sleep(max(begun_s + _PROBE_EVERY_S - time.time(), 0.0))

    async def watch(self) -> None:
        """Keep the clock going, and sample what the process uses."""
        while not self.over.is_set():
            self._running.now_ms = time.time() * 1000
            use = use_of(os.getpid())
            waiting = self._running.enforcer.status().waiting
            self.samples.append((time.time(), *use, waiting))
            for _ in range(int(_SAMPLE_EVERY_S / 0.5)):
                self._running.now_ms = time.time() * 1000
                await asyncio.sleep(0.5)


async def measure(cluster: _Cluster, asked: Any) -> dict[str, Any]:
    """Quiet, the flood, quiet again; the figures."""
    async with cluster.enforcing(interval_s=0.5) as running:
        flood = Flood(cluster, running)
        tasks = [asyncio.create_task(flood.probe()), asyncio.create_task(flood.watch())]
        await asyncio.sleep(asked.quiet_s)
        begin_s, cpu_s = time.time(), time.process_time()
        await flood.create(asked.topics_per_s, asked.flood_s, asked.live_s)
        end_s = time.time()
        cpu_share = (time.process_time() - cpu_s) / (end_s - begin_s)
        await asyncio.sleep(asked.quiet_s)
        all_cpu_s = time.process_time() - cpu_s
        flood.over.set()
        await asyncio.gather(*tasks)
        flood.rated_s |= await cluster.ask("flooded_rated")
        reads, writes = await cluster.ask("requests")
    figures = _figures(flood, begin_s, end_s, reads, writes)
    return {
        "topics_per_s": asked.topics_per_s,
        "cores_got": round(cpu_share, 2),
        "cpu_ms_per_topic": round(1000 * all_cpu_s / max(figures["topics_with_a_rate"], 1), 1),
        **figures,
    }


def _figures(
    flood: Flood, begin_s: float, end_s: float, reads: dict[int, int], writes: dict[int, int]
) -> dict[str, Any]:
    """The figures, in seconds and requests a second."""
    probes = np.array(flood.probes)
    inside = (probes[:, 0] >= begin_s) & (probes[:, 0] < end_s)
    rated_s = flood.rated_s
    waits = [rated_s[name] - at_s for name, at_s in flood.born_s.items() if name in rated_s]
    last_s = max(rated_s.values(), default=float("nan"))
    rows = np.array(flood.samples)
    later = rows[rows[:, 0] > rows[0, 0] + (rows[-1, 0] - rows[0, 0]) / 3]
    hours = (later[:, 0] - rows[0, 0]) / 3600
    return {
        "topics": len(flood.born_s),
        "topics_with_a_rate": len(waits),
        "rated_within_5_s": round(sum(wait <= 5.0 for wait in waits) / len(flood.born_s), 3),
        "first_rate_p50_s": round(float(np.median(waits)), 2),
        "first_rate_p99_s": round(float(np.quantile(waits, 0.99)), 2),
        "last_rate_after_end_s": round(last_s - end_s, 1),
        "others_quiet_max_s": round(float(probes[~inside, 1].max()), 2),
        "others_flood_p50_s": round(float(np.median(probes[inside, 1])), 2),
        "others_flood_max_s": round(float(probes[inside, 1].max()), 2),
        "reads_max_per_s": max(reads.values(), default=0),
        "writes_max_per_s": max(writes.values(), default=0),
        "waiting_max": int(rows[:, 4].max()),
        "memory_mb": [round(rows[0, 1]), round(rows[-1, 1])],
        "memory_mb_per_hour": round(slope(hours.tolist(), later[:, 1].tolist()), 1),
        "memory_bytes_per_topic": round(
            slope(hours.tolist(), later[:, 1].tolist())
            * (1 << 20)
            / max(len(flood.born_s) / ((end_s - begin_s) / 3600), 1)
        ),
        "descriptors": [int(later[:, 2].min()), int(later[:, 2].max())],
        "threads": [int(later[:, 3].min()), int(later[:, 3].max())],
        "load_average": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = OptionParser(prog="python -m benchmarks.overload.enforcer", description=__doc__)
    parser.add_argument("--flood-s", type=float, default=40.0)
    parser.add_argument("--quiet-s", type=float, default=15.0)
    parser.add_argument("--topics-per-s", type=int, default=100)
    parser.add_argument("--live-s", type=float, default=0.0)
    parser.add_argument("--results", type=Path, default=ROOT / "docs/measured/overload.json")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="quotaplane-flood-"))
    cluster = _Cluster(folder)
    try:
        figures = asyncio.run(measure(cluster, asked))
    finally:
        cluster.process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(figures, indent=1))
    if not asked.live_s:
        kept = json.loads(asked.results.read_text()) if asked.results.exists() else {}
        kept.setdefault("enforcer", {})[str(asked.topics_per_s)] = figures
        kept["machine"] = machine("pyspark")
        asked.results.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
