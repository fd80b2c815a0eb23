"""Reports that a cluster begins to refuse requests for lack of rights, while a program runs."""

from __future__ import annotations

from typing import Final

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import ACCESS_REFUSED

_REFUSALS: Final = (401, 403)


class AccessWatch:
    """States which requests are refused with 401 or 403.

    A refusal at the start ends a program with an error. So only refusals after a request that the
    cluster admitted count: a token has expired, or a right was taken away or never given.
    """

    def __init__(self, url: str, conditions: Conditions) -> None:
        self._url, self._conditions = url, conditions
        self._admitted = False

    def record(self, method: str, path: str, status: int) -> None:
        """Record the status of the cluster's answer to a request."""
        refused = status in _REFUSALS
        self._admitted = self._admitted or not refused
        if self._admitted:
            text = (
                f"{status} of Pulsar's REST API at {self._url}; the token has expired or a right "
                "is missing; requests are repeated, and nothing changes until they are admitted "
                "(docs/runbook.md, Access is refused)"
            )
            request = f"{method} {path.partition('?')[0]}"
            self._conditions.note(ACCESS_REFUSED, request, text if refused else None, times=1)
