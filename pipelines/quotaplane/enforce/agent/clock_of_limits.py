"""Compares this host's clock with the quota job's, by the limits that arrive, and with itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from quotaplane.agents.clock_steps import ClockSteps, describe_step
from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import CLOCK_OF_LIMITS

_WINDOW_S: Final = 10.0
"""In a window of this length, the least delayed message counts: one that waited shows no clock."""
_LATE_SHARE: Final = 0.5
"""Limits that arrive after this part of their lease cause a warning."""
_EARLY_S: Final = 5.0
"""So do limits that arrive this long before they were issued."""


class ClockOfLimits:
    """Warns when clocks differ so much that leases suffer, and when this host's clock is set.

    Args:
        lease_s: of limits.
        conditions: of the program.
        now_ms: the wall clock.
        steady_ms: a clock that nobody sets.
    """

    def __init__(
        self,
        lease_s: float,
        conditions: Conditions,
        now_ms: Callable[[], float],
        steady_ms: Callable[[], float],
    ) -> None:
        self._lease_s, self._conditions, self._steady_ms = lease_s, conditions, steady_ms
        self._own = ClockSteps(lambda: now_ms() / 1000.0, lambda: steady_ms() / 1000.0)
        self.age_s: float | None = None
        """Time from the issue of limits to their arrival, by the two hosts' clocks; below 0: this
        host's clock is behind. None: no message arrived yet."""
        self._window_ms, self._least_s = 0.0, float("inf")

    @property
    def steps(self) -> int:
        """Number of times that this host's clock was set."""
        return self._own.count

    def look(self) -> None:
        """Print a line if this host's clock was set since the last look."""
        step_s = self._own.check()
        if step_s:
            self._conditions.say(
                f"{describe_step(step_s)}. Limits that are here keep their leases; those that "
                "arrive are compared with the new time. Check that NTP runs"
            )

    def arrived(self, issued_at_ms: int, now_ms: float) -> None:
        """Take in a message that did not wait for this program's start."""
        steady_ms = self._steady_ms()
        if steady_ms - self._window_ms >= _WINDOW_S * 1000.0:
            if self._least_s < float("inf"):
                self._judge(self._least_s)
            self._window_ms, self._least_s = steady_ms, float("inf")
        self._least_s = min(self._least_s, (now_ms - issued_at_ms) / 1000.0)
        if self.age_s is None:
            self.age_s = round(self._least_s, 1)

    def _judge(self, age_s: float) -> None:
        self.age_s = round(age_s, 1)
        wrong = age_s > _LATE_SHARE * self._lease_s or age_s < -_EARLY_S
        ours, when, then = (
            ("ahead of", "after", "Limits end so much too early; then brokers have safe limits")
            if age_s > 0
            else ("behind", "before", "Limits too far ahead are refused")
        )
        waits = ", or messages wait in the limits topic" if age_s > 0 else ""
        text = (
            f"limits arrive {abs(age_s):.0f} s {when} the quota job issued them: this host's "
            f"clock is {ours} that of the job's host{waits}. {then}. Compare `date -u` on both "
            "hosts, and check that NTP runs"
        )
        self._conditions.note(CLOCK_OF_LIMITS, "", text if wrong else None)
