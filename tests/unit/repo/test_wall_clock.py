"""A process's clock is set forward and back while it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.wall_clock import WallClock, needs_compiler

PROGRAM = """
import datetime, sys, time
for _ in sys.stdin:
    begun = time.monotonic()
    time.sleep(0.01)
    now = datetime.datetime.now().timestamp()
    print(time.time(), now, time.monotonic() - begun, flush=True)
"""


@needs_compiler
def test_only_the_wall_clock_is_wrong(tmp_path: Path) -> None:
    clock = WallClock(tmp_path, "job")
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **clock.variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for ahead_s in (0.0, 3600.0, -1.5):
            clock.set_by_s(ahead_s)
            process.stdin.write("now\n")
            process.stdin.flush()
            now_s, also_s, slept_s = map(float, process.stdout.readline().split())
            assert now_s - time.time() == pytest.approx(ahead_s, abs=0.5)
            assert also_s - time.time() == pytest.approx(ahead_s, abs=0.5)
            assert 0 < slept_s < 1
        process.stdin.close()
