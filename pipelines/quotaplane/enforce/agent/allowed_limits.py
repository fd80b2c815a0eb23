"""The limits to enforce: those received from the quota job, capped by the quotas of the table."""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import CUT_GROUPS
from quotaplane.enforce.agent.quota_table import QuotaTable
from quotaplane.enforce.limits_received import ClusterLimits
from quotaplane.enforce.quota_caps import QuotaCaps, TableQuotas, capped, caps_of
from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray
from quotaplane.texts import first_few
from quotaplane.topics.topic_layout import Layout, empty_layout

_REPORT_AFTER_S: Final = 10.0
"""A cut is reported if it lasts: the job and the enforcer read a changed quota at different times,
so a short cut is normal."""
_SAFE_EVERY_S: Final = 10.0
"""How often safe limits are due; at once where topics changed."""
_CHANGED_S: Final = 1.0
"""The same while quotas or safe limits change."""


class AllowedLimits:
    """Limits received, capped by the table's quotas.

    ``only_recorded``: ignore limits of groups that the table does not have. For a cluster whose
    quotas were taken over: the rates already written may be such a group's only limit. ``over``:
    ``limits.over``, by which the job's limits may exceed a quota.
    """

    def __init__(
        self,
        received: ClusterLimits,
        table: QuotaTable,
        conditions: Conditions,
        *,
        only_recorded: bool = False,
        over: float = 0.0,
    ) -> None:
        self._received, self._table, self._conditions = received, table, conditions
        self._only_recorded, self._over = only_recorded, over
        self._layout: Layout = empty_layout()
        self._quotas: TableQuotas | None = None
        self._caps: QuotaCaps = caps_of((), None)
        self._ignored: BoolArray = np.zeros(0, np.bool_)
        """(g,) groups whose limits are ignored, see ``only_recorded``."""
        self._safe_of: tuple[Layout | None, TableQuotas | None, int] = None, None, 0
        """From what safe limits were made when they were due last."""
        self._safe_s = -np.inf
        self._since_s: dict[str, float] = {}
        """Since when limits are cut, by group."""

    @property
    def cut(self) -> int:
        """Number of groups whose limits are cut now."""
        return len(self._since_s)

    def limits(self, layout: Layout, now_ms: float, now_s: float) -> FloatArray:
        """The limits (k, 4) of the layout's pairs; reports a cut that lasts."""
        pairs = layout.pairs
        received = self._in_force(layout, pairs.broker, pairs.group, now_ms)
        reduced, cut = capped(self._caps, pairs.group, received, self._over)
        self._note([layout.groups[at] for at in np.flatnonzero(cut).tolist()], now_s)
        return reduced

    def safe_limits(self, layout: Layout, now_ms: float) -> FloatArray:
        """(b, g, 4) safe limits of every broker and group: what holds after the lease ends.

        A pair without a safe limit has its limit here.
        """
        shape = len(layout.brokers), len(layout.groups)
        broker, group = (at.ravel() for at in np.indices(shape))
        safe = self._in_force(layout, broker, group, np.inf)
        received = np.where(np.isnan(safe), self._in_force(layout, broker, group, now_ms), safe)
        return capped(self._caps, group, received, self._over).limits.reshape(*shape, BASIC)

    def due_safe_limits(self, layout: Layout, now_ms: float, now_s: float) -> FloatArray | None:
        """``safe_limits``, if they are due: soon after they changed; None: they are not."""
        before, quotas, changes = self._safe_of
        same = quotas is self._table.quotas and changes == self._received.safe_changes
        if layout is before and now_s < self._safe_s + (_SAFE_EVERY_S if same else _CHANGED_S):
            return None
        self._safe_of = layout, self._table.quotas, self._received.safe_changes
        self._safe_s = now_s
        return self.safe_limits(layout, now_ms)

    def _in_force(
        self, layout: Layout, broker: IntArray, group: IntArray, now_ms: float
    ) -> FloatArray:
        if layout is not self._layout or self._table.quotas is not self._quotas:
            self._layout, self._quotas = layout, self._table.quotas
            self._caps = caps_of(layout.groups, self._quotas)
            recorded = self._quotas.place if self._quotas is not None else {}
            ignored = [self._only_recorded and name not in recorded for name in layout.groups]
            self._ignored = np.array(ignored, np.bool_)
        received = self._received.in_force(layout.brokers, layout.groups, broker, group, now_ms)
        received[self._ignored[group]] = np.nan
        return received

    def lost(self, layout: Layout) -> list[str]:
        """Groups for which limits were received and that the table does not have."""
        quotas = self._table.quotas
        if quotas is None:
            return []
        missing = [group for group in layout.groups if group not in quotas.place]
        return [missing[at] for at in np.flatnonzero(self._received.is_known(missing)).tolist()]

    def _note(self, cut: list[str], now_s: float) -> None:
        self._since_s = {group: self._since_s.get(group, now_s) for group in cut}
        lasting = {g for g, since_s in self._since_s.items() if now_s - since_s >= _REPORT_AFTER_S}
        self._conditions.set(
            CUT_GROUPS,
            lasting,
            f"the limits received for {first_few(sorted(lasting))} have exceeded their quotas for "
            f"{_REPORT_AFTER_S:g} s and are cut to fit. Possible causes: a broker stopped "
            "reporting, the job uses another history, or another program writes to the limits "
            "topic (docs/explain/enforcer.md)",
        )
