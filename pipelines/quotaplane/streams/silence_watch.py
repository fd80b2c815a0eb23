"""Notices that nothing arrives any more. Pure."""

from __future__ import annotations

from quotaplane.agents.conditions import Condition, Conditions


class SilenceWatch:
    """Takes one round after another; ``silent`` holds while inputs stay away.

    Args:
        silent: the condition.
        patience_s: how long inputs may stay away.
        then: what follows from it, and what to do.
    """

    def __init__(self, silent: Condition, patience_s: float, then: str) -> None:
        self._silent, self._patience_s, self._then = silent, patience_s, then
        self._last_s: float | None = None
        self._ever = False

    def after(self, now_s: float, arrived: int, conditions: Conditions) -> None:
        """Add a round that began at ``now_s`` of a monotonic clock."""
        if self._last_s is None or arrived:
            self._last_s, self._ever = now_s, arrived > 0
        silent_s = now_s - self._last_s
        since = f"for {silent_s:.0f} s" if self._ever else f"since the start {silent_s:.0f} s ago"
        is_silent = not arrived and silent_s >= self._patience_s
        conditions.note(self._silent, "", f"none {since}; {self._then}" if is_silent else None)
