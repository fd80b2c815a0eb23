"""Lines about groups that an administrator has to know of."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from quotaplane.agents.disappearance import some_of
from quotaplane.agents.failures import Say

MISSING: Final = (
    "not in the table any more, while namespaces are attached to them in the cluster: their "
    "topics' rates stay as they are; bring the groups back (`quotaplane groups restore "
    "--from-history`), detach the namespaces, or make the groups unlimited (`quotaplane groups put "
    "GROUP --publish-messages-per-s unlimited --publish-bytes-per-s unlimited`)"
)
"""Groups that have limits, and no row in our table. The cluster may have no quota of them either,
so their rates stay as they are."""

CROWDED: Final = (
    "have more topics and partitions than units in their limits, and the lowest rate of a topic "
    "is 1 per second: rates can't limit them; their publish quotas stay in the cluster, or are "
    "written there again, and the brokers' own calculator limits as well; their dispatch limits "
    "can be exceeded"
)

STUCK: Final = (
    "their publish quotas can't be given back to the cluster: the rates of their topics stay"
)


class GroupLine:
    """Prints a line about groups whenever there is a new one among them."""

    def __init__(self, say: Say, text: str) -> None:
        self._say, self._text = say, text
        self._reported: set[str] = set()

    def report(self, groups: Collection[str]) -> None:
        """Report all these groups, if one is new."""
        if set(groups) - self._reported:
            self._say(f"resource groups {some_of(groups)}: {self._text}")
        self._reported = set(groups)
