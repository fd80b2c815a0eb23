"""Measures the cost of observed usage on a broker with many topics; prints a line of JSON. Minutes.

.venv/bin/python -m benchmarks.observed_cost --topics 50000 --heap-mb 6144

One stock broker with its bookie in one process, an enforcer that reports what it observes, and
nothing else: no quota job, no traffic. Of each 100 topics, up to 50 times, one namespace and group
is made: a namespace's own system topic has as many metrics as two or three topics.
docs/operate/pulsar.md has the figures.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import pulsar
import yaml

from benchmarks.machine import yardstick_s
from benchmarks.program import Program
from quotaplane.console.option_parser import OptionParser
from quotaplane.settings.transports import STOCK_REPORTS
from quotaplane.streams.script import run_job
from tests.job import begin_history
from tests.servers.enforcer_process import conf_for
from tests.servers.pulsar_server import PulsarServer

_TOPICS_PER_GROUP: Final = 100
_MOST_GROUPS: Final = 50
_AT_ONCE: Final = 32
_PAGE_READS: Final = 3


def make_topics(server: PulsarServer, topics: int) -> None:
    """Create topics, loaded."""
    rest, groups = server.rest, min(max(topics // _TOPICS_PER_GROUP, 1), _MOST_GROUPS)
    rest.create_tenant("acme")
    for number in range(groups):
        namespace = rest.create_namespace(f"acme/n{number}", bundles=4)
        rest.attach(namespace, rest.put_group(f"g{number}", publish_messages_per_s=1000))

    async def create() -> None:
        limits = httpx.Limits(max_connections=_AT_ONCE)
        async with httpx.AsyncClient(base_url=server.admin_url, limits=limits, timeout=60) as http:
            places = asyncio.Semaphore(_AT_ONCE)

            async def one(number: int) -> None:
                name = f"/admin/v2/persistent/acme/n{number % groups}/topic-{number:05}"
                async with places:
                    (await http.put(name)).raise_for_status()

            await asyncio.gather(*map(one, range(topics)))

    asyncio.run(create())


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_page(server: PulsarServer) -> tuple[float, float]:
    """Size in MB and least seconds of reading the broker's metrics."""
    took_s, size = [], 0
    for _ in range(_PAGE_READS):
        begun_s, size = time.monotonic(), 0
        with httpx.stream("GET", f"{server.admin_url}/metrics/", timeout=120) as answer:
            for part in answer.iter_bytes():
                size += len(part)
        took_s.append(time.monotonic() - begun_s)
    return size / 1e6, min(took_s)


def watch(server: PulsarServer, topic: str, enforcer: Program, seconds: float) -> dict[str, Any]:
    """Processor time a second of both, and when reports come."""
    client = pulsar.Client(
        server.service_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
    )
    reader = client.create_reader(topic, pulsar.MessageId.latest)
    before, begun_s = (cpu_s(server.pid), cpu_s(enforcer.pid)), time.monotonic()
    arrived_s = []
    while (left_s := begun_s + seconds - time.monotonic()) > 0:
        try:
            reader.read_next(max(int(left_s * 1000), 1))
            arrived_s.append(time.monotonic())
        except pulsar.Timeout:
            break
    passed_s = time.monotonic() - begun_s
    after = (cpu_s(server.pid), cpu_s(enforcer.pid))
    client.close()
    gaps = [later - sooner for sooner, later in itertools.pairwise(arrived_s)]
    broker, program = ((b - a) / passed_s for a, b in zip(before, after, strict=True))
    return {
        "broker_cpu_s_per_s": round(broker, 3),
        "enforcer_cpu_s_per_s": round(program, 3),
        "reports": len(arrived_s),
        "between_reports_s": round(statistics.mean(gaps), 2) if gaps else None,
        "longest_between_reports_s": round(max(gaps), 2) if gaps else None,
    }


def measure(server: PulsarServer, folder: Path, topics: int, seconds: float) -> dict[str, Any]:
    """All figures."""
    begun_s = time.monotonic()
    make_topics(server, topics)
    found: dict[str, Any] = {"topics": topics, "created_in_s": round(time.monotonic() - begun_s)}
    before_s = cpu_s(server.pid)
    size_mb, took_s = read_page(server)
    read_cpu_s = (cpu_s(server.pid) - before_s) / _PAGE_READS
    found |= {"page_mb": round(size_mb, 1), "page_s": round(took_s, 3)}
    found |= {"page_broker_cpu_s": round(read_cpu_s, 3)}
    rest = server.rest
    rest.create_namespace("public/quotaplane")
    limits, observed = (
        rest.create_topic(f"persistent://public/quotaplane/{name}")
        for name in ("limits", "observed-usage")
    )
    for name, more in (("without", {}), ("observed", {"report_topic": observed})):
        conf = conf_for(server, folder / name, limits, interval_s=0.5, **more)
        written = yaml.safe_load(conf.read_text())
        written["transport"]["report_topics"] = [STOCK_REPORTS, observed]
        conf.write_text(yaml.safe_dump(written))
        begin_history(conf)
        command = [sys.executable, "-m", "quotaplane", "enforce", "pulsar", "--conf", str(conf)]
        log = folder / f"{name}.log"
        enforcer = Program(command, log)
        try:
            enforcer.wait_for('"waits_for": "limits"', 180)
            time.sleep(5.0)
            found[name] = watch(server, observed, enforcer, seconds)
            enforcer.check()
        finally:
            enforcer.stop()
        lines = log.read_text(errors="replace").splitlines()
        found[name]["said"] = [line for line in lines if not line.startswith("{")]
    return found


def main(argv: Sequence[str]) -> None:
    """Start a broker, measure, print."""
    parser = OptionParser(prog="python -m benchmarks.observed_cost", description=__doc__)
    parser.add_argument("--topics", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--heap-mb", type=int, default=1024)
    args = parser.parse_args(argv)
    with (
        tempfile.TemporaryDirectory(prefix="observed-cost-") as name,
        PulsarServer(Path(name, "pulsar"), heap_mb=args.heap_mb) as server,
    ):
        found = measure(server, Path(name), args.topics, args.seconds)
    print(json.dumps({**found, "yardstick_s": round(yardstick_s(), 2)}))


if __name__ == "__main__":
    run_job(main)
