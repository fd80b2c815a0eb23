"""A wall clock for processes under test, which the test sets while they run.

libfaketime can't be used: with monotonic clocks left alone, its 0.9.10 breaks ``time.sleep`` of
Python 3.11 (EINVAL).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

_SOURCE: Final = Path(__file__).with_suffix(".c")
COMPILER: Final = shutil.which("cc") if sys.platform.startswith("linux") else None
"""Without a C compiler on Linux, clocks stay right."""
needs_compiler: Final = pytest.mark.skipif(
    COMPILER is None, reason="needs a C compiler on Linux (apt-get install gcc)"
)


class WallClock:
    """The clock of all processes that are started with ``variables``."""

    def __init__(self, folder: Path, name: str = "wall") -> None:
        self._file = folder / f"{name}.clock"
        self._file.write_bytes(bytes(8))
        self._library = folder / "wall_clock.so"
        if COMPILER is not None and not self._library.exists():
            made = self._library.with_suffix(".new")
            command = [COMPILER, "-O2", "-Wall", "-shared", "-fPIC", "-o", str(made), str(_SOURCE)]
            subprocess.run(command, check=True)
            made.rename(self._library)

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of processes that have this clock."""
        if not self._library.exists():
            return {}
        return {"LD_PRELOAD": str(self._library), "QUOTAPLANE_TEST_CLOCK": str(self._file)}

    def set_by_s(self, seconds: float) -> None:
        """From now on the clock differs from the real one by so much."""
        with self._file.open("r+b") as file:  # in place: the processes have it in memory
            file.write(round(seconds * 1000).to_bytes(8, "little", signed=True))
