"""The peak memory of a process and all that it started; Linux only."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

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
            self._peak_kb = max(self._peak_kb, sum(map(_pss_kb, self._family())))

    def _family(self) -> list[int]:
        parents = _parents()
        return [pid for pid in parents if self._belongs(pid, parents)]

    def _belongs(self, pid: int, parents: dict[int, int]) -> bool:
        line: int | None = pid
        while line and line not in (self._root, self._leave_out):
            line = parents.get(line)
        return line == self._root


def _parents() -> dict[int, int]:
    """The parent of each process of this machine."""
    found: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(status.parent.name)] = int(status.read_text().rsplit(")")[-1].split()[1])
        except (OSError, IndexError):  # it has ended
            continue
    return found


def _pss_kb(pid: int) -> int:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    lines = (line.split() for line in rollup.splitlines() if line.startswith("Pss:"))
    return int(next(lines, ["", "0"])[1])
