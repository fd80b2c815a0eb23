"""Hides publish quotas from the cluster's own calculator while ours are enforced; hands them back.

The stock calculator throttles every group that has a quota in the cluster, in addition to our
rates, and starves idle brokers. So a quota in the cluster is set to unlimited once our table has
the same and its limits are enforced. In doubt it stays; so does a rate of ours that would be the
last limit of a group.
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
_GROUPS_PER_TABLE_READ: Final = 16
"""Groups that are taken over before the table is read again; reading it costs some 10 ms."""
_RETRY_AFTER_S: Final = 0.25
_LONGEST_RETRY_S: Final = 2.0
_DIMENSIONS: Final = 2


class MissingGroups:
    """Reports groups that have limits, and namespaces in the cluster, but no row in our table.

    The cluster may have no quota of such a group either, so its rates stay as they are.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._reported: set[str] = set()

    def report(self, groups: Collection[str]) -> None:
        """Report all such groups, if one is new."""
        if set(groups) - self._reported:
            self._say(
                f"resource groups {some_of(groups)}: not in the table any more, while namespaces "
                "are attached to them in the cluster: their topics' rates stay as they are; bring "
                "the groups back (`quotaplane groups restore --from-history`), detach the "
                "namespaces, or make the groups unlimited (`quotaplane groups put GROUP "
                "--publish-messages-per-s unlimited --publish-bytes-per-s unlimited`)"
            )
        self._reported = set(groups)


class Quota(NamedTuple):
    """A group's row in the table."""

    publish: FloatArray
    """(2,) messages and bytes per second; inf = unlimited."""
    updated_at_ms: float
    """When the row was written."""


class _HandBack:
    """Progress of one hand-back."""

    def __init__(self, groups: set[str]) -> None:
        self.remaining = groups
        """Groups whose quota in the cluster is not settled yet."""
        self.without_quota: set[str] = set()
        """Groups that have a quota neither in the cluster nor in the table."""
        self.recorded: Mapping[str, Quota] | None = None
        """The table; None: not read yet."""


class TakeOver:
    """Takes over the publish quotas of one cluster's groups, ``most`` groups per call."""

    def __init__(
        self, rest: Rest, history: History, pace: Pace, failure_log: FailureLog, most: int
    ) -> None:
        self._rest, self._history, self._pace, self._failure_log = rest, history, pace, failure_log
        self._most = most
        self._last_turn: dict[str, int] = {}
        """By group: in which call of ``take`` it was looked at last; -1 = never."""
        self._turns = 0
        self._taken: set[str] = set()
        self.taken = 0
        """Quotas taken over since the start."""
        self.handed_back = 0
        """Quotas handed back since the start."""

    async def take(self, in_force: Mapping[str, FloatArray]) -> None:
        """Take over quotas that are the same in the table and in the cluster.

        The group's limits must be in force in each dimension (``GroupsInForce.groups``) and have
        been decided after the table got that quota: otherwise they follow an older quota, or none.
        """
        self._failure_log.retain(_PART, lambda group: group in in_force or not group)
        in_cluster = await self._read_next(in_force)
        if not in_cluster:
            self._failure_log.forget(_PART, "")
            return
        recorded = await self._recorded() or {}
        due = [
            g for g, rates in in_cluster.items() if _may_take(rates, recorded.get(g), in_force[g])
        ]
        for begin in range(0, len(due), _GROUPS_PER_TABLE_READ):
            if begin:
                recorded = await self._recorded() or {}
            await self._take_all(due[begin : begin + _GROUPS_PER_TABLE_READ], recorded, in_force)

    async def _read_next(self, groups: Collection[str]) -> dict[str, FloatArray]:
        """Read the next ``most`` groups in turn; returns those with a quota in the cluster."""
        self._last_turn = {group: self._last_turn.get(group, -1) for group in groups}
        due = heapq.nsmallest(self._most, self._last_turn, key=self._last_turn.__getitem__)
        self._turns += 1
        self._last_turn |= dict.fromkeys(due, self._turns)
        in_cluster: dict[str, FloatArray] = {}

        async def look(group: str) -> None:
            rates = await self._read_paced(group)
            if rates is not None and np.isfinite(rates).any():
                in_cluster[group] = rates

        await at_once(_AT_ONCE, look, due)
        return in_cluster

    async def _take_all(
        self, groups: list[str], recorded: Mapping[str, Quota], in_force: Mapping[str, FloatArray]
    ) -> None:
        """Take over these groups; undo it for those that the table loses meanwhile."""
        hidden: dict[str, FloatArray] = {}

        async def take(group: str) -> None:
            # Read again: somebody may have changed it while the table was read.
            rates = await self._read_paced(group)
            if rates is None or not _may_take(rates, recorded.get(group), in_force[group]):
                return
            self._taken.add(group)
            done = await self._put(group, np.full(_DIMENSIONS, np.inf), np.isfinite(rates))
            # Read back: the answer may be lost, or the request accepted without effect.
            now = await self._read_or_report(group)
            if done if now is None else not np.isfinite(now).any():
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
        """Write the table's publish quotas to the cluster wherever it has none.

        Failures are retried within ``within_s``. Returns the groups that would be without any
        quota: those that failed, and those of ``first`` that the table does not have (all of
        ``first`` if the table can't be read). The groups ``first`` are handed back first.

        Without ``taking_over`` nothing is done unless one of ``first`` has no quota in the cluster,
        as an earlier run may have taken it over.
        """
        progress = _HandBack(self._taken.union(first))
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._hand_back_all(progress, taking_over), within_s)
        return progress.remaining | progress.without_quota

    async def _hand_back_all(self, progress: _HandBack, taking_over: bool) -> None:
        remaining = progress.remaining
        if not taking_over:
            await self._drop_limited(remaining)
            if not remaining:
                return
        first = set(remaining)

        async def give(group: str) -> None:
            handed_back = await self._give_back(group, (progress.recorded or {}).get(group))
            if handed_back is None:
                progress.without_quota.add(group)
            if handed_back is not False:
                remaining.discard(group)

        wait_s = _RETRY_AFTER_S
        while True:
            if progress.recorded is None:
                await self._read_table(progress)
            if progress.recorded is not None:
                await at_once(_LAST_AT_ONCE, give, sorted(remaining, key=lambda g: g not in first))
                if not remaining:
                    return
            await asyncio.sleep(wait_s)
            wait_s = min(2.0 * wait_s, _LONGEST_RETRY_S)

    async def _drop_limited(self, groups: set[str]) -> None:
        """Drop the groups that have a quota in the cluster."""

        async def look(group: str) -> None:
            with contextlib.suppress(ClusterError):
                if not np.isinf(await self._read(group)).all():
                    groups.discard(group)

        await at_once(_LAST_AT_ONCE, look, list(groups))

    async def _read_table(self, progress: _HandBack) -> None:
        """Read the table; from then on every group that has a publish quota there remains."""
        progress.recorded = await self._recorded()
        if progress.recorded is not None:
            progress.remaining.difference_update(progress.recorded)
            limited = (g for g, row in progress.recorded.items() if np.isfinite(row.publish).any())
            progress.remaining.update(limited)

    async def _give_back(self, group: str, recorded: Quota | None) -> bool | None:
        """Whether the cluster now has the group's publish quotas; None: the group has a quota
        neither in the cluster nor in the table.
        """
        try:
            rates = await self._read(group)
            if recorded is None:
                return None if np.isinf(rates).all() else True
            hidden = np.isinf(rates) & np.isfinite(recorded.publish)
            if not hidden.any():
                return True
            if not await self._put(group, recorded.publish, hidden):
                return False
            if (np.isinf(await self._read(group)) & hidden).any():
                return False
        except ClusterError as error:
            self._failure_log.note(_PART, group, error)
            return False
        self.handed_back += 1
        return True

    async def _read(self, group: str) -> FloatArray:
        """The group's publish quotas in the cluster (2,); inf = unlimited, NaN = no such group.

        Raises:
            ClusterError: they can't be read.
        """
        try:
            return np.array(rates_of(await self._rest.get(group_path(group))))[PUBLISH]
        except RefusedError as error:
            if error.status != 404:
                raise
            return np.full(_DIMENSIONS, np.nan)

    async def _read_paced(self, group: str) -> FloatArray | None:
        """Like ``_read_or_report``, within the read budget."""
        await self._pace.take()
        return await self._read_or_report(group)

    async def _read_or_report(self, group: str) -> FloatArray | None:
        """Like ``_read``; None: it failed, which is reported."""
        try:
            rates = await self._read(group)
        except ClusterError as error:
            self._failure_log.note(_PART, group, error)
            return None
        self._failure_log.note(_PART, group, None)
        return rates

    async def _recorded(self) -> Mapping[str, Quota] | None:
        """Read the table; None: it can't be read."""
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
        """Write the quotas ``which`` (2,); whether that succeeded."""
        # Pulsar merges: fields that are missing from the body stay.
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


def _may_take(rates: FloatArray, recorded: Quota | None, decided_ms: FloatArray) -> bool:
    """Whether the cluster's publish quotas (2,) can be hidden without loss: the table has the same,
    and limits decided (at ``decided_ms`` (2,)) since the table has them are in force.
    """
    limited = np.isfinite(rates)
    if recorded is None or not limited.any():
        return False
    same = to_cluster(recorded.publish) == rates
    return bool((same & (decided_ms > recorded.updated_at_ms))[limited].all())
