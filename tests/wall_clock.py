"""A wall clock for processes under test that the test sets while they run.

libfaketime can't be used: with monotonic clocks left alone, its 0.9.10 breaks ``time.sleep`` of
Python 3.11 (EINVAL).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


class WallClock:
    """``env`` is for the processes; ``set_by_s`` sets their clock."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None or not sys.platform.startswith("linux"):
            pytest.skip("a C compiler on Linux is needed to set the clock of a process")
        library = folder / "wall_clock.so"
        source = Path(__file__).with_suffix(".c")
        command = [compiler, "-O2", "-Wall", "-shared", "-fPIC", "-o", str(library), str(source)]
        subprocess.run(command, check=True)
        self._file = folder / "difference_ms"
        self._file.write_bytes(bytes(8))
        self.env = {"LD_PRELOAD": str(library), "QUOTAPLANE_TEST_CLOCK": str(self._file)}

    def set_by_s(self, seconds: float) -> None:
        """The clock differs from the real one by so much from now on."""
        with self._file.open("r+b") as file:  # in place: the processes have it in memory
            file.write(round(seconds * 1000).to_bytes(8, "little", signed=True))
