"""Takes publish quotas off the cluster's own calculator while ours are in force, and hands back.

The stock calculator throttles whatever has a quota in the cluster, beside our rates, and starves
idle brokers. So the quota in the cluster is set to unlimited, once our table has it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np

from quotaplane.cluster.groups import RATE_KEYS, group_path, rates_of
from quotaplane.cluster.pace import Pace, at_once
from quotaplane.cluster.rest import RefusedError, Rest
from quotaplane.enforce.trouble import Trouble
from quotaplane.errors import ClusterError, QuotaplaneError
from quotaplane.history.groups import list_groups
from quotaplane.model import RATE_COLUMNS
from quotaplane.settings import History

_PART: Final = "take over"
_AT_ONCE: Final = 4
_LAST_AT_ONCE: Final = 16
_AGAIN_S: Final = 0.25
_LONGEST_AGAIN_S: Final = 2.0
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
        recorded = await self._recorded() if limited else None
        for group, rates in limited.items():
            publish = rates[_PUBLISH]
            finite = np.isfinite(publish)
            # What isn't recorded would be lost.
            if recorded and group in recorded and (recorded[group] == publish)[finite].all():
                if await self._put(group, np.full(2, np.inf)):
                    self._taken.add(group)
                    self.taken += 1

    async def hand_back(self, first: Collection[str], within_s: float) -> set[str]:
        """Give the cluster the table's publish quotas again, wherever it has none.

        That is tried again while there is time. Returns the groups where it could not be done:
        without the table all of ``first``, which otherwise only come first.
        """
        recorded: Mapping[str, Any] | None = None
        left = self._taken.union(first)

        async def give(group: str) -> None:
            if recorded is not None and await self._give_back(group, recorded[group]):
                left.discard(group)

        async def give_all() -> None:
            nonlocal recorded
            wait_s = _AGAIN_S
            while True:
                if recorded is None:
                    recorded = await self._recorded()
                    if recorded is not None:
                        left.clear()
                        left.update(g for g, ours in recorded.items() if np.isfinite(ours).any())
                if recorded is not None:
                    urgent = set(first)
                    await at_once(_LAST_AT_ONCE, give, sorted(left, key=lambda g: g not in urgent))
                    if not left:
                        return
                await asyncio.sleep(wait_s)
                wait_s = min(2.0 * wait_s, _LONGEST_AGAIN_S)

        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(give_all(), within_s)
        return left

    async def _give_back(self, group: str, recorded: Any) -> bool:
        """Whether the group has no less quotas in the cluster than it should have."""
        try:
            rates = rates_of(await self._rest.get(group_path(group)))
        except ClusterError as error:
            gone = isinstance(error, RefusedError) and error.status == 404
            self._trouble(_PART, group, None if gone else error)
            return gone
        hidden = np.isinf(rates[_PUBLISH]) & np.isfinite(recorded)
        if hidden.any():
            if not await self._put(group, np.where(hidden, recorded, rates[_PUBLISH])):
                return False
            self.handed_back += 1
        return True

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

    async def _recorded(self) -> Mapping[str, Any] | None:
        """The table's publish quotas (2,) of each group, inf = unlimited; None: can't be read."""
        try:
            rows = await asyncio.to_thread(list_groups, self._history)
        except QuotaplaneError as error:
            self._trouble(_PART, "", error)
            return None
        self._trouble(_PART, "", None)
        columns = [rows[name].fill_null(np.inf).to_numpy() for name in RATE_COLUMNS[_PUBLISH]]
        return dict(zip(rows["group"].to_pylist(), np.column_stack(columns), strict=True))

    async def _put(self, group: str, rates: Any) -> bool:
        # Pulsar merges: what isn't named stays.
        body = {
            key: int(rate) if np.isfinite(rate) else -1
            for key, rate in zip(RATE_KEYS[_PUBLISH], rates.tolist(), strict=True)
        }
        try:
            await self._rest.ask("PUT", group_path(group), body)
        except ClusterError as error:
            self._trouble(_PART, group, error)
            return False
        self._trouble(_PART, group, None)
        return True
