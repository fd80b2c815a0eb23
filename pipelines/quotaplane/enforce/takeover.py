"""Takes publish quotas off the cluster's own calculator while ours are in force, and hands back.

The stock calculator throttles whatever has a quota in the cluster, beside our rates, and starves
idle brokers. So the quota in the cluster is set to unlimited, once our table has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np

from quotaplane.cluster.groups import RATE_KEYS, group_path, rates_of
from quotaplane.cluster.pace import Pace, at_once
from quotaplane.cluster.rest import RefusedError, Rest
from quotaplane.enforce.trouble import Trouble
from quotaplane.errors import ClusterError, QuotaplaneError
from quotaplane.history.groups import list_groups
from quotaplane.model import BASIC, RATE_COLUMNS
from quotaplane.settings import History

_PART: Final = "take over"
_AT_ONCE: Final = 4
_PUBLISH: Final = slice(0, 2)


class TakeOver:
    """The publish quotas of one cluster's groups."""

    def __init__(self, rest: Rest, history: History, pace: Pace, trouble: Trouble) -> None:
        self._rest, self._history, self._pace, self._trouble = rest, history, pace, trouble
        self._taken: set[str] = set()
        self.taken = self.handed_back = 0
        """So often, since the start."""

    async def take(self, groups: Collection[str]) -> None:
        """Take over those that the table has as the cluster has them; all have limits in force."""
        held = await self._read(groups)
        limited = {g: rates for g, rates in held.items() if np.isfinite(rates[_PUBLISH]).any()}
        recorded = await self._recorded() if limited else {}
        for group, rates in limited.items():
            finite = np.isfinite(rates)
            finite[_PUBLISH.stop :] = False
            # What isn't recorded would be lost.
            if group in recorded and (recorded[group][finite] == rates[finite]).all():
                rates[_PUBLISH] = np.inf
                if await self._put(group, rates):
                    self._taken.add(group)
                    self.taken += 1

    async def hand_back(self, groups: Collection[str]) -> None:
        """Give the cluster the table's publish quotas again, of these and of all taken over."""
        recorded = await self._recorded()
        held = await self._read(sorted(self._taken.union(groups) & recorded.keys()))
        for group, rates in held.items():
            ours = recorded[group][_PUBLISH]
            if np.isinf(rates[_PUBLISH]).all() and np.isfinite(ours).any():
                rates[_PUBLISH] = ours
                self.handed_back += await self._put(group, rates)

    async def _read(self, groups: Collection[str]) -> dict[str, Any]:
        """The cluster's rates (4,) of each group that it has; inf = unlimited."""
        held: dict[str, Any] = {}

        async def read(group: str) -> None:
            await self._pace.take()
            try:
                held[group] = np.array(rates_of(await self._rest.get(group_path(group))))
            except ClusterError as error:
                gone = isinstance(error, RefusedError) and error.status == 404
                self._trouble(_PART, group, None if gone else error)

        await at_once(_AT_ONCE, read, groups)
        return held

    async def _recorded(self) -> Mapping[str, Any]:
        """The table's quotas (4,) of each group; inf = unlimited."""
        try:
            rows = await asyncio.to_thread(list_groups, self._history)
        except QuotaplaneError as error:
            self._trouble(_PART, "", error)
            return {}
        self._trouble(_PART, "", None)
        columns = [rows[name].fill_null(np.inf).to_numpy() for name in RATE_COLUMNS[:BASIC]]
        return dict(zip(rows["group"].to_pylist(), np.column_stack(columns), strict=True))

    async def _put(self, group: str, rates: Any) -> bool:
        body = {
            key: int(rate) if np.isfinite(rate) else -1
            for key, rate in zip(RATE_KEYS, rates.tolist(), strict=True)
        }
        try:
            await self._rest.ask("PUT", group_path(group), body)
        except ClusterError as error:
            self._trouble(_PART, group, error)
            return False
        self._trouble(_PART, group, None)
        return True
