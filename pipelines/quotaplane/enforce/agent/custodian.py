"""Does what ``enforce.custody.act`` says: hides groups' publish quotas in the cluster, gives back.

The stock calculator throttles every group that has a quota in the cluster, in addition to our
rates, and starves idle brokers. In doubt a quota stays; so does a rate of ours that would be the
last limit of a group.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import TAKE_OVER
from quotaplane.agents.pace import Pace, at_once
from quotaplane.enforce.agent.quota_table import QuotaTable
from quotaplane.enforce.custody import (
    NEVER,
    NONE,
    Give,
    Hide,
    KeepCopy,
    Recorded,
    Seen,
    Wish,
    act,
    cluster_limits,
)
from quotaplane.enforce.quota_caps import TableQuotas
from quotaplane.errors import ClusterError
from quotaplane.model import PUBLISH, FloatArray
from quotaplane.pulsar_admin.resource_groups import PublishQuotas, to_cluster
from quotaplane.pulsar_admin.rest import Rest

_AT_ONCE: Final = 4
_LAST_AT_ONCE: Final = 16
_COPY_CHECK_TURNS: Final = 300
"""Calls of ``tend`` after which a copy in the cluster is read again: ten minutes."""
_RETRY_AFTER_S: Final = 0.25
_LONGEST_RETRY_S: Final = 2.0


async def bring(
    quotas: PublishQuotas,
    group: str,
    row: Recorded | None,
    wish: Wish,
    decided_ms: FloatArray = NEVER,
) -> tuple[Seen, Seen]:
    """Act for a group, and read back what the cluster has, until nothing is left to be done.

    Returns what the cluster had before and has then.

    Raises:
        ClusterError: the cluster refuses, does not answer, or does not keep what it accepts.
    """
    copy = await quotas.read_copy(group)
    before = seen = Seen(await quotas.read(group), copy)
    done: set[type] = set()
    failed: ClusterError | None = None
    while (step := act(seen, row, wish, decided_ms)) is not None:
        if failed is not None or type(step) in done:
            raise failed or ClusterError(
                f"resource group {group!r}: the cluster accepted other publish quotas and does not "
                f"have them: {seen.quota.tolist()}, its copy {seen.copy.tolist()}"
            )
        done.add(type(step))
        try:
            if isinstance(step, KeepCopy):
                await quotas.write_copy(group, step.quota)
            elif isinstance(step, Hide):
                await quotas.write(group, np.full_like(seen.quota, np.inf), step.which)
            elif isinstance(step, Give):
                await quotas.write(group, step.quota, step.which)
            else:
                await quotas.drop_copy(group)
                return before, Seen(seen.quota, NONE)
        except ClusterError as error:
            failed = error  # Only its answer may be lost: what the cluster has then counts.
        if isinstance(step, KeepCopy):
            copy = await quotas.read_copy(group)
        seen = Seen(await quotas.read(group), copy)
    return before, seen


class _Copy(NamedTuple):
    """The copy that a group had when it was read last."""

    quota: FloatArray
    turn: int


class Custodian:
    """Brings the groups of one cluster to where they shall be, ``most`` of them per call, in turn.

    Args:
        rest: client of the cluster's REST API.
        table: the quotas of the table.
        pace: budget of requests that read.
        conditions: of groups that can't be read or written.
        most: groups per call of ``tend``.
    """

    def __init__(
        self, rest: Rest, table: QuotaTable, pace: Pace, conditions: Conditions, most: int
    ) -> None:
        self._quotas, self._table = PublishQuotas(rest), table
        self._pace, self._conditions, self._most = pace, conditions, most
        self._turns = 0
        self._last_turn: dict[str, int] = {}
        """By group: in which call it was looked at last; -1 = never."""
        self._copies: dict[str, _Copy] = {}
        self.hidden: set[str] = set()
        """Groups whose publish quota the cluster does not have, as of the last look."""
        self.limited: set[str] = set()
        """Groups that the cluster limits, see ``cluster_limits``, as of the last look."""
        self.stuck: set[str] = set()
        """Groups that it should limit and does not, as of the last look."""
        self.taken = 0
        """Quotas taken over since the start."""
        self.given_back = 0
        """Quotas given back since the start."""

    def forget(self) -> None:
        """Look at everything again: another enforcer may have changed it."""
        self._last_turn, self._copies = {}, {}
        self.hidden, self.limited, self.stuck = set(), set(), set()

    async def tend(
        self, groups: Sequence[str], give: Collection[str], in_force: Mapping[str, FloatArray]
    ) -> None:
        """Look at the next groups, and act for them.

        The cluster gets the quotas of the groups in ``give``; those of the others are hidden once
        their limits are in force (decision times, see ``GroupsInForce.since_ms``).
        """
        due = self._next(groups)
        read: dict[str, FloatArray] = {}

        async def look(group: str) -> None:
            await self._pace.take()
            try:
                read[group] = await self._quotas.read(group)
            except ClusterError as error:
                self._conditions.note(TAKE_OVER, group, error)

        await at_once(_AT_ONCE, look, due)
        if not read:
            return
        # After the cluster: a quota that was changed meanwhile is not the table's.
        table = await self._table.look_anew()

        async def tend(group: str) -> None:
            row, wish = _row(table, group), Wish.GIVE if group in give else Wish.TAKE
            decided_ms = in_force.get(group, NEVER)
            seen = Seen(read[group], self._copy(group))
            after: Seen | None = seen
            if act(seen, row, wish, decided_ms) is not None:
                await self._pace.take()
                after = await self._bring(group, row, wish, decided_ms)
            if after is not None:
                self._conditions.note(TAKE_OVER, group, None)
            self._note(group, row, wish, after)

        await at_once(_AT_ONCE, tend, read)

    def _next(self, groups: Sequence[str]) -> list[str]:
        """The groups that are due; what is known of others is forgotten."""
        watched = set(groups)
        self._conditions.retain(TAKE_OVER, watched.__contains__)
        self._last_turn = {group: self._last_turn.get(group, -1) for group in groups}
        self._copies = {group: copy for group, copy in self._copies.items() if group in watched}
        for names in (self.hidden, self.limited, self.stuck):
            names.intersection_update(watched)
        due = heapq.nsmallest(self._most, self._last_turn, key=self._last_turn.__getitem__)
        self._turns += 1
        self._last_turn |= dict.fromkeys(due, self._turns)
        return due

    def _copy(self, group: str) -> FloatArray:
        """The group's copy; NaN: there is none, or it is to be read."""
        copy = self._copies.get(group)
        known = copy is not None and self._turns - copy.turn < _COPY_CHECK_TURNS
        return copy.quota if copy is not None and known else NONE

    def _note(self, group: str, row: Recorded | None, wish: Wish, seen: Seen | None) -> None:
        limited = seen is not None and cluster_limits(seen, row)
        hidden = row is not None and bool(np.isfinite(row.publish).any())
        for names, belongs in (
            (self.hidden, hidden and seen is not None and np.isinf(seen.quota).all()),
            (self.limited, limited),
            (self.stuck, wish is Wish.GIVE and not limited),
        ):
            names.add(group) if belongs else names.discard(group)

    async def _bring(
        self, group: str, row: Recorded | None, wish: Wish, decided_ms: FloatArray = NEVER
    ) -> Seen | None:
        """``bring`` a group; what is there then, None: that failed, which is reported."""
        # A request whose answer is lost may have an effect.
        self.limited.discard(group)
        try:
            before, after = await bring(self._quotas, group, row, wish, decided_ms)
        except ClusterError as error:
            self._conditions.note(TAKE_OVER, group, error)
            return None
        self._conditions.note(TAKE_OVER, group, None)
        self._copies[group] = _Copy(after.copy, self._turns)
        self.taken += bool((np.isfinite(before.quota) & np.isinf(after.quota)).any())
        self.given_back += bool((np.isinf(before.quota) & np.isfinite(after.quota)).any())
        return after

    async def give_all_back(self, first: Collection[str], within_s: float) -> set[str]:
        """Give all quotas back: of the groups ``first``, then of the table and of copies.

        Failures are repeated within the time. Returns the groups that the cluster does not limit:
        those that failed, and those of which neither the table nor a copy has the quota.
        """
        remaining, unknown = set(first), set[str]()
        table: TableQuotas | None = None

        async def give(group: str) -> None:
            row = _row(table, group)
            seen = await self._bring(group, row, Wish.GIVE)
            if seen is not None and cluster_limits(seen, row):
                remaining.discard(group)
            elif seen is not None and table is not None:  # no other read will know more
                remaining.discard(group)
                unknown.add(group)

        async def give_all() -> None:
            nonlocal table
            wait_s = _RETRY_AFTER_S
            while True:
                if table is None:
                    table = await self._table.look_anew()
                    remaining.update(await self._with_quotas(table))
                order = sorted(remaining, key=lambda group: group not in first)
                await at_once(_LAST_AT_ONCE, give, order)
                if not remaining:
                    return
                await asyncio.sleep(wait_s)
                wait_s = min(2.0 * wait_s, _LONGEST_RETRY_S)

        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(give_all(), within_s)
        return remaining | unknown

    async def _with_quotas(self, table: TableQuotas | None) -> set[str]:
        """The groups with a publish quota in the table, or with a copy in the cluster."""
        found = set()
        if table is not None:
            least = table.quota[:, PUBLISH].min(axis=1, initial=np.inf).tolist()
            found = {group for group, at in table.place.items() if np.isfinite(least[at])}
        with contextlib.suppress(ClusterError):
            found |= await self._quotas.copied()
        return found


def _row(table: TableQuotas | None, group: str) -> Recorded | None:
    """The group's row; None: the table has none, or can't be read."""
    at = None if table is None else table.place.get(group)
    if table is None or at is None:
        return None
    return Recorded(to_cluster(table.quota[at, PUBLISH]), float(table.updated_at_ms[at]))
