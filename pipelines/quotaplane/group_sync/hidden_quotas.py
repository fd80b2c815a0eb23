"""Decides what a publish quota of -1 in the cluster means: it is not always "unlimited".

The enforcer takes publish quotas over and leaves -1 in the cluster (docs/adr/0010-take-over.md).
The quota is then in the table; for a group that is new to the table, perhaps in the table's
history. If it is in neither, the group gets no row, as a row would make it unlimited.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np

from quotaplane.agents.disappearance import some_of
from quotaplane.errors import HistoryError
from quotaplane.group_sync.changes import Puts, known, last_quotas, puts
from quotaplane.model import PUBLISH, FloatArray
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.current_groups import GroupSnapshot
from quotaplane.settings import History

_GIVE: Final = (
    "in the cluster (pulsar-admin resourcegroups update -mp MESSAGES -bp BYTES GROUP; an omitted "
    "option means unlimited), or by `quotaplane groups put GROUP --publish-messages-per-s N "
    "--publish-bytes-per-s N`, where N may be unlimited"
)


class HiddenQuotas:
    """What is known about publish quotas that the cluster hides; kept from one poll to the next.

    With ``take_over`` an unlimited publish rate in the cluster never means anything. Without it, it
    is the group's quota, unless it may be left over from a time with take-over: a number in the
    table stays if this process never saw the same number in the cluster.
    """

    def __init__(self, history: History, *, take_over: bool) -> None:
        self._history, self._take_over = history, take_over
        self._agreed: set[str] = set()
        """Groups that had the same publish quota in the cluster and in the table once."""
        self._unknown: set[str] = set()
        """Groups without a publish quota anywhere, see ``Puts.unknown``."""
        self._kept: set[str] = set()
        """Groups that keep the table's publish quota, see ``Puts.kept``."""
        self._last: dict[str, FloatArray] = {}
        """Last publish quota in the table's history, by group."""
        self._last_version = -1
        """Version of the table that ``_last`` was read at."""
        self.failure: HistoryError | None = None
        """Why the last read of the history failed."""
        self.unread: set[str] = set()
        """Groups that were skipped because of ``failure``."""

    def plan(
        self,
        groups: Sequence[str],
        rates: FloatArray,
        fields: Mapping[str, str],
        table: GroupSnapshot,
        copies: Mapping[str, FloatArray],
    ) -> Puts:
        """Plan what to write for these groups, which have rates (n, 4) in the cluster.

        ``fields`` are what else each has there (``pulsar_fields``), by group; ``copies`` are the
        publish quotas (2,) of which the cluster has a copy.
        """
        in_table = known(groups, table.rows)
        agreed = np.array([group in self._agreed for group in groups], np.bool_)
        copied = np.array([group in copies for group in groups], np.bool_)
        silent = (in_table & ~agreed) | (copied & ~in_table)
        if self._take_over:
            silent = np.full(len(groups), True)
        needs_history = silent & ~in_table & np.isinf(rates[:, PUBLISH]).any(axis=1)
        self.failure, self.unread = None, set()
        if needs_history.any() and table.version != self._last_version:
            try:
                self._last = last_quotas(group_changes(self._history))
                self._last_version = table.version
            except HistoryError as error:
                # Skip these groups, so that the others don't wait for them.
                self.failure = error
                self.unread = {groups[at] for at in np.flatnonzero(needs_history).tolist()}
                groups = [group for group in groups if group not in self.unread]
                rates, silent = rates[~needs_history], silent[~needs_history]
        # The table's history is newer than a copy, which is made when a quota is taken over.
        last = {**copies, **self._last}
        return puts(groups, rates, fields, table.rows, silent=silent, last=last)

    def done(self, groups: Collection[str], plan: Puts) -> list[str]:
        """Record that the plan of these groups was carried out; returns lines for the operator."""
        lines = []
        if plan.revived:
            lines.append(
                f"resource groups {some_of(plan.revived)}: new to the table, and without a publish "
                "quota in the cluster (-1): they got the last ones in the table's history, or "
                "those of the copies in the cluster (GROUP.taken-over); restore their policies and "
                "other quotas by `quotaplane groups restore --from-history GROUP`"
            )
        partly_unlimited = np.isinf(plan.quotas[:, PUBLISH]).any(axis=1)
        half_given = self._unknown.intersection(np.array(plan.groups, object)[partly_unlimited])
        if half_given:
            lines.append(
                f"resource groups {some_of(half_given)}: a publish quota was given in messages or "
                "in bytes only: the other one is unlimited"
            )
        read = set(groups) - self.unread
        self._unknown = self._unknown - read | set(plan.unknown)
        self._kept = self._kept - read | set(plan.kept)
        self._agreed |= read.difference(plan.kept, plan.unknown)
        return lines

    def kept(self, most: int) -> list[str]:
        """Some of the groups whose publish quota the table has and the cluster hides."""
        return sorted(self._kept)[:most]

    def forget_gone(self, listed: Collection[str]) -> None:
        """Forget all groups but ``listed``, which are all that the cluster has."""
        for names in (self._agreed, self._unknown, self._kept):
            names.intersection_update(listed)

    def alarms(self) -> list[str]:
        """Lines about states that an operator must mend."""
        lines = []
        if self._unknown:
            lines.append(
                f"resource groups {some_of(self._unknown)}: the cluster has no publish quota of "
                "them (-1), and neither the table, its history nor a copy has one: they are not "
                "taken for unlimited, their limits are not computed, and rates in force stay as "
                f"they are; give each its quotas, {_GIVE}"
            )
        if self._kept and not self._take_over:
            lines.append(
                f"resource groups {some_of(self._kept)}: the cluster has no publish quota of them "
                "(-1); an enforcer may have taken it over before enforce.take_over was switched "
                "off, so the table's quotas stay; have them handed back (enforce.on_exit: remove), "
                f"or give each its quotas, {_GIVE}"
            )
        return lines
