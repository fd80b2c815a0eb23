"""Says what a job that has just started waits for until its first limits. Pure."""

from __future__ import annotations

from quotaplane.streams.silence_watch import Line


class FirstLimits:
    """Takes one round after another, and tells what is missing for the first limits.

    >>> first = FirstLimits(5.0)
    >>> first.after(groups=0, reports=0, limits=0)
    [('waiting', 'for groups with a quota; without one there is nothing to divide')]
    >>> first.after(groups=3, reports=0, limits=0)
    [('waiting', 'for the first usage reports; brokers send one every 5 s')]
    >>> first.after(groups=3, reports=2, limits=6)
    [('limits', 'the first 6 limits are published')]
    >>> first.after(groups=3, reports=2, limits=6)
    []
    """

    def __init__(self, interval_s: float) -> None:
        """``interval_s``: how often brokers report."""
        self._interval_s = interval_s
        self._over = False
        self._said = ""
        self._reports = 0

    def after(self, *, groups: int | None, reports: int, limits: int) -> list[Line]:
        """The lines after a round.

        Args:
            groups: groups that the job knows; None: nothing was read yet.
            reports: reports that the round used.
            limits: limits that it published.
        """
        if self._over or groups is None:
            return []
        self._reports += reports
        if limits:
            self._over = True
            return [("limits", f"the first {limits} limits are published")]
        wanted = self._wanted(groups)
        if wanted == self._said:
            return []
        self._said = wanted
        return [("waiting", wanted)]

    def _wanted(self, groups: int) -> str:
        if not groups:
            return "for groups with a quota; without one there is nothing to divide"
        if not self._reports:
            return f"for the first usage reports; brokers send one every {self._interval_s:g} s"
        return "for reports that name a group with a quota; those so far named none"
