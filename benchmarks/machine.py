"""The machine that a benchmark ran on, as the results pages name it."""

from __future__ import annotations

import os
import platform
import re
import time
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

_ADDITIONS = 5_000_000


def machine(*packages: str) -> str:
    """A paragraph of Markdown: cores, versions (``packages``, too), the day, and a yardstick.

    Cores of the same number differ in speed, and those of a virtual machine from day to day. The
    yardstick makes seconds on two pages comparable.
    """
    versions = "".join(f", {name} {version(name)}" for name in packages)
    return (
        f"Machine: {os.cpu_count()} cores, {platform.system()} {platform.machine()}; "
        f"Python {platform.python_version()}{versions}; {datetime.now(timezone.utc):%Y-%m-%d}.\n"
        f"Its speed: a core needs {yardstick_s():.2f} s for {_ADDITIONS:,} additions in a loop of "
        "Python."
    )


def machine_on(page: Path) -> str:
    """The paragraph that a page has, for one that is written again from figures of before.

    Raises:
        ValueError: it has none.
    """
    found = re.search(r"^Machine:.*\n.*$", page.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise ValueError(f"{page} does not say on which machine it was measured")
    return found[0]


def yardstick_s() -> float:
    """Seconds that a core needs for a fixed amount of work; the least of three tries."""
    return min(_timed_loop() for _ in range(3))


def _timed_loop() -> float:
    total, begun_s = 0, time.perf_counter()
    for number in range(_ADDITIONS):
        total += number
    return time.perf_counter() - begun_s
