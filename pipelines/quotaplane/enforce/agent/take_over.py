"""Takes publish quotas off the cluster's own calculator while ours are in force, and hands back.

The stock calculator throttles whatever has a quota in the cluster, beside our rates, and starves
idle brokers. So the quota in the cluster is set to unlimited, once our table has it. In any doubt
it stays, and so does a rate of ours that would be the last limit of a group.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import numpy as np

from quotaplane.agents.disappearance import some_of
from quotaplane.agents.failures import FailureLog, Say
from quotaplane.agents.pace import Pace, at_once
from quotaplane.errors import ClusterError, QuotaplaneError
from quotaplane.model import PUBLISH, RATE_COLUMNS, BoolArray, FloatArray
from quotaplane.pulsar_admin.resource_groups import RATE_KEYS, group_path, rates_of, to_cluster
from quotaplane.pulsar_admin.rest import RefusedError, Rest
from quotaplane.registry.table import list_groups
from quotaplane.settings import History

_PART: Final = "take over"
_AT_ONCE: Final = 4
_LAST_AT_ONCE: Final = 16
_READ_BACK_FOR: Final = 16
"""The table is read anew for so many groups that are to be taken over: reading costs some 10 ms."""
_AGAIN_S: Final = 0.25
_LONGEST_AGAIN_S: Final = 2.0
_DIMENSIONS: Final = 2


class Lost:
    """Tells of groups that limits were told of and that our table does not have (any more), while
    namespaces are attached to them in the cluster.

    The cluster may have no quota of such a group, so its rates stay as they are.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._told: set[str] = set()

    def tell(self, groups: Collection[str]) -> None:
        """These are all of them."""
        if set(groups) - self._told:
            self._say(
                f"resource groups {some_of(groups)}: not in the table any more, while namespaces "
                "are attached to them in the cluster: their topics' rates stay as they are; bring "
                "the groups back (`quotaplane groups restore --from-history`), detach the "
                "namespaces, or say that they are unlimited (`quotaplane groups put GROUP "
                "--publish-messages-per-s unlimited --publish-bytes-per-s unlimited`)"
            )
        self._told = set(groups)


class Quota(NamedTuple):
    """What the table has of a group."""

    publish: FloatArray
    """(2,) messages and bytes; inf = unlimited."""
    updated_at_ms: float


class TakeOver:
    """The publish quotas of one cluster's groups; ``most`` of them are looked at each time."""

    def __init__(
        self, rest: Rest, history: History, pace: Pace, failure_log: FailureLog, most: int
    ) -> None:
        self._rest, self._history, self._pace, self._failure_log = rest, history, pace, failure_log
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
        self._failure_log.retain(_PART, lambda group: group in in_force or not group)
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
            self._failure_log.forget(_PART, "")
            return
        recorded = await self._recorded() or {}
        due = [g for g in held if _may_take(held[g], recorded.get(g), in_force[g])]
        for begin in range(0, len(due), _READ_BACK_FOR):
            if begin:
                recorded = await self._recorded() or {}
            await self._take_all(due[begin : begin + _READ_BACK_FOR], recorded, in_force)

    async def _take_all(
        self, groups: list[str], recorded: Mapping[str, Quota], in_force: Mapping[str, FloatArray]
    ) -> None:
        """Take over what may be, given the table as it is now; undo what it loses then."""
        hidden: dict[str, FloatArray] = {}

        async def take(group: str) -> None:
            # Once more: somebody may have changed it while the table was read.
            rates = await self._held(group)
            if rates is None or not _may_take(rates, recorded.get(group), in_force[group]):
                return
            self._taken.add(group)
            done = await self._put(group, np.full(_DIMENSIONS, np.inf), np.isfinite(rates))
            # Read back: an answer may be lost, and what was answered may have had no effect.
            left = await self._look(group)
            if done if left is None else not np.isfinite(left).any():
                hidden[group] = rates
                self.taken += 1

        async def undo(group: str) -> None:
            if await self._put(group, hidden[group], np.isfinite(hidden[group])):
                self.taken -= 1

        await at_once(_AT_ONCE, take, groups)
        if hidden:
            recorded = await self._recorded() or {}
            await at_once(_AT_ONCE, undo, [group for group in hidden if group not in recorded])

    async def hand_back(
        self, first: Collection[str], within_s: float, *, taking_over: bool = True
    ) -> set[str]:
        """Give the cluster the table's publish quotas again, wherever it has none.

        That is tried again while there is time. Returns the groups that would be without any quota:
        where it could not be done, and those of ``first`` that the table does not have. Without the
        table these are all of ``first``, which otherwise only come first.

        Without ``taking_over`` nothing is done unless one of ``first`` has no quota in the cluster:
        an earlier run may have taken it over.
        """
        recorded: Mapping[str, Quota] | None = None
        left = self._taken.union(first)
        lost: set[str] = set()

        async def look(group: str) -> None:
            with contextlib.suppress(ClusterError):
                if not np.isinf(await self._asked(group)).all():
                    left.discard(group)

        async def give(group: str) -> None:
            handed_back = await self._give_back(group, (recorded or {}).get(group))
            if handed_back is None:
                lost.add(group)
            if handed_back is not False:
                left.discard(group)

        async def give_all() -> None:
            nonlocal recorded
            if not taking_over:
                await at_once(_LAST_AT_ONCE, look, list(left))
                if not left:
                    return
            urgent = set(left)
            wait_s = _AGAIN_S
            while True:
                if recorded is None:
                    recorded = await self._recorded()
                    if recorded is not None:
                        left.difference_update(recorded)
                        left.update(
                            g for g, ours in recorded.items() if np.isfinite(ours.publish).any()
                        )
                if recorded is not None:
                    await at_once(_LAST_AT_ONCE, give, sorted(left, key=lambda g: g not in urgent))
                    if not left:
                        return
                await asyncio.sleep(wait_s)
                wait_s = min(2.0 * wait_s, _LONGEST_AGAIN_S)

        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(give_all(), within_s)
        return left | lost

    async def _give_back(self, group: str, recorded: Quota | None) -> bool | None:
        """Whether the cluster has all publish quotas of the group that it should have; None: it has
        none, and nobody knows which it should have.
        """
        try:
            rates = await self._asked(group)
            if recorded is None:
                return None if np.isinf(rates).all() else True
            hidden = np.isinf(rates) & np.isfinite(recorded.publish)
            if not hidden.any():
                return True
            if not await self._put(group, recorded.publish, hidden):
                return False
            if (np.isinf(await self._asked(group)) & hidden).any():
                return False
        except ClusterError as error:
            self._failure_log.note(_PART, group, error)
            return False
        self.handed_back += 1
        return True

    async def _asked(self, group: str) -> FloatArray:
        """The cluster's publish quotas (2,) of a group, inf = unlimited; NaN: it has no such group.

        Raises:
            ClusterError: it can't be read.
        """
        try:
            return np.array(rates_of(await self._rest.get(group_path(group))))[PUBLISH]
        except RefusedError as error:
            if error.status != 404:
                raise
            return np.full(_DIMENSIONS, np.nan)

    async def _held(self, group: str) -> FloatArray | None:
        """As ``_asked``, in its turn; None if it can't be read."""
        await self._pace.take()
        return await self._look(group)

    async def _look(self, group: str) -> FloatArray | None:
        try:
            rates = await self._asked(group)
        except ClusterError as error:
            self._failure_log.note(_PART, group, error)
            return None
        self._failure_log.note(_PART, group, None)
        return rates

    async def _recorded(self) -> Mapping[str, Quota] | None:
        """The table's groups; None: it can't be read."""
        try:
            rows = await asyncio.to_thread(list_groups, self._history)
        except QuotaplaneError as error:
            self._failure_log.note(_PART, "", error)
            return None
        self._failure_log.note(_PART, "", None)
        columns = [rows[name].fill_null(np.inf).to_numpy() for name in RATE_COLUMNS[PUBLISH]]
        updated = rows["updated_at"].cast("int64").fill_null(0)
        quotas = map(Quota, np.column_stack(columns), (updated.to_numpy() / 1000.0).tolist())
        return dict(zip(rows["group"].to_pylist(), quotas, strict=True))

    async def _put(self, group: str, rates: FloatArray, which: BoolArray) -> bool:
        # Pulsar merges: what isn't named stays.
        body = {
            key: int(rate) if np.isfinite(rate) else -1
            for key, rate, named in zip(RATE_KEYS[PUBLISH], to_cluster(rates), which, strict=True)
            if named
        }
        try:
            await self._rest.ask("PUT", group_path(group), body)
        except ClusterError as error:
            self._failure_log.note(_PART, group, error)
            return False
        self._failure_log.note(_PART, group, None)
        return True


def _may_take(rates: FloatArray, recorded: Quota | None, told_ms: FloatArray) -> bool:
    """Whether nothing would be lost of the cluster's publish quotas (2,): the table has the same,
    and limits told since it has them, at ``told_ms`` (2,), are in force.
    """
    limited = np.isfinite(rates)
    if recorded is None or not limited.any():
        return False
    same = to_cluster(recorded.publish) == rates
    return bool((same & (told_ms > recorded.updated_at_ms))[limited].all())
