"""The peak memory of a process and all that it started; Linux only."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from benchmarks.process_family import family

_EVERY_S: Final = 0.5


class PeakMemory:
    """Measures the memory (PSS: shared pages count once) of a process and its descendants.

    Args:
        root: the process.
        leave_out: a descendant that does not count, with all that it started; -1: none.
    """

    def __init__(self, root: int, leave_out: int = -1) -> None:
        self._root, self._leave_out = root, leave_out
        self._peak_kb = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def taken_gb(self) -> float:
        """The peak since the last call."""
        peak, self._peak_kb = self._peak_kb, 0
        return peak / 1e6

    def _watch(self) -> None:
        while not self._over.wait(_EVERY_S):
            self._peak_kb = max(
                self._peak_kb, sum(map(pss_kb, family(self._root, self._leave_out)))
            )


def pss_kb(pid: int) -> int:
    """The memory of a process (PSS); 0: it has ended."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    lines = (line.split() for line in rollup.splitlines() if line.startswith("Pss:"))
    return int(next(lines, ["", "0"])[1])
