"""What it means that the cluster has no publish quota of a group: it is not always "unlimited".

The enforcer takes publish quotas over and leaves -1 in the cluster (docs/adr/0010-take-over.md), so
-1 says nothing. The table has the quota then; of a group that is new to the table its history may
know one. If nobody knows one, the group gets no row, as that would make it unlimited.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from quotaplane.agents.disappearance import some_of
from quotaplane.errors import HistoryError
from quotaplane.group_sync.changes import Puts, known, last_quotas, puts
from quotaplane.model import PUBLISH, FloatArray
from quotaplane.registry.table import GroupsRead, group_changes
from quotaplane.settings import History

_GIVE: Final = (
    "in the cluster (pulsar-admin resourcegroups update -mp MESSAGES -bp BYTES GROUP; what is left "
    "out is unlimited), or by `quotaplane groups put GROUP --publish-messages-per-s N "
    "--publish-bytes-per-s N`, where N may be unlimited"
)


class HiddenQuotas:
    """What is known of quotas that the cluster does not tell, from one poll to the next.

    With ``take_over`` an unlimited publish rate in the cluster never says anything. Without it, it
    is the group's quota, but for what may be left from a time with take-over: a number in the table
    that this process never saw in the cluster, too, is kept.
    """

    def __init__(self, history: History, *, take_over: bool) -> None:
        self._history, self._take_over = history, take_over
        self._agreed: set[str] = set()
        """Groups whose publish quota was seen to be the same in the cluster and in the table."""
        self._unknown: set[str] = set()
        self._kept: set[str] = set()
        self._last: dict[str, FloatArray] = {}
        self._last_of = -1
        """The version of the table whose history ``_last`` is from."""
        self.failure: HistoryError | None = None
        """Why the history could not be read the last time; then ``unread`` were left out."""
        self.unread: set[str] = set()

    def plan(self, groups: Sequence[str], rates: FloatArray, table: GroupsRead) -> Puts:
        """What to put of these groups, whose rates (n, 4) the cluster has; see ``plan.puts``."""
        there = known(groups, table.rows)
        agreed = np.array([group in self._agreed for group in groups], np.bool_)
        silent = np.full(len(groups), True) if self._take_over else there & ~agreed
        asked = silent & ~there & np.isinf(rates[:, PUBLISH]).any(axis=1)
        self.failure, self.unread = None, set()
        if asked.any() and table.version != self._last_of:
            try:
                self._last = last_quotas(group_changes(self._history))
                self._last_of = table.version
            except HistoryError as error:
                # All others must not wait for these, of which nothing is known so far.
                self.failure = error
                self.unread = {groups[at] for at in np.flatnonzero(asked).tolist()}
                groups = [group for group in groups if group not in self.unread]
                rates, silent = rates[~asked], silent[~asked]
        return puts(groups, rates, table.rows, silent=silent, last=self._last)

    def done(self, groups: Collection[str], plan: Puts) -> list[str]:
        """The plan of these groups is carried out; returns what somebody should read of it."""
        lines = []
        if plan.revived:
            lines.append(
                f"resource groups {some_of(plan.revived)}: new to the table, and the cluster does "
                "not tell their publish quotas: they have the last ones that were known; their "
                "policies and other quotas come back by `quotaplane groups restore --from-history "
                "GROUP`"
            )
        open_ = np.isinf(plan.quotas[:, PUBLISH]).any(axis=1)
        opened = self._unknown.intersection(np.array(plan.groups, object)[open_])
        if opened:
            lines.append(
                f"resource groups {some_of(opened)}: a publish quota was given in messages or in "
                "bytes only: the other one is unlimited"
            )
        read = set(groups) - self.unread
        self._unknown = self._unknown - read | set(plan.unknown)
        self._kept = self._kept - read | set(plan.kept)
        self._agreed |= read.difference(plan.kept, plan.unknown)
        return lines

    def forget_gone(self, listed: Collection[str]) -> None:
        """These are all the groups that the cluster has."""
        for names in (self._agreed, self._unknown, self._kept):
            names.intersection_update(listed)

    def alarms(self) -> list[str]:
        """What somebody must do something about."""
        lines = []
        if self._unknown:
            lines.append(
                f"resource groups {some_of(self._unknown)}: the cluster has no publish quota of "
                "them (-1), and neither the table nor its history knows one: they are not taken "
                "for unlimited, their limits are not computed, rates in force stay as they are; "
                f"give each its quotas, {_GIVE}"
            )
        if self._kept and not self._take_over:
            lines.append(
                f"resource groups {some_of(self._kept)}: the cluster has no publish quota of them "
                "(-1), which an enforcer may have taken over before enforce.take_over was switched "
                "off: the table's are kept; have them handed back (enforce.on_exit: remove), or "
                f"give each its quotas, {_GIVE}"
            )
        return lines
