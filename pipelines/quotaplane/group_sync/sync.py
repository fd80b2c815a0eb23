"""Keeps our table of quotas as a cluster's resource groups are, while the quota job runs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.agents.disappearance import FEW, TIMES, Vanished, some_of
from quotaplane.errors import ClusterError, QuotaplaneError, TableChangedError
from quotaplane.group_sync.changes import absent, created_by, known, rivals, taken, unfit
from quotaplane.group_sync.hidden_quotas import HiddenQuotas
from quotaplane.group_sync.tenants import Tenants
from quotaplane.model import BASIC, FloatArray
from quotaplane.pulsar_admin.bulk import READS_PER_S, InTurn, ask_each, read_names
from quotaplane.pulsar_admin.resource_groups import GROUPS, group_path, has_zero, rates_of
from quotaplane.pulsar_admin.rest import RefusedError, Rest
from quotaplane.registry.table import (
    GroupsRead,
    delete_groups,
    group_changes,
    put_groups,
    read_groups,
)
from quotaplane.settings import Cluster, Settings

Say = Callable[[str], None]

_ATTEMPTS: Final = 10
_REMIND_EVERY_S: Final = 60.0
"""What somebody must do something about is told again so often."""


class _Read(NamedTuple):
    """What the cluster says of a group."""

    rates: list[float]
    has_zero: bool


class GroupSync:
    """What is known of one cluster from one poll to the next.

    ``by`` is who writes into the table: the same name again after a restart. ``say`` is given
    lines that somebody should read.
    """

    def __init__(self, cluster: Cluster, settings: Settings, by: str, say: Say) -> None:
        self._most = max(1, int(READS_PER_S * cluster.poll_interval_s))
        self._history = settings.history
        self._by = by
        self._say = say
        self._rates = InTurn(group_path, _parse, self._most)
        self._silence = HiddenQuotas(settings.history, take_over=settings.enforce.take_over)
        self._tenants = Tenants(cluster.tenants, self._most)
        self._others = pa.array([], pa.string())
        self._vanished = Vanished()
        self._taken: dict[str, str] = {}
        """Groups that are left out as another one has their id, and why."""
        self._doubts: list[str] = []
        self._zeros: set[str] = set()
        self._rivals: set[str] = set()
        self._told: frozenset[str] = frozenset()
        self._polls = 0
        self._remind_every = math.ceil(_REMIND_EVERY_S / cluster.poll_interval_s)

    async def sync(self, rest: Rest) -> list[QuotaplaneError]:
        """Make the table what the cluster says, and attach what is to be attached.

        Returns what could not be done, or not read: it is left as it is, and tried again by the
        next call.

        Raises:
            ClusterError: the cluster does not say what groups there are; nothing was done.
        """
        try:
            listed = await read_names(rest, GROUPS)
        except ClusterError:
            self._vanished.begin_again()
            raise
        problems = unfit(listed)
        fit = [group for group in listed if group not in problems]
        wanted = [group for group in fit if group not in self._taken]
        read = await self._rates.read(rest, wanted)
        self._note(wanted, read)
        failures: list[QuotaplaneError] = [*self._rates.failing.values()]
        self._doubts = []
        try:
            table = self._put(fit, {group: said.rates for group, said in read.items()})
        except QuotaplaneError as error:
            self._rates.again(read)
            failures.append(error)
        else:
            if self._silence.failure is not None:
                self._rates.again(self._silence.unread)
                failures.append(self._silence.failure)
            try:
                gone = self._gone(fit, table)
                failures += await self._delete(rest, gone, table.version)
            except QuotaplaneError as error:
                failures.append(error)
        try:
            await self._tenants.attach(rest, listed)
            failures += self._tenants.failing
        except ClusterError as error:
            failures.append(error)
        problems |= self._taken
        self._tell([*problems.values(), *self._tenants.waiting.values(), *self._odd()])
        return failures

    def _note(self, listed: Sequence[str], read: Mapping[str, _Read]) -> None:
        self._silence.forget_gone(listed)
        self._zeros = self._zeros.intersection(listed).difference(read)
        self._zeros |= {group for group, said in read.items() if said.has_zero}

    def _put(self, listed: Sequence[str], read: Mapping[str, Sequence[float]]) -> GroupsRead:
        """Put what differs from the table; returns the table as it is then."""
        for _ in range(_ATTEMPTS):
            table = read_groups(self._history)
            # One of these would have all of them refused.
            self._taken = taken(listed, table.rows)
            groups = [group for group in read if group not in self._taken]
            rates: FloatArray = np.array([read[group] for group in groups], np.float64)
            rates = rates.reshape(-1, BASIC)
            plan = self._silence.plan(groups, rates, table)
            if plan.groups:
                # A row that somebody deletes or changes meanwhile must not be made of what is
                # left of it here: this is planned anew.
                try:
                    put_groups(
                        self._history,
                        plan.groups,
                        plan.quotas,
                        self._by,
                        at_version=table.version,
                        warn=self._say,
                    )
                except TableChangedError:
                    continue
                self._rivals |= rivals(self._by, plan.groups, table.rows)
                table = read_groups(self._history)
            for line in self._silence.done(groups, plan):
                self._say(line)
            return table
        raise TableChangedError("history table resource_groups: is being changed all the time")

    def _gone(self, listed: Sequence[str], table: GroupsRead) -> set[str]:
        """Groups that we made of the cluster's, and that it does not list any more."""
        # Others' groups are asked about once, until the cluster has them, too.
        has = pc.is_in(self._others, value_set=pa.array(listed, pa.string()))
        self._others = self._others.filter(pc.invert(has))
        missing = absent(listed, table.rows, self._others)
        ours: list[str] = []
        if missing:
            ours = created_by(self._by, missing, table.rows, group_changes(self._history))
            others = pa.array(sorted(set(missing).difference(ours)), pa.string())
            self._others = pa.concat_arrays([self._others, others])
        followed = int(known(listed, table.rows).sum()) + len(ours)
        gone = self._vanished.believed(ours, of=followed)
        if len(gone) < len(ours):
            self._doubts.append(
                f"the cluster lists {followed - len(ours)} of {followed} resource groups; missing: "
                f"{some_of(ours)}; so many at once are deleted from the table only if they are "
                f"missing {TIMES} times in a row"
            )
        return gone

    async def _delete(
        self, rest: Rest, gone: Collection[str], version: int
    ) -> list[QuotaplaneError]:
        """Delete groups that the cluster does not list, if it has none of that name either."""
        asked = sorted(gone)[: self._most]
        answers = await ask_each(rest, "GET", [group_path(group) for group in asked])
        refused = {g: a for g, a in zip(asked, answers, strict=True) if isinstance(a, RefusedError)}
        there = sorted(set(asked).difference(refused))
        if there:
            self._doubts.append(
                f"the cluster does not list the resource groups {some_of(there)}, and yet has "
                "them: they are not deleted from the table"
            )
        sure = [group for group, error in refused.items() if error.status == 404]
        # Who changed the table meanwhile may have put one of them: next time.
        with contextlib.suppress(TableChangedError):
            if sure:
                delete_groups(self._history, sure, self._by, at_version=version)
            if len(sure) > FEW:
                self._say(
                    f"the resource groups {some_of(sure)} are gone from the cluster, and were "
                    "deleted from the table; `quotaplane groups restore --from-history` undoes that"
                )
        return [error for error in refused.values() if error.status != 404]

    def _odd(self) -> list[str]:
        """What the cluster, or somebody, may have said without meaning it."""
        lines = [*self._doubts]
        if self._zeros:
            lines.append(
                f"resource groups {some_of(self._zeros)}: have a quota of 0 in the cluster: "
                "Pulsar's brokers take it for unlimited, and later for 1 a second each; here it "
                "counts as -1; give at least 1, or -1"
            )
        for rival in sorted(self._rivals):
            lines.append(
                f"{rival} writes quotas into this history, too, as {self._by} does: two clusters "
                "would overwrite each other's quotas; give each a history of its own"
            )
        return lines

    def _tell(self, lines: Collection[str]) -> None:
        """Tell what is new; what somebody must do something about again and again."""
        alarms = self._silence.alarms()
        if self._polls % self._remind_every == 0:
            self._told -= set(alarms)
        self._polls += 1
        now = frozenset([*lines, *alarms])
        for line in sorted(now - self._told):
            self._say(line)
        self._told = now


def _parse(answer: Any) -> _Read:
    return _Read(rates_of(answer), has_zero(answer))
