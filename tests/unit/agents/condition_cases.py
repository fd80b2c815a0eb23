"""Conditions with a clock that a test sets, and the lines that they print."""

from __future__ import annotations

from quotaplane.agents.conditions import Conditions


class Printed:
    """Lines as (kind, text), with the kinds of a job's lines."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._lines: list[tuple[str, str]] = []
        self.conditions = Conditions(
            lambda text: self._lines.append(("warning", text)),
            lambda text: self._lines.append(("recovered", text)),
            lambda: self.now_s,
        )

    def lines(self) -> list[tuple[str, str]]:
        """The lines since the last call."""
        self.conditions.active()  # as the status line does: what is forgotten is over
        heard, self._lines = self._lines, []
        return heard
