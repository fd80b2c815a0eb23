"""The processes that a process has started, and the processor time that they used; Linux only."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Final, NamedTuple

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_AFTER_NAME: Final = 2
"""The number of the first field of ``/proc/PID/stat`` behind the name, counted from 0."""
_PARENT, _TIMES = 3 - _AFTER_NAME, slice(13 - _AFTER_NAME, 17 - _AFTER_NAME)


class ProcessorTime(NamedTuple):
    """Processor seconds."""

    user_s: float = 0.0
    system_s: float = 0.0

    @property
    def total_s(self) -> float:
        """Both together."""
        return self.user_s + self.system_s

    def since(self, earlier: ProcessorTime) -> ProcessorTime:
        """The seconds that were used after ``earlier``."""
        return ProcessorTime(self.user_s - earlier.user_s, self.system_s - earlier.system_s)


class _Process(NamedTuple):
    parent: int
    name: str
    time: ProcessorTime
    """Its own, and that of its children that have ended."""


def family(root: int, leave_out: int = -1) -> list[int]:
    """A process and all that it started.

    Args:
        root: the process.
        leave_out: a descendant that does not count, with all that it started; -1: none.
    """
    return [*_family(root, leave_out)]


def processor_time(root: int, leave_out: int = -1) -> dict[str, ProcessorTime]:
    """The processor time of a Spark driver in Python and all that it started, since their starts.

    Returns:
        ``driver``: of the process itself; ``jvm``: of Java; ``workers``: of all others.
    """
    found: defaultdict[str, ProcessorTime] = defaultdict(ProcessorTime)
    for pid, process in _family(root, leave_out).items():
        part = _part(pid, process, root)
        user_s, system_s = found[part]
        found[part] = ProcessorTime(user_s + process.time.user_s, system_s + process.time.system_s)
    return dict(found)


def parts(root: int) -> dict[str, list[int]]:
    """The processes of a Spark driver in Python, by part: see ``processor_time``."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for pid, process in _family(root, -1).items():
        found[_part(pid, process, root)].append(pid)
    return dict(found)


def _part(pid: int, process: _Process, root: int) -> str:
    return "driver" if pid == root else "jvm" if process.name == "java" else "workers"


def _family(root: int, leave_out: int) -> dict[int, _Process]:
    everybody = _everybody()

    def belongs(pid: int) -> bool:
        line = pid
        while line in everybody and line not in (root, leave_out):
            line = everybody[line].parent
        return line == root

    return {pid: process for pid, process in everybody.items() if belongs(pid)}


def _everybody() -> dict[int, _Process]:
    """The processes of this machine."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = status.read_text().rpartition(")")
        except OSError:  # it has ended
            continue
        fields = rest.split()
        user, system, user_of_ended, system_of_ended = (int(ticks) for ticks in fields[_TIMES])
        found[int(status.parent.name)] = _Process(
            int(fields[_PARENT]),
            head.partition("(")[2],
            ProcessorTime(
                (user + user_of_ended) / _TICKS_PER_S, (system + system_of_ended) / _TICKS_PER_S
            ),
        )
    return found
