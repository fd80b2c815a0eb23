"""Says what a job that has just started waits for until limits are in force. Pure."""

from __future__ import annotations

from quotaplane.round_counts import RoundCounts


class FirstLimits:
    """Takes one round after another, and returns what is missing for the first limits.

    >>> first, groups = FirstLimits(5.0), {"hard": 3}
    >>> first.after(RoundCounts())
    [('waiting', 'for groups; without one there is nothing to divide')]
    >>> first.after(RoundCounts(groups=groups))
    [('waiting', 'for the first usage reports; brokers send one every 5 s')]
    >>> first.after(RoundCounts(groups=groups, reports=2, entries=6, limits_in_force=6))
    [('limits', 'the first ones are published')]
    >>> first.after(RoundCounts(groups=groups, limits_in_force=6))
    []
    """

    def __init__(self, interval_s: float) -> None:
        """``interval_s``: how often brokers report."""
        self._interval_s = interval_s
        self._over = False
        self._said = ""
        self._reports = self._entries = 0

    def after(self, counts: RoundCounts) -> list[tuple[str, str]]:
        """The lines after a round with these counts of all shards.

        A job that goes on with limits from before its start says nothing.
        """
        if self._over:
            return []
        if counts.limits_in_force or counts.limits_sent:
            self._over = True
            return [("limits", "the first ones are published")] if self._said else []
        self._reports += counts.reports
        self._entries += counts.entries
        wanted = self._wanted(sum(counts.groups.values()))
        if wanted == self._said:
            return []
        self._said = wanted
        return [("waiting", wanted)]

    def _wanted(self, groups: int) -> str:
        if not groups:
            return "for groups; without one there is nothing to divide"
        if not self._reports:
            return f"for the first usage reports; brokers send one every {self._interval_s:g} s"
        if not self._entries:
            return "for reports that name a group of the table; those so far named none"
        return (
            "for limits: the reported groups have no quota, or the job learns for one lease which "
            "limits an earlier one published"
        )
