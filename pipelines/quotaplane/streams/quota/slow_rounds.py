"""Warns when rounds take longer than the reports' interval. Pure."""

from __future__ import annotations

from typing import Final

from quotaplane.streams.silence_watch import Line

_IN_A_ROW: Final = 3
"""The number of rounds that begin the condition, or end it: the first after a start take longer."""
_AGAIN_AFTER_S: Final = 600.0


class SlowRounds:
    """Takes the rounds that read reports one after another.

    >>> watch = SlowRounds(interval_s=5)
    >>> [[kind for kind, _ in watch.after(8.0 * turn, 7.9)] for turn in range(4)]
    [[], [], ['warning'], []]
    >>> [text for turn in range(4, 7) for _, text in watch.after(8.0 * turn, 1.0)]
    ['rounds are shorter than reports.interval_s again']
    """

    def __init__(self, interval_s: float) -> None:
        """``interval_s``: of reports."""
        self._interval_s = interval_s
        self._slow = self._fast = 0
        self._warned_s: float | None = None

    def after(self, began_s: float, took_s: float) -> list[Line]:
        """The lines after a round that began at ``began_s`` of a monotonic clock."""
        slow = took_s > self._interval_s
        self._slow, self._fast = (self._slow + 1, 0) if slow else (0, self._fast + 1)
        if self._warned_s is not None and self._fast == _IN_A_ROW:
            self._warned_s = None
            return [("recovered", "rounds are shorter than reports.interval_s again")]
        due = self._warned_s is None or began_s - self._warned_s >= _AGAIN_AFTER_S
        if self._slow < _IN_A_ROW or not due:
            return []
        self._warned_s = began_s
        text = (
            f"rounds take {took_s:.1f} s, longer than reports.interval_s ({self._interval_s:g} s): "
            "limits follow usage late. quotaplane_round_stage_seconds says which part takes long; "
            "give the job more cores or a faster disk, or let brokers report less often"
        )
        return [("warning", text)]
