"""`quotaplane up` with the real job and the real server: one part dies, then `up` itself."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.job import write_conf
from tests.servers.tools import LoggedProcess
from tests.spark.test_real_job import jvm_of
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(sys.platform != "linux", reason="uses /proc and Linux's signals"),
]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[LoggedProcess]:
    conf = write_conf(tmp_path, server={"port": 0, "anonymous": "viewer"})
    command = [sys.executable, "-m", "quotaplane", "up", "--conf", str(conf)]
    running = LoggedProcess("quotaplane up", conf.with_suffix(".log"), command)
    running.start()
    yield running
    running.kill()


def pids(up: LoggedProcess, part: str) -> list[int]:
    """All processes that the part has had."""
    found = re.findall(rf"^up    \| {part} started, process (\d+)", up.said(), re.M)
    return [int(pid) for pid in found]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_part_is_restarted_alone_and_nothing_outlives_up(up: LoggedProcess) -> None:
    up.wait_until(lambda: re.search(r"^quota \| .*: ready: ", up.said(), re.M))
    up.wait_until(lambda: re.search(r"^serve \| .*: ready: ", up.said(), re.M))
    [quota], [server] = pids(up, "quota"), pids(up, "serve")
    os.kill(server, signal.SIGKILL)
    up.wait_until(lambda: len(re.findall(r"^serve \| .*: ready: ", up.said(), re.M)) == 2)
    assert "up    | serve was ended by SIGKILL; it starts again in 1 s" in up.said()
    assert pids(up, "quota") == [quota]

    all_pids = [quota, jvm_of(quota), pids(up, "serve")[-1]]
    assert all(map(is_running, all_pids))
    up.kill()
    wait_until(lambda: not any(map(is_running, all_pids)), 60)
