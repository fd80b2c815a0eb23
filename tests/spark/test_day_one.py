"""docs/start/day-one.md from first command to last, with the real job and the page's agents."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.unit.repo.documented_commands import DAY_ONE, Command, Sandbox, commands_in
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(sys.platform != "linux", reason="uses Linux's signals"),
]

PORT = 8460


@contextmanager
def started(sandbox: Sandbox, text: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command that goes on in the background; ended by Ctrl-C."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {text.rstrip(' &')}"],
            **sandbox.place,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        finally:
            process.kill()


def limits(sandbox: Sandbox) -> dict[str, float]:
    text = subprocess.run(
        ["quotaplane", "limits", "orders", "--conf", "my.yaml", "--json"],
        **sandbox.place,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    rows: list[dict[str, Any]] = json.loads(text or "[]")
    return {row["broker"]: row["limit_per_s"] for row in rows}


def test_day_one(tmp_path: Path) -> None:
    sandbox, log = Sandbox(tmp_path / "repository"), tmp_path / "up.log"
    commands = iter(commands_in(DAY_ONE))

    def run_until(begin: str) -> Command:
        for command in commands:
            if command.text.startswith(begin):
                return command
            if not command.starts_spark:
                sandbox.run(command)
        raise AssertionError(f"{DAY_ONE}: no command begins with {begin!r}")

    with ExitStack() as stack:
        stack.enter_context(started(sandbox, run_until("quotaplane up ").text, log))
        for part in ("quota", "serve"):
            wait_until(
                lambda p=part: re.search(rf"^{p} +\| .*: ready: ", log.read_text(), re.M),
                said=log.read_text,
            )
        agents = [run_until("python examples/agent/agent.py").text for _ in range(2)]
        one, _ = [stack.enter_context(started(sandbox, a, log.with_suffix(".out"))) for a in agents]
        wait_until(
            lambda: limits(sandbox) == {"broker-1": 50.0, "broker-2": 50.0}, said=log.read_text
        )
        put = run_until("quotaplane groups put")
        with urlopen(f"http://127.0.0.1:{PORT}/api/v1/status", timeout=60) as answer:
            [group] = json.load(answer)["groups"]
        assert (group["group"], group["quota_per_s"]) == ("orders", 100.0)
        sandbox.run(put)
        wait_until(
            lambda: limits(sandbox) == {"broker-1": 30.0, "broker-2": 30.0}, said=log.read_text
        )
        brokers = run_until("quotaplane brokers")
        one.send_signal(signal.SIGINT)
        wait_until(lambda: limits(sandbox).get("broker-2", 0.0) == 60.0, said=log.read_text)
        sandbox.run(brokers)
        for command in commands:
            sandbox.run(command)
    assert re.search(r"^quota +\| .*: ended: ", log.read_text(), re.M)
