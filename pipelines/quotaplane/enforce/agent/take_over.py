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
from collections.abc import Awaitable, Collection, Mapping
from typing import Final, NamedTuple

import numpy as np

from quotaplane.agents.disappearance import some_of
from quotaplane.agents.failures import FailureLog, Say
from quotaplane.agents.pace import Pace, at_once
from quotaplane.errors import ClusterError, QuotaplaneError
from quotaplane.model import PUBLISH, RATE_COLUMNS, BoolArray, FloatArray
from quotaplane.pulsar_admin.publish_quotas import Given, PublishQuotas
from quotaplane.pulsar_admin.resource_groups import to_cluster
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.registry.table import list_groups
from quotaplane.settings import History

_PART: Final = "take over"
_AT_ONCE: Final = 4
_LAST_AT_ONCE: Final = 16
_GROUPS_PER_TABLE_READ: Final = 16
"""Groups that are taken over before the table is read again; reading it costs some 10 ms."""
_RETRY_AFTER_S: Final = 0.25
_LONGEST_RETRY_S: Final = 2.0
_COPY_CHECK_TURNS: Final = 300
"""A copy in the cluster is read again after so many calls of ``take``: in ten minutes."""
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


class _Copy(NamedTuple):
    """A copy that the cluster had when it was read last."""

    publish: FloatArray
    turn: int

    def needs_check(self, row: Quota, turn: int) -> bool:
        """Whether it is of another quota than this row's, or was read long ago."""
        return turn - self.turn >= _COPY_CHECK_TURNS or not np.array_equal(
            self.publish, row.publish
        )


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
        self,
        rest: Rest,
        history: History,
        pace: Pace,
        failure_log: FailureLog,
        most: int,
        say: Say,
    ) -> None:
        self._quotas = PublishQuotas(rest)
        self._history, self._pace, self._failure_log = history, pace, failure_log
        self._most, self._say = most, say
        self._last_turn: dict[str, int] = {}
        """By group: in which call of ``take`` it was looked at last; -1 = never."""
        self._turns = 0
        self._taken: set[str] = set()
        self.hidden: set[str] = set()
        """Groups whose publish quota only the table has, as of the last look."""
        self._copied: dict[str, _Copy] = {}
        self._crowded: set[str] = set()
        """Groups that rates can't limit, as of the last call."""
        self._left: set[str] = set()
        """Those of them that the cluster limits."""
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
        hidden = [group for group, rates in in_cluster.items() if np.isinf(rates).all()]
        self.hidden -= in_cluster.keys()
        self.hidden |= {group for group in hidden if _is_limited(recorded.get(group))}
        await self._keep_copies(hidden, recorded)
        due = [
            g for g, rates in in_cluster.items() if _may_take(rates, recorded.get(g), in_force[g])
        ]
        for begin in range(0, len(due), _GROUPS_PER_TABLE_READ):
            if begin:
                recorded = await self._recorded() or {}
            await self._take_all(due[begin : begin + _GROUPS_PER_TABLE_READ], recorded, in_force)

    async def _read_next(self, groups: Collection[str]) -> dict[str, FloatArray]:
        """Read the next ``most`` groups in turn; returns those that the cluster has.

        Groups that were taken over and have no limits any more are read, too, until the cluster
        has them no more: else what is kept of them would grow with each name that ever was.
        """
        watched = {*groups, *self._taken}
        self._last_turn = {group: self._last_turn.get(group, -1) for group in watched}
        self._copied = {group: copy for group, copy in self._copied.items() if group in watched}
        self.hidden &= watched
        due = heapq.nsmallest(self._most, self._last_turn, key=self._last_turn.__getitem__)
        self._turns += 1
        self._last_turn |= dict.fromkeys(due, self._turns)
        in_cluster: dict[str, FloatArray] = {}

        async def look(group: str) -> None:
            rates = await self._read_paced(group)
            if rates is None:
                return
            if np.isnan(rates).any():
                self._taken.discard(group)
                self.hidden.discard(group)
            elif group in groups:
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
            rates, row = await self._read_paced(group), recorded.get(group)
            if rates is None or row is None or not _may_take(rates, row, in_force[group]):
                return
            if not await self._keep_copy(group, row):
                return
            self._taken.add(group)
            done = await self._put(group, np.full(_DIMENSIONS, np.inf), np.isfinite(rates))
            # Read back: the answer may be lost, or the request accepted without effect.
            now = await self._read_or_report(group)
            if done if now is None else not np.isfinite(now).any():
                hidden[group] = rates
                self.hidden.add(group)
                self.taken += 1

        async def undo(group: str) -> None:
            if await self._put(group, hidden[group], np.isfinite(hidden[group])):
                self.taken -= 1
                self.hidden.discard(group)
                await self._quotas.drop_copy(group)
                self._copied.pop(group, None)

        await at_once(_AT_ONCE, take, groups)
        if hidden:
            recorded = await self._recorded() or {}
            await at_once(_AT_ONCE, undo, [group for group in hidden if group not in recorded])

    async def leave_to_cluster(self, groups: Collection[str]) -> None:
        """Give quotas back that rates can't limit: groups with more topics than units."""
        new = sorted(set(groups) - self._crowded)
        self._crowded = set(groups)
        if new:
            self._say(
                f"resource groups {some_of(new)}: have more topics and partitions than units in "
                "their limits, and the lowest rate of a topic is 1 per second: rates can't limit "
                "them; their publish quotas stay in the cluster, or are written there again, and "
                "the brokers' own calculator limits as well; their dispatch limits can be exceeded"
            )
        self._left.intersection_update(groups)
        due = sorted(self._crowded - self._left)[: self._most]
        recorded = await self._recorded() or {} if due else {}
        for group in due:
            await self._pace.take()
            if await self._give_back(group, recorded.get(group)) not in (None, Given.NOT_KEPT):
                self._left.add(group)

    async def _keep_copies(self, hidden: list[str], recorded: Mapping[str, Quota]) -> None:
        """Keep the copies of quotas that were taken over equal to the table."""

        async def keep(group: str) -> None:
            await self._pace.take()
            await self._keep_copy(group, recorded[group])

        def is_due(group: str) -> bool:
            row, known = recorded.get(group), self._copied.get(group)
            if row is None or not _is_limited(row):
                return False
            return known is None or known.needs_check(row, self._turns)

        await at_once(_AT_ONCE, keep, [group for group in hidden if is_due(group)])

    async def _keep_copy(self, group: str, row: Quota) -> bool:
        """Whether the cluster has a copy of the table's quota; a failure is reported."""
        kept = await self._done(group, self._quotas.keep_copy(group, row.publish))
        if kept:
            self._copied[group] = _Copy(row.publish, self._turns)
        return kept

    async def hand_back(
        self, first: Collection[str], within_s: float, *, taking_over: bool = True
    ) -> set[str]:
        """Write the table's publish quotas to the cluster wherever it has none.

        Groups that the table does not have get the copy in the cluster. Failures are retried within
        ``within_s``. Returns the groups that would be without any quota: those that failed, and
        those of ``first`` that neither the table nor a copy has. The groups ``first`` are handed
        back first.

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
            given = await self._give_back(group, (progress.recorded or {}).get(group))
            if given is Given.NOWHERE:
                if progress.recorded is None:
                    return  # the table may have it, once it can be read
                progress.without_quota.add(group)
            if given not in (None, Given.NOT_KEPT):
                remaining.discard(group)

        wait_s = _RETRY_AFTER_S
        while True:
            if progress.recorded is None:
                await self._read_table(progress)
            await at_once(_LAST_AT_ONCE, give, sorted(remaining, key=lambda g: g not in first))
            if not remaining:
                return
            await asyncio.sleep(wait_s)
            wait_s = min(2.0 * wait_s, _LONGEST_RETRY_S)

    async def _drop_limited(self, groups: set[str]) -> None:
        """Drop the groups that have a quota in the cluster."""

        async def look(group: str) -> None:
            with contextlib.suppress(ClusterError):
                if not np.isinf(await self._quotas.read(group)).all():
                    groups.discard(group)

        await at_once(_LAST_AT_ONCE, look, list(groups))

    async def _read_table(self, progress: _HandBack) -> None:
        """Read the table; from then on every group that has a publish quota there remains."""
        progress.recorded = await self._recorded()
        if progress.recorded is not None:
            progress.remaining.difference_update(progress.recorded)
            limited = (g for g, row in progress.recorded.items() if np.isfinite(row.publish).any())
            progress.remaining.update(limited)

    async def _give_back(self, group: str, recorded: Quota | None) -> Given | None:
        """Give a group's publish quota back; None: that failed, which is reported."""
        try:
            given = await self._quotas.give_back(group, recorded and recorded.publish)
        except ClusterError as error:
            self._failure_log.note(_PART, group, error)
            return None
        if given is Given.WRITTEN:
            self.handed_back += 1
            self._copied.pop(group, None)
        return given

    async def _read_paced(self, group: str) -> FloatArray | None:
        """Like ``_read_or_report``, within the read budget."""
        await self._pace.take()
        return await self._read_or_report(group)

    async def _read_or_report(self, group: str) -> FloatArray | None:
        """The group's publish quotas (2,); None: they can't be read, which is reported."""
        try:
            rates = await self._quotas.read(group)
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
        return await self._done(group, self._quotas.write(group, rates, which))

    async def _done(self, group: str, request: Awaitable[None]) -> bool:
        """Whether a request about a group succeeded; a failure is reported."""
        try:
            await request
        except ClusterError as error:
            self._failure_log.note(_PART, group, error)
            return False
        self._failure_log.note(_PART, group, None)
        return True


def _is_limited(recorded: Quota | None) -> bool:
    """Whether the table has a publish quota."""
    return recorded is not None and bool(np.isfinite(recorded.publish).any())


def _may_take(rates: FloatArray, recorded: Quota | None, decided_ms: FloatArray) -> bool:
    """Whether the cluster's publish quotas (2,) can be hidden without loss: the table has the same,
    and limits decided (at ``decided_ms`` (2,)) since the table has them are in force.
    """
    limited = np.isfinite(rates)
    if recorded is None or not limited.any():
        return False
    same = to_cluster(recorded.publish) == rates
    return bool((same & (decided_ms > recorded.updated_at_ms))[limited].all())
