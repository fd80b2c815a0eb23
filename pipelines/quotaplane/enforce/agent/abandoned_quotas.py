"""Gives all quotas back to the cluster when the quota job has been gone for too long.

See ``enforce.without_limits``. Until then, and where that is ``safe``, each broker has its safe
limit once the leases are over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from quotaplane.agents.failures import Say, first_names
from quotaplane.enforce.agent.take_over import TakeOver
from quotaplane.settings import Enforce

_WITHIN_S: Final = 12.0
_AGAIN_AFTER_S: Final = 60.0
"""Groups whose quota could not be given back are tried again this often."""


class AbandonedQuotas:
    """Whether the job is gone, and what became of the quotas then.

    Args:
        enforce: the settings.
        take_over: gives quotas back.
        say: prints a line when the job is gone, and when it is back.
    """

    def __init__(self, enforce: Enforce, take_over: TakeOver, say: Say) -> None:
        self._enforce, self._take_over, self._say = enforce, take_over, say
        self._looked_s: float | None = None
        """When this was asked first: limits count as missing from then on."""
        self._tried_s: float | None = None
        self.removes_rates = False
        """The cluster has its quotas, so rates are removed."""
        self.without_quota: set[str] = set()
        """Groups whose quota could not be given back: their rates stay."""

    async def look(self, newest_s: float, now_s: float, groups: Sequence[str]) -> bool:
        """Whether the job is gone; then give the quotas of these groups back.

        ``newest_s`` is when the newest limits arrived, 0 = none did; all times are in seconds of a
        clock that nobody sets: one that was set would look like a job that is gone.
        """
        wants = self._enforce.without_limits == "hand_back"
        if self._looked_s is None:
            self._looked_s = now_s
        age_s = now_s - max(newest_s, self._looked_s)
        if not wants or age_s < self._enforce.hand_back_after_s:
            if self._tried_s is not None:
                self._say("limits: new ones arrive: they are enforced again")
            self._tried_s, self.removes_rates, self.without_quota = None, False, set()
            return False
        if self._tried_s is None:
            self._say(
                f"limits: none arrived for {age_s:.0f} s (enforce.hand_back_after_s): the "
                "cluster gets its publish quotas back, and rates are removed; start the quota job"
            )
        due = self._tried_s is None or now_s - self._tried_s >= _AGAIN_AFTER_S
        if due and (not self.removes_rates or self.without_quota):
            self._tried_s = now_s
            self.without_quota = await self._take_over.hand_back(
                groups, _WITHIN_S, taking_over=self._enforce.take_over
            )
            self.removes_rates = True
            if self.without_quota:
                self._say(
                    f"limits: the publish quotas of {first_names(self.without_quota)} could not be "
                    "handed back to the cluster: the rates of their topics stay"
                )
        return True
