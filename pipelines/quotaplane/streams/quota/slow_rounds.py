"""Notices that rounds take longer than the reports' interval. Pure."""

from __future__ import annotations

from typing import Final

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import SLOW_ROUNDS

_IN_A_ROW: Final = 3
"""The number of rounds that begin the condition, or end it: the first after a start take longer."""


class SlowRounds:
    """Takes the rounds that read reports one after another."""

    def __init__(self, interval_s: float) -> None:
        """``interval_s``: of reports."""
        self._interval_s = interval_s
        self._in_a_row = 0
        """Rounds that are not as the condition says."""
        self._is_slow = False

    def after(self, took_s: float, conditions: Conditions) -> None:
        """Add a round."""
        differs = (took_s > self._interval_s) != self._is_slow
        self._in_a_row = self._in_a_row + 1 if differs else 0
        if self._in_a_row == _IN_A_ROW:
            self._in_a_row, self._is_slow = 0, not self._is_slow
        text = (
            f"they take {took_s:.1f} s, longer than reports.interval_s ({self._interval_s:g} s): "
            "limits follow usage late. quotaplane_round_stage_seconds says which part takes long; "
            "give the job more cores or a faster disk, or let brokers report less often"
        )
        conditions.note(SLOW_ROUNDS, "", text if self._is_slow else None)
