"""A wall clock of processes that can be set forward and back while they run."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

_SOURCE: Final = Path(__file__).with_name("clock_ahead.c")
COMPILER: Final = shutil.which("cc")
"""Without a C compiler, clocks stay right."""


class WrongClock:
    """The clock of all processes that are started with ``variables``."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = folder / f"{name}.clock"
        self._file.write_bytes(bytes(8))
        self._library = folder / "clock_ahead.so"
        if COMPILER is not None and not self._library.exists():
            made = self._library.with_suffix(".new")
            command = [COMPILER, "-O2", "-shared", "-fPIC", "-o", str(made), str(_SOURCE)]
            subprocess.run(command, check=True)
            made.rename(self._library)

    def ahead(self, by_s: float) -> None:
        """From now on the clock is ahead by this."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("<q", round(by_s * 1e9)))

    @property
    def variables(self) -> dict[str, str]:
        """Of the environment of processes that have this clock."""
        if not self._library.exists():
            return {}
        return {"LD_PRELOAD": str(self._library), "CLOCK_AHEAD": str(self._file)}
