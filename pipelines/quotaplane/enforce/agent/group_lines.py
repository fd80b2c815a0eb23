"""Conditions of groups that an administrator has to know of."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from quotaplane.agents.conditions import Condition, Conditions
from quotaplane.agents.deletion_check import some_of
from quotaplane.agents.known_conditions import CROWDED_GROUPS, MISSING_GROUPS, STUCK_GROUPS

_TEXTS: Final = {
    # The cluster may have no quota of them either, so their rates stay as they are.
    MISSING_GROUPS: "not in the table any more, while namespaces are attached to them in the "
    "cluster: their topics' rates stay as they are; bring the groups back (`quotaplane groups "
    "restore --from-history`), detach the namespaces, or make the groups unlimited (`quotaplane "
    "groups put GROUP --publish-messages-per-s unlimited --publish-bytes-per-s unlimited`)",
    CROWDED_GROUPS: "have more topics and partitions than units in their limits, and the lowest "
    "rate of a topic is 1 per second: rates can't limit them; their publish quotas stay in the "
    "cluster, or are written there again, and the brokers' own calculator limits as well; their "
    "dispatch limits can be exceeded",
    STUCK_GROUPS: "their publish quotas can't be given back to the cluster: the rates of their "
    "topics stay",
}


def state_groups(conditions: Conditions, what: Condition, groups: Collection[str]) -> None:
    """State that exactly these groups are so."""
    conditions.set(what, groups, f"resource groups {some_of(groups)}: {_TEXTS[what]}")
