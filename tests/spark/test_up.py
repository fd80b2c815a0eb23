"""`quotaplane up` with the real job and the real server: one part dies, then `up` itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.job import write_conf
from tests.spark.test_stop import jvm_of
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(sys.platform != "linux", reason="uses /proc and Linux's signals"),
]


class RunningUp:
    """`quotaplane up`, with its output in a file."""

    def __init__(self, conf: Path) -> None:
        self._log = conf.with_suffix(".log")
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "quotaplane", "up", "--conf", str(conf)],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )

    def text(self) -> str:
        return self._log.read_text("utf-8", errors="replace")

    def pids(self, part: str) -> list[int]:
        """All processes that the part has had."""
        return [
            int(pid)
            for pid in re.findall(rf"^up    \| {part} started, process (\d+)", self.text(), re.M)
        ]

    def wait_until(self, done: Callable[[], object], within_s: float = 240.0) -> None:
        wait_until(done, within_s, process=self.process, said=self.text)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[RunningUp]:
    server = {"port": 0, "anonymous": "viewer"}
    conf = write_conf(tmp_path, {"kind": "delta", "path": str(tmp_path / "topics")}, server=server)
    running = RunningUp(conf)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_part_is_restarted_alone_and_nothing_outlives_up(up: RunningUp) -> None:
    up.wait_until(lambda: re.search(r"^quota \| .*: ready: ", up.text(), re.M))
    up.wait_until(lambda: re.search(r"^serve \| .*: ready: ", up.text(), re.M))
    [quota], [server] = up.pids("quota"), up.pids("serve")
    os.kill(server, signal.SIGKILL)
    up.wait_until(lambda: len(re.findall(r"^serve \| .*: ready: ", up.text(), re.M)) == 2)
    assert "up    | serve was ended by SIGKILL; it starts again in 1 s" in up.text()
    assert up.pids("quota") == [quota]

    pids = [quota, jvm_of(quota), up.pids("serve")[-1]]
    assert all(map(is_running, pids))
    up.process.kill()
    wait_until(lambda: not any(map(is_running, pids)), 60)
