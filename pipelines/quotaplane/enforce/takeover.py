"""Takes publish quotas off the cluster's own calculator while ours are in force, and hands back.

The stock calculator throttles whatever has a quota in the cluster, beside our rates, and starves
idle brokers. So the quota in the cluster is set to unlimited, once our table has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import numpy as np

from quotaplane.cluster.groups import RATE_KEYS, group_path, rates_of
from quotaplane.cluster.pace import Pace, at_once
from quotaplane.cluster.rest import RefusedError, Rest
from quotaplane.enforce.layout import KINDS, SIDES, Layout
from quotaplane.enforce.plan import Moves, Rates
from quotaplane.enforce.trouble import Trouble
from quotaplane.errors import ClusterError, QuotaplaneError
from quotaplane.history.groups import list_groups
from quotaplane.model import RATE_COLUMNS, BoolArray, FloatArray
from quotaplane.settings import History

_PART: Final = "take over"
_AT_ONCE: Final = 4
_LAST_AT_ONCE: Final = 16
_AGAIN_S: Final = 0.25
_LONGEST_AGAIN_S: Final = 2.0
_PUBLISH: Final = SIDES[KINDS.index("publish")]
_DIMENSIONS: Final = 2


class InForce:
    """Which limits are in force on all publishers of a group: those told until when."""

    def __init__(self) -> None:
        self._groups: tuple[str, ...] = ()
        self._since_ms: FloatArray = np.zeros((0, _DIMENSIONS))

    def note(
        self, layout: Layout, wanted: FloatArray, rates: Rates, moves: Moves, told_ms: FloatArray
    ) -> None:
        """How it stands: rates (u, 4) are wanted, and ``moves`` were left to make; groups were told
        limits last at ``told_ms`` (g,).
        """
        if layout.groups != self._groups:
            before = dict(zip(self._groups, self._since_ms, strict=True))
            never = np.full(_DIMENSIONS, -np.inf)
            self._since_ms = np.array([before.get(group, never) for group in layout.groups])
            self._since_ms = self._since_ms.reshape(-1, _DIMENSIONS)
            self._groups = layout.groups
        in_force, going = rates.in_force[:, _PUBLISH], rates.going[:, _PUBLISH]
        # What is under way or failed may have to come down still.
        kind = KINDS.index("publish")
        unsure = ~rates.free[:, kind] | moves.unread[:, kind]
        comes_down = (going < in_force) | (unsure[:, None] & (wanted[:, _PUBLISH] < in_force))
        lower = (moves.kind == KINDS.index("publish")) & (moves.rates < in_force[moves.topic]).any(
            axis=1
        )
        comes_down[moves.topic[lower]] = True
        finite = np.isfinite(wanted[:, _PUBLISH])
        for d in range(_DIMENSIONS):
            some, lacking, late = (
                np.bincount(layout.group[which], minlength=len(layout.groups)) > 0
                for which in (
                    finite[:, d],
                    finite[:, d] & ~np.isfinite(in_force[:, d]),
                    finite[:, d] & comes_down[:, d],
                )
            )
            # While some still come down, what was in force before is.
            since_ms = np.where(late, self._since_ms[:, d], told_ms)
            self._since_ms[:, d] = np.where(some & ~lacking, since_ms, -np.inf)

    def groups(self) -> dict[str, FloatArray]:
        """Those of which some limit is in force: messages and bytes (2,), told so long ago at
        most, in ms; -inf = none.
        """
        some = np.flatnonzero((self._since_ms > -np.inf).any(axis=1))
        return {self._groups[at]: self._since_ms[at].copy() for at in some.tolist()}


class Quota(NamedTuple):
    """What the table has of a group."""

    publish: FloatArray
    """(2,) messages and bytes; inf = unlimited."""
    updated_at_ms: float


class TakeOver:
    """The publish quotas of one cluster's groups; ``most`` of them are looked at each time."""

    def __init__(
        self, rest: Rest, history: History, pace: Pace, trouble: Trouble, most: int
    ) -> None:
        self._rest, self._history, self._pace, self._trouble = rest, history, pace, trouble
        self._most = most
        self._turn: dict[str, int] = {}
        self._turns = 0
        self._taken: set[str] = set()
        self.taken = self.handed_back = 0
        """So often, since the start."""

    async def take(self, in_force: Mapping[str, FloatArray]) -> None:
        """Take over those that the table has as the cluster has them; see ``InForce.groups``.

        Their limits must be in force, in each dimension, and have been told since the table got
        that quota: what would hold otherwise is the old one, or none.
        """
        self._trouble.retain(_PART, lambda group: group in in_force or not group)
        self._turn = {group: self._turn.get(group, -1) for group in in_force}
        due = heapq.nsmallest(self._most, self._turn, key=self._turn.__getitem__)
        self._turns += 1
        self._turn |= dict.fromkeys(due, self._turns)
        held: dict[str, FloatArray] = {}

        async def look(group: str) -> None:
            rates = await self._held(group)
            if rates is not None and np.isfinite(rates).any():
                held[group] = rates

        await at_once(_AT_ONCE, look, due)
        if not held:
            self._trouble.forget(_PART, "")
            return
        recorded = await self._recorded() or {}

        async def take(group: str) -> None:
            await self._take(group, recorded[group])

        await at_once(
            _AT_ONCE,
            take,
            [
                group
                for group, rates in held.items()
                if group in recorded
                and (in_force[group] > recorded[group].updated_at_ms)[np.isfinite(rates)].all()
                and _is_recorded(rates, recorded[group])
            ],
        )

    async def _take(self, group: str, recorded: Quota) -> None:
        # Once more: somebody may have changed it while the table was read.
        rates = await self._held(group)
        if rates is None or not _is_recorded(rates, recorded):
            return
        limited = np.isfinite(rates)
        if limited.any() and await self._put(group, np.full(_DIMENSIONS, np.inf), limited):
            self._taken.add(group)
            self.taken += 1

    async def hand_back(self, first: Collection[str], within_s: float) -> set[str]:
        """Give the cluster the table's publish quotas again, wherever it has none.

        That is tried again while there is time. Returns the groups where it could not be done:
        without the table all of ``first``, which otherwise only come first.
        """
        recorded: Mapping[str, Quota] | None = None
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
                        left.update(
                            g for g, ours in recorded.items() if np.isfinite(ours.publish).any()
                        )
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

    async def _give_back(self, group: str, recorded: Quota) -> bool:
        """Whether the cluster has all publish quotas of the group that it should have."""
        try:
            rates = await self._asked(group)
        except ClusterError as error:
            self._trouble(_PART, group, error)
            return False
        hidden = np.isinf(rates) & np.isfinite(recorded.publish)
        if hidden.any():
            if not await self._put(group, recorded.publish, hidden):
                return False
            self.handed_back += 1
        return True

    async def _asked(self, group: str) -> FloatArray:
        """The cluster's publish quotas (2,) of a group, inf = unlimited; NaN: it has no such group.

        Raises:
            ClusterError: it can't be read.
        """
        try:
            return np.array(rates_of(await self._rest.get(group_path(group))))[_PUBLISH]
        except RefusedError as error:
            if error.status != 404:
                raise
            return np.full(_DIMENSIONS, np.nan)

    async def _held(self, group: str) -> FloatArray | None:
        """As ``_asked``; None if it can't be read."""
        await self._pace.take()
        try:
            rates = await self._asked(group)
        except ClusterError as error:
            self._trouble(_PART, group, error)
            return None
        self._trouble(_PART, group, None)
        return rates

    async def _recorded(self) -> Mapping[str, Quota] | None:
        """The table's groups; None: it can't be read."""
        try:
            rows = await asyncio.to_thread(list_groups, self._history)
        except QuotaplaneError as error:
            self._trouble(_PART, "", error)
            return None
        self._trouble(_PART, "", None)
        columns = [rows[name].fill_null(np.inf).to_numpy() for name in RATE_COLUMNS[_PUBLISH]]
        updated = rows["updated_at"].cast("int64").fill_null(0)
        quotas = map(Quota, np.column_stack(columns), (updated.to_numpy() / 1000.0).tolist())
        return dict(zip(rows["group"].to_pylist(), quotas, strict=True))

    async def _put(self, group: str, rates: FloatArray, which: BoolArray) -> bool:
        # Pulsar merges: what isn't named stays.
        body = {
            key: int(rate) if np.isfinite(rate) else -1
            for key, rate, named in zip(RATE_KEYS[_PUBLISH], rates, which, strict=True)
            if named
        }
        try:
            await self._rest.ask("PUT", group_path(group), body)
        except ClusterError as error:
            self._trouble(_PART, group, error)
            return False
        self._trouble(_PART, group, None)
        return True


def _is_recorded(rates: FloatArray, recorded: Quota) -> bool:
    """Whether nothing would be lost of the cluster's publish quotas (2,)."""
    limited = np.isfinite(rates)
    return bool((recorded.publish == rates)[limited].all())
