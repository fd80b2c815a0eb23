"""Notices that the quota job is gone (``enforce.without_limits: give_back``).

Until then, and where that is ``safe``, each broker has its safe limit once the leases are over.
"""

from __future__ import annotations

from quotaplane.agents.failures import Say
from quotaplane.settings import Enforce


class JobWatch:
    """Whether the job is gone; ``say`` prints a line when it is, and when it is back."""

    def __init__(self, enforce: Enforce, say: Say) -> None:
        wants = enforce.without_limits == "give_back"
        self._after_s, self._say = enforce.give_back_after_s if wants else None, say
        self._looked_s: float | None = None
        """When this was asked first: limits count as missing from then on."""
        self.gone = False

    def look(self, newest_s: float, now_s: float) -> None:
        """Look again.

        ``newest_s`` is when the newest limits arrived, 0 = none did; all times are in seconds of a
        clock that nobody sets: one that was set would look like a job that is gone.
        """
        if self._after_s is None:
            return
        if self._looked_s is None:
            self._looked_s = now_s
        age_s = now_s - max(newest_s, self._looked_s)
        was_gone, self.gone = self.gone, age_s >= self._after_s
        if self.gone and not was_gone:
            self._say(
                f"limits: none arrived for {age_s:.0f} s (enforce.give_back_after_s): the cluster "
                "gets its publish quotas back, and rates are removed; start the quota job"
            )
        elif was_gone and not self.gone:
            self._say("limits: new ones arrive: they are enforced again")
