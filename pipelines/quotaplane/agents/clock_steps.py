"""Detects that a host's clock was set, by comparison with a clock that can't be set."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

STEP_S: Final = 1.0
"""A smaller difference between two checks is no step: clocks drift, and are corrected slowly."""


def boot_clock() -> float:
    """Seconds of a clock that can't be set and, if there is one, that runs during suspension."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def steady_clock_ms() -> Callable[[], float]:
    """A clock in ms that begins at the wall clock's time and can't be set."""
    ahead_s = time.time() - boot_clock()
    return lambda: (boot_clock() + ahead_s) * 1000.0


class ClockSteps:
    """Compares the wall clock with the boot clock at each call.

    >>> wall, boot = iter([1000.0, 1001.0, 4602.0]), iter([10.0, 11.0, 12.0])
    >>> steps = ClockSteps(wall=lambda: next(wall), boot=lambda: next(boot))
    >>> steps.check(), steps.check(), steps.count
    (0.0, 3600.0, 1)
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        boot: Callable[[], float] = boot_clock,
    ) -> None:
        self._wall, self._boot = wall, boot
        self._difference_s = wall() - boot()
        self.count = 0
        """How many times the clock was set."""

    def check(self) -> float:
        """The seconds by which the clock was set since the last call; 0 = it was not set."""
        difference_s = self._wall() - self._boot()
        step_s = difference_s - self._difference_s
        self._difference_s = difference_s
        if abs(step_s) < STEP_S:
            return 0.0
        self.count += 1
        return step_s


def describe_step(step_s: float) -> str:
    """A line about the step for the administrator, without its consequences.

    >>> describe_step(-3600.0)
    "this host's clock was set back by 3600 s"
    """
    where = "forward" if step_s > 0 else "back"
    return f"this host's clock was set {where} by {abs(step_s):.0f} s"
