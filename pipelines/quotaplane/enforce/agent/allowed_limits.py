"""The limits that brokers are held to: as they were told, and never more than the quotas."""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.agents.failures import Say, first_names
from quotaplane.enforce.agent.quota_table import QuotaTable
from quotaplane.enforce.limits_received import Book
from quotaplane.enforce.quota_caps import QuotaCaps, TableQuotas, capped, caps_of
from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray
from quotaplane.topic_layout import Layout, nothing

_TOLD_AFTER_S: Final = 10.0
"""A quota that was just changed is known here and to the job at different times; that passes."""


class AllowedLimits:
    """Limits out of the book, cut down to the table's quotas.

    ``only_recorded``: groups that the table does not have are left alone, whatever was told. That
    is for a cluster whose quotas were taken over: our rates may be such a group's only limit.
    """

    def __init__(
        self, book: Book, table: QuotaTable, say: Say, *, only_recorded: bool = False
    ) -> None:
        self._book, self._table, self._say = book, table, say
        self._only_recorded = only_recorded
        self._layout: Layout = nothing()
        self._quotas: TableQuotas | None = None
        self._caps: QuotaCaps = caps_of((), None)
        self._left_alone: BoolArray = np.zeros(0, np.bool_)
        self._since_s: dict[str, float] = {}
        """Of the groups whose limits are cut now: since when."""
        self._told = False

    @property
    def cut(self) -> int:
        """Of how many groups limits are cut now."""
        return len(self._since_s)

    def limits(self, layout: Layout, now_ms: float, now_s: float) -> FloatArray:
        """The limits (k, 4) of the layout's pairs; what is cut is told once it lasts."""
        pairs = layout.pairs
        told = self._in_force(layout, pairs.broker, pairs.group, now_ms)
        left, cut = capped(self._caps, pairs.group, told)
        self._note([layout.groups[at] for at in np.flatnonzero(cut).tolist()], now_s)
        return left

    def safe_limits(self, layout: Layout, now_ms: float) -> FloatArray:
        """(b, g, 4) what each of all brokers may use of each group when its lease is over.

        Of a pair that was told no safe limit it is the limit.
        """
        shape = len(layout.brokers), len(layout.groups)
        broker, group = (at.ravel() for at in np.indices(shape))
        safe = self._in_force(layout, broker, group, np.inf)
        told = np.where(np.isnan(safe), self._in_force(layout, broker, group, now_ms), safe)
        return capped(self._caps, group, told).limits.reshape(*shape, BASIC)

    def _in_force(
        self, layout: Layout, broker: IntArray, group: IntArray, now_ms: float
    ) -> FloatArray:
        if layout is not self._layout or self._table.quotas is not self._quotas:
            self._layout, self._quotas = layout, self._table.quotas
            self._caps = caps_of(layout.groups, self._quotas)
            recorded = self._quotas.place if self._quotas is not None else {}
            alone = [self._only_recorded and name not in recorded for name in layout.groups]
            self._left_alone = np.array(alone, np.bool_)
        told = self._book.in_force(layout.brokers, layout.groups, broker, group, now_ms)
        told[self._left_alone[group]] = np.nan
        return told

    def lost(self, layout: Layout) -> list[str]:
        """Groups that limits were told of and that the table does not have."""
        quotas = self._table.quotas
        if quotas is None:
            return []
        missing = [group for group in layout.groups if group not in quotas.place]
        return [missing[at] for at in np.flatnonzero(self._book.told(missing)).tolist()]

    def _note(self, cut: list[str], now_s: float) -> None:
        self._since_s = {group: self._since_s.get(group, now_s) for group in cut}
        lasting = {g for g, since_s in self._since_s.items() if now_s - since_s >= _TOLD_AFTER_S}
        if lasting and not self._told:
            self._told = True
            self._say(
                f"limits: more was told of {first_names(lasting)} than their quotas, for "
                f"{_TOLD_AFTER_S:g} s; it is cut down to them. A broker stopped reporting, the job "
                "reads another history, or somebody else writes to the limits topic "
                "(docs/enforcer.md)"
            )
        elif self._told and not cut:
            self._told = False
            self._say("limits: all are within the quotas again")
