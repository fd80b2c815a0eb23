"""Notices that the quota job is gone (``enforce.without_limits: give_back``).

Until then, and where that is ``safe``, each broker has its safe limit once the leases are over.
"""

from __future__ import annotations

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import JOB_GONE
from quotaplane.settings import Enforce


class JobWatch:
    """Whether the job is gone."""

    def __init__(self, enforce: Enforce, conditions: Conditions) -> None:
        wants = enforce.without_limits == "give_back"
        self._after_s = enforce.give_back_after_s if wants else None
        self._conditions = conditions
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
        self.gone = age_s >= self._after_s
        text = (
            f"no limits arrived for {age_s:.0f} s (enforce.give_back_after_s): the cluster gets "
            "its publish quotas back, and rates are removed; start the quota job"
        )
        self._conditions.note(JOB_GONE, "", text if self.gone else None)
