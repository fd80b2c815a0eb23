"""Measures `quotaplane serve` on one core: reads, pages, the status, writes. Takes two minutes.

.venv/bin/python -m benchmarks.serve --groups 100000 --seconds 10

The server is pinned to the first core and the load to the second, each request carries a token
that is verified, and connections are kept open.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

import jwt
import numpy as np
import pyarrow as pa
import yaml
from deltalake import DeltaTable, write_deltalake

from benchmarks.program import Program
from quotaplane.console.option_parser import OptionParser
from quotaplane.history.store import ensure_tables, table_uri
from quotaplane.history.tables import LEASES, ROUNDS
from quotaplane.model import BASIC, DEMAND_COLUMNS, DIMENSIONS, LIMIT_COLUMNS, USED_COLUMNS
from quotaplane.registry.table import put_groups
from quotaplane.settings import History
from quotaplane.streams.script import run_job

_SECRET: Final = "a secret of the benchmark, of sixty-four bytes at the very least, or more"
_BROKERS: Final = 5
_BROKERS_IN_ALL: Final = 100
_SERVER_CORE: Final = 0
_LOAD_CORE: Final = 1

Ask = Callable[[], tuple[str, str, bytes]]
"""Makes a request: method, path and body."""


def make_history(history: History, groups: int) -> list[str]:
    """Groups with quotas, and a snapshot of leases of each on five brokers; returns their names."""
    ensure_tables(history)
    names = [f"tenant-{n % 500:03}/group-{n:06}" for n in range(groups)]
    quotas = np.full((groups, len(DIMENSIONS)), np.nan)
    quotas[:, :2] = np.random.default_rng(1).integers(100, 10_000, (groups, 2))
    put_groups(history, names, quotas, "benchmark")
    rng, now = np.random.default_rng(2), datetime.now(timezone.utc)
    n = groups * _BROKERS
    group = np.repeat(np.arange(groups), _BROKERS)
    broker = (group * 7 + np.tile(np.arange(_BROKERS), groups) * 13) % _BROKERS_IN_ALL
    given = {
        "round_at": pa.array([now] * n, pa.timestamp("us", "UTC")),
        "seen_at": pa.array([now] * n, pa.timestamp("us", "UTC")),
        "broker": pa.array([f"broker-{b:03}" for b in broker.tolist()]),
        "resource_group": pa.array(names, pa.string()).take(pa.array(group)),
        "broker_status": pa.array(["live"] * n),
        "has_limit": pa.array([True] * n),
        "enforced": pa.array([True] * n),
        **{name: pa.array(rng.uniform(0, 1500, n)) for name in USED_COLUMNS[:BASIC]},
        **{name: pa.array(rng.uniform(0, 2000, n)) for name in DEMAND_COLUMNS[:BASIC]},
        **{name: pa.array(rng.uniform(0, 2000, n)) for name in LIMIT_COLUMNS[:2]},
    }
    zeros = np.zeros(n, np.int64)
    columns = {
        f.name: given.get(f.name, pa.array(zeros) if not f.nullable else pa.nulls(n, f.type))
        for f in LEASES.schema
    }
    schema = pa.schema([f.remove_metadata() for f in LEASES.schema])
    rows = pa.table({name: pa.chunked_array([c]) for name, c in columns.items()}).cast(schema)
    write_deltalake(table_uri(history, LEASES.name), rows, mode="overwrite")
    return names


@dataclass
class Measured:
    """The answers of one kind of request."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    took_ms: list[float] = field(default_factory=list)
    failed: int = 0

    def line(self, name: str) -> str:
        """A row of the report."""
        mid, high, highest = np.percentile(self.took_ms or [np.nan], [50, 95, 99])
        count = len(self.took_ms)
        return (
            f"{name:<26}{count / self.seconds:>9.0f}{count / max(self.cpu_s, 1e-9):>12.0f}"
            f"{mid:>9.1f}{high:>9.1f}{highest:>9.1f}{self.failed:>8}"
        )


async def load(
    port: int, token: str, ask: Ask, connections: int, until: float, found: Measured
) -> None:
    """Ask on some connections at once until a time of ``time.perf_counter``."""

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < until:
            method, path, body = ask()
            begun = time.perf_counter()
            writer.write(
                f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            await reader.readexactly(int(length[1]) if length else 0)
            found.took_ms.append((time.perf_counter() - begun) * 1000.0)
            found.failed += not head.startswith(b"HTTP/1.1 200")
        writer.close()

    await asyncio.gather(*(one() for _ in range(connections)))


def measure(
    port: int, pid: int, token: str, ask: Ask, connections: int, seconds: float
) -> Measured:
    """Ask for some seconds."""
    found, cpu_s, begun = Measured(), _cpu_s(pid), time.perf_counter()
    asyncio.run(load(port, token, ask, connections, begun + seconds, found))
    found.seconds, found.cpu_s = time.perf_counter() - begun, _cpu_s(pid) - cpu_s
    return found


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cases(names: Sequence[str]) -> dict[str, tuple[Ask, int]]:
    """The questions, and the number of connections on which they are asked at once."""
    pick = random.Random(3)

    def get(path: Callable[[], str]) -> Ask:
        return lambda: ("GET", f"/api/v1/{path()}", b"")

    def name() -> str:
        return pick.choice(names)

    def patch() -> tuple[str, str, bytes]:
        body = json.dumps({"publish_messages_per_s": pick.randrange(100, 10_000)}).encode()
        return "PATCH", f"/api/v1/groups/{name()}", body

    return {
        "a group": (get(lambda: f"groups/{name()}"), 16),
        "a page of 100 groups": (get(lambda: f"groups?offset={pick.randrange(len(names))}"), 4),
        "a search in all groups": (get(lambda: f"groups?search={name()[-5:]}"), 4),
        "status": (get(lambda: "status"), 4),
        "status, searched": (get(lambda: f"status?search={name()[-5:]}"), 4),
        "heat map of 40 x 40": (get(lambda: "heat-map"), 1),
        "limits of a group": (get(lambda: f"limits?group={name()}"), 1),
        "a write": (patch, 1),
    }


@contextmanager
def rounds(history: History, every_s: float) -> Iterator[None]:
    """Let the table ``rounds`` change again and again, so that a picture is always due."""
    ended = threading.Event()

    def commit() -> None:
        while not ended.wait(every_s):
            table = DeltaTable(table_uri(history, ROUNDS.name))
            table.alter.set_table_properties({"delta.appendOnly": "false"})

    thread = threading.Thread(target=commit)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def main(argv: Sequence[str]) -> int:
    """Print the report."""
    parser = OptionParser(prog="python -m benchmarks.serve", description=__doc__)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each kind of request")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="quotaplane-serve-") as folder:
        history = History(path=f"{folder}/history")
        names = make_history(history, args.groups)
        conf = Path(folder, "conf.yaml")
        settings = {
            "transport": {"kind": "delta", "path": f"{folder}/topics"},
            "history": {"path": history.path},
            "checkpoint": f"{folder}/checkpoint",
            "server": {"port": 0, "auth": {"hs256_secret": _SECRET}},
        }
        conf.write_text(yaml.safe_dump(settings))
        claims = {"sub": "benchmark", "exp": time.time() + 86_400, "roles": ["admin"]}
        token = jwt.encode(claims, _SECRET, "HS256")
        os.sched_setaffinity(0, {_SERVER_CORE})  # the server inherits it
        log = Path(folder, "serve.log")
        server = Program([sys.executable, "-m", "quotaplane", "serve", "--conf", str(conf)], log)
        os.sched_setaffinity(0, {_LOAD_CORE})
        try:
            server.wait_for("ready: serves", 60.0)
            found = re.search(r"serves http://[^:]+:(\d+)", log.read_text())
            assert found
            port = int(found[1])
            first = measure(port, server.pid, token, cases(names)["status"][0], 1, 0.1)
            print(
                f"{args.groups} groups on {_BROKERS} of {_BROKERS_IN_ALL} brokers each; load "
                f"average {os.getloadavg()[0]:.1f}; first status after {first.took_ms[0]:.0f} ms"
            )
            heads = ("requests/s", "per core-s", "p50 ms", "p95 ms", "p99 ms", "failed")
            print(f"{'':<25}{heads[0]:>10}{heads[1]:>12}" + "".join(f"{h:>9}" for h in heads[2:]))
            for name, (ask, connections) in cases(names).items():
                measured = measure(port, server.pid, token, ask, connections, args.seconds)
                print(measured.line(name), flush=True)
            with rounds(history, 2.0):
                for name in ("a group", "status"):
                    ask, connections = cases(names)[name]
                    measured = measure(port, server.pid, token, ask, connections, args.seconds)
                    print(measured.line(f"{name}, during rounds"), flush=True)
        finally:
            server.stop()
    return 0


if __name__ == "__main__":
    run_job(main)
