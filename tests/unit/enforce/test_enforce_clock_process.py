"""The enforcer as a process with a fake cluster, while its host's clock is set by an hour."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quotaplane.agents.clock_steps import steady_clock_ms
from quotaplane.agents.conditions import Conditions
from quotaplane.enforce.agent.enforcer import Enforcer
from quotaplane.enforce.agent.enforcer_parts import EnforcerParts
from tests.unit.enforce.enforce_cluster import FakePulsar
from tests.unit.enforce.listener_rig import message
from tests.unit.repo.pages import ROOT
from tests.wall_clock import WallClock, needs_compiler

LEASE_S = 3
BROKER = "pulsar://b0"


async def enforce(folder: Path) -> None:
    """The process: each line on stdin is the wall clock of the job's host, in ms, that issues a
    limit then; twice a second the rates in force and what was said are printed.
    """
    incoming: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: [incoming.put(line) for line in sys.stdin], daemon=True).start()
    lines: list[str] = []
    with FakePulsar(folder=folder) as cluster:
        cluster.add("a", used=500.0)
        settings, link, seq = cluster.settings(), cluster.link, 0
        async with cluster.rest(Conditions(lines.append)) as rest:
            clock = steady_clock_ms()
            parts = EnforcerParts(settings, rest, link, lines.append, steady_ms=clock)
            await parts.start()
            enforcer = Enforcer(parts)
            stop = asyncio.Event()
            running = asyncio.create_task(enforcer.run(stop))
            while os.getppid() != 1:
                while not incoming.empty():
                    seq += 1
                    link.put(BROKER, limits(int(incoming.get()), seq))
                state = {"rates": cluster.published(), "lines": lines, "now": time.time()}
                print(json.dumps(state | enforcer.status()._asdict()), flush=True)
                await asyncio.sleep(0.25)
            stop.set()
            await running


def limits(issued_at_ms: int, seq: int) -> bytes:
    lease_ms, safe = LEASE_S * 1000, np.array([[60.0]])
    issued = {"issued_at_ms": issued_at_ms, "seq": seq, "lease_ms": lease_ms}
    return message(BROKER, 300.0, safe_limits=safe, **issued)


class Process:
    """The process above, with a wall clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.clock = WallClock(folder)
        code = (
            "import asyncio, pathlib, sys\n"
            "from tests.unit.enforce.test_enforce_clock_process import enforce\n"
            "asyncio.run(enforce(pathlib.Path(sys.argv[1])))"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, **self.clock.variables},
            text=True,
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout

    def until(self, holds: Callable[[dict[str, Any]], bool], *, publishes: bool = True) -> None:
        """The job, whose clock is right, publishes until it holds."""
        assert self.process.stdin is not None
        deadline = time.monotonic() + 40
        while True:
            state = json.loads(self.output.readline())
            if holds(state):
                return
            assert time.monotonic() < deadline, state
            if publishes:
                self.process.stdin.write(f"{time.time_ns() // 1_000_000}\n")
                self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.mark.nightly
@needs_compiler
def test_an_enforcer_while_its_clock_is_set_by_an_hour(tmp_path: Path) -> None:
    enforcer = Process(tmp_path)
    try:
        enforcer.until(lambda state: state["rates"] == {"a": 300})
        for hours, where in ((1, "forward"), (-1, "back")):
            enforcer.clock.set_by_s(3600 * hours)
            enforcer.until(lambda state: abs(state["now"] - time.time()) > 3000)
            enforcer.until(lambda state: state["rates"] == {"a": 60})  # a lease later
            enforcer.until(
                lambda state, where=where: any(  # type: ignore[misc]
                    line.startswith(f"this host's clock was set {where} by 3600 s")
                    for line in state["lines"]
                )
            )
            enforcer.clock.set_by_s(0)
            enforcer.until(lambda state: state["rates"] == {"a": 300})
        enforcer.until(lambda state: state["clock_steps"] == 4)
        enforcer.until(lambda state: state["rates"] == {"a": 60}, publishes=False)
    finally:
        enforcer.kill()
