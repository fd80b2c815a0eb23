"""Warns when nothing arrives any more. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

AGAIN_AFTER_S: Final = 60.0
"""Least time between two warnings of the same kind."""

Line = tuple[str, str]
"""Kind (``warning`` or ``recovered``) and text."""

_NAMED: Final = 5


def some(texts: Sequence[str]) -> str:
    """The first few of these texts, and how many more there are."""
    more = len(texts) - _NAMED
    shown = ", ".join(texts[:_NAMED])
    return f"{shown} (and {more} more)" if more > 0 else shown


class SilenceWatch:
    """Takes one round after another, and tells when inputs stop and when they arrive again.

    >>> watch = SilenceWatch(30, "reports", "nothing moves. Check the collector")
    >>> [watch.after(now_s, arrived) for now_s, arrived in ((0, 5), (20, 0), (30, 0), (40, 0))]
    [[], [], [('warning', 'no reports for 30 s; nothing moves. Check the collector')], []]
    >>> watch.after(50, 2)
    [('recovered', 'reports arrive again after 50 s')]
    """

    def __init__(self, patience_s: float, noun: str, then: str) -> None:
        """``patience_s``: how long inputs (``noun``) may stay away. ``then``: what follows from it,
        and what to do.
        """
        self._patience_s, self._noun, self._then = patience_s, noun, then
        self._last_s: float | None = None
        self._ever = self._warned = False
        self._again_s = 0.0

    def after(self, now_s: float, arrived: int) -> list[Line]:
        """The lines after a round that began at ``now_s`` of a monotonic clock."""
        last_s = now_s if self._last_s is None else self._last_s
        silent_s = now_s - last_s
        if arrived:
            warned, self._warned = self._warned, False
            self._last_s, self._ever = now_s, True
            again = f"{self._noun} arrive again after {silent_s:.0f} s"
            return [("recovered", again)] if warned else []
        self._last_s = last_s
        if self._warned or silent_s < self._patience_s or now_s < self._again_s:
            return []
        self._warned, self._again_s = True, now_s + AGAIN_AFTER_S
        since = f"for {silent_s:.0f} s" if self._ever else f"since the start {silent_s:.0f} s ago"
        return [("warning", f"no {self._noun} {since}; {self._then}")]
