"""Syncs a cluster's resource groups into the table ``resource_groups``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.deletion_check import FEW, TIMES, DeletionCheck
from quotaplane.agents.known_conditions import (
    LEFT_OUT_GROUPS,
    NO_COPIES,
    NO_ENFORCER,
    OTHER_CLUSTERS,
    UNLISTED_GROUPS,
    VANISHED_GROUPS,
    WAITING_TENANTS,
    ZERO_QUOTAS,
)
from quotaplane.agents.pace import at_once
from quotaplane.errors import ClusterError, QuotaplaneError, TableChangedError
from quotaplane.group_sync.changes import (
    absent,
    changed_between,
    created_by,
    known,
    puts,
    rivals,
    taken,
    unfit,
)
from quotaplane.group_sync.enforcer_watch import EnforcerWatch, give_back
from quotaplane.group_sync.tenants import Tenants
from quotaplane.groups.names import is_copy, original_of
from quotaplane.groups.pulsar_fields import fields_in
from quotaplane.model import BASIC, PUBLISH, FloatArray
from quotaplane.pulsar_admin.bulk import READS_PER_S, InTurn, ask_each, read_names
from quotaplane.pulsar_admin.resource_groups import (
    GROUPS,
    PublishQuotas,
    group_path,
    has_zero,
    rates_of,
)
from quotaplane.pulsar_admin.rest import NotFoundError, RefusedError, Rest
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.current_groups import CurrentGroups, GroupSnapshot
from quotaplane.registry.table import delete_groups, put_groups
from quotaplane.settings import Cluster, PulsarTransport, Settings
from quotaplane.texts import some_of

_ATTEMPTS: Final = 10
_AT_ONCE: Final = 8


class _Read(NamedTuple):
    """A resource group as the cluster has it."""

    rates: list[float]
    """(4,) per second; inf = unlimited."""
    fields: str
    """Its other fields, as ``pulsar_fields.fields_in`` writes them."""
    has_zero: bool
    """Some quota is 0."""


class GroupSync:
    """The sync of one cluster, with what it remembers from one poll to the next.

    Args:
        cluster: the settings of the sync.
        settings: all settings.
        by: writer of the rows, as in the column ``updated_by``; the same after a restart.
        conditions: of the program; prints lines for the administrator.
    """

    def __init__(
        self, cluster: Cluster, settings: Settings, by: str, conditions: Conditions
    ) -> None:
        self._most = max(1, int(READS_PER_S * cluster.poll_interval_s))
        self._history = settings.history
        self._by = by
        self._conditions, self._say = conditions, conditions.say
        self._rates = InTurn(group_path, _parse, self._most)
        self._table = CurrentGroups(settings.history)
        self._hidden: set[str] = set()
        """Groups whose publish quota the table has and the cluster does not, as read last."""
        self._tenants = Tenants(cluster.tenants, self._most)
        self._others = pa.array([], pa.string())
        """Groups of the table that the cluster lacks and that somebody else created."""
        self._deletions = DeletionCheck()
        self._taken: dict[str, str] = {}
        """Groups that are left out because another one has their id, and why."""
        self._zeros: set[str] = set()
        """Groups with a quota of 0."""
        self._watch = EnforcerWatch(_leader_topic(settings), settings.enforce.give_back_after_s)

    async def sync(self, rest: Rest) -> list[QuotaplaneError]:
        """Write changed groups into the table, and attach namespaces of ``cluster.tenants``.

        Returns the failures; what failed stays as it is and is retried by the next call.

        Raises:
            ClusterError: the groups can't be listed; nothing was done.
        """
        try:
            names = await read_names(rest, GROUPS)
        except ClusterError:
            self._deletions.begin_again()
            raise
        listed = [name for name in names if not is_copy(name)]
        failures: list[QuotaplaneError] = []
        before: GroupSnapshot | None = None
        try:
            # Before anything is read in the cluster, see ``_put``.
            before = await asyncio.to_thread(self._table.read)
        except QuotaplaneError as error:
            failures.append(error)
        problems = unfit(listed)
        fit = [group for group in listed if group not in problems]
        wanted = [group for group in fit if group not in self._taken]
        read = await self._rates.read(rest, wanted)
        self._note(wanted, read)
        failures += self._rates.failing.values()
        hidden = set(self._hidden)
        table: GroupSnapshot | None = None
        try:
            if before is not None:
                copies = await self._copies(rest, read, before)
                table = self._put(fit, read, before, copies)
        except QuotaplaneError as error:
            failures.append(error)
        if table is None:
            self._rates.again(read)
        else:
            try:
                gone = self._gone(fit, table)
                failures += await self._delete(rest, gone, table.version)
                await self._drop_copies(rest, names, table)
            except QuotaplaneError as error:
                failures.append(error)
        try:
            failures += await self._give_back_if_gone(rest, table)
        except ClusterError as error:
            failures.append(error)
        try:
            await self._tenants.attach(rest, listed)
            failures += self._tenants.failing
            self._conditions.set_each(WAITING_TENANTS, self._tenants.waiting)
        except ClusterError as error:
            failures.append(error)
        taken_over = {original_of(name) for name in names if is_copy(name)}
        # The names of copies were read between the two.
        self._conditions.set(NO_COPIES, hidden & self._hidden - self._zeros - taken_over)
        self._conditions.set_each(LEFT_OUT_GROUPS, problems | self._taken)
        return failures

    def _note(self, listed: Sequence[str], read: Mapping[str, _Read]) -> None:
        self._hidden.intersection_update(listed)
        self._zeros = self._zeros.intersection(listed).difference(read)
        self._zeros |= {name for name, group in read.items() if group.has_zero}
        self._conditions.set(ZERO_QUOTAS, self._zeros)

    async def _copies(
        self,
        rest: Rest,
        read: Mapping[str, _Read],
        table: GroupSnapshot,
    ) -> dict[str, FloatArray]:
        """Copies of quotas, of groups that are new to the table and lack a number in the cluster.

        They are read after the groups: a copy is there before its quota is hidden.

        Raises:
            ClusterError: one of them can't be read.
        """
        hidden = [name for name, group in read.items() if np.isinf(group.rates[PUBLISH]).any()]
        quotas = PublishQuotas(rest)
        found = {}

        async def look(group: str) -> None:
            found[group] = await quotas.read_copy(group)

        new = np.array(hidden, object)[~known(hidden, table.rows)].tolist()
        await at_once(_AT_ONCE, look, new)
        return found

    def _put(
        self,
        listed: Sequence[str],
        read: Mapping[str, _Read],
        before: GroupSnapshot,
        copies: Mapping[str, FloatArray],
    ) -> GroupSnapshot:
        """Write the groups that differ from the table; returns the new table.

        A group that somebody changed in the table since ``before`` is left to the next poll: the
        change may belong to one in the cluster that came after we read the group there.
        """
        for _ in range(_ATTEMPTS):
            table = self._table.read()
            touched = changed_between(before.rows, table.rows).intersection(read)
            self._rates.again(touched)
            # ``put_groups`` refuses all groups if one of them has the id of another.
            self._taken = taken(listed, table.rows)
            groups = [g for g in read if g not in self._taken and g not in touched]
            rates: FloatArray = np.array([read[group].rates for group in groups], np.float64)
            rates = rates.reshape(-1, BASIC)
            fields = {group: read[group].fields for group in groups}
            plan = puts(groups, rates, fields, table.rows, copies)
            if plan.groups:
                # If somebody changed the table meanwhile, plan again: the old plan could bring
                # back a row that was just deleted or changed.
                try:
                    put_groups(
                        self._history,
                        plan.groups,
                        plan.quotas,
                        self._by,
                        policy=pa.table({"pulsar_fields": pa.array(plan.fields, pa.string())}),
                        at_version=table.version,
                        warn=self._say,
                    )
                except TableChangedError:
                    continue
                for rival in rivals(self._by, plan.groups, table.rows):
                    self._conditions.note(OTHER_CLUSTERS, rival, _TWO_CLUSTERS)
                table = self._table.read()
            self._hidden = self._hidden.difference(groups).union(plan.hidden)
            if plan.revived:
                self._say(
                    f"resource groups {some_of(plan.revived)}: new to the table, and without a "
                    "publish quota in the cluster (-1): they got those of their copies there "
                    "(GROUP.taken-over); restore their policies and other quotas by `quotaplane "
                    "groups restore --from-history GROUP`"
                )
            return table
        raise TableChangedError(
            f"history table resource_groups: another writer changed it during {_ATTEMPTS} attempts "
            "to write"
        )

    def _gone(self, listed: Sequence[str], table: GroupSnapshot) -> set[str]:
        """Groups of the table that the sync created and that the cluster does not list any more."""
        # The creator of another writer's group is looked up once, until the cluster has the group.
        in_cluster = pc.is_in(self._others, value_set=pa.array(listed, pa.string()))
        self._others = self._others.filter(pc.invert(in_cluster))
        missing = absent(listed, table.rows, self._others)
        ours: list[str] = []
        if missing:
            ours = created_by(self._by, missing, table.rows, group_changes(self._history))
            others = pa.array(sorted(set(missing).difference(ours)), pa.string())
            self._others = pa.concat_arrays([self._others, others])
        followed = int(known(listed, table.rows).sum()) + len(ours)
        gone = self._deletions.confirmed(ours, of=followed)
        self._conditions.set(
            VANISHED_GROUPS,
            ours if len(gone) < len(ours) else [],
            f"the cluster lists {followed - len(ours)} of {followed} resource groups; missing: "
            f"{some_of(ours)}; that many at once are deleted from the table only if they are "
            f"missing {TIMES} times in a row",
        )
        return gone

    async def _delete(
        self, rest: Rest, gone: Collection[str], version: int
    ) -> list[QuotaplaneError]:
        """Delete groups that the cluster does not list, after reading each of them once more."""
        names = sorted(gone)[: self._most]
        answers = await ask_each(rest, "GET", [group_path(group) for group in names])
        refused = {g: a for g, a in zip(names, answers, strict=True) if isinstance(a, RefusedError)}
        existing = sorted(set(names).difference(refused))
        self._conditions.set(UNLISTED_GROUPS, existing)
        deleted = [group for group, error in refused.items() if isinstance(error, NotFoundError)]
        for group in deleted:
            await PublishQuotas(rest).drop_copy(group)
        # Another writer may have put one of them meanwhile: the next poll decides again.
        with contextlib.suppress(TableChangedError):
            if deleted:
                delete_groups(self._history, deleted, self._by, at_version=version)
            if len(deleted) > FEW:
                self._say(
                    f"the resource groups {some_of(deleted)} are gone from the cluster, and were "
                    "deleted from the table; `quotaplane groups restore --from-history` undoes that"
                )
        return [error for error in refused.values() if not isinstance(error, NotFoundError)]

    async def _drop_copies(self, rest: Rest, names: Collection[str], table: GroupSnapshot) -> None:
        """Delete copies of quotas whose groups neither the cluster nor the table has any more.

        Raises:
            ClusterError: the cluster does not answer.
        """
        lost = sorted({original_of(name) for name in names if is_copy(name)}.difference(names))
        lost = np.array(lost, object)[~known(lost, table.rows)].tolist()[: self._most]
        answers = await ask_each(rest, "GET", [group_path(group) for group in lost])
        for group, answer in zip(lost, answers, strict=True):
            if isinstance(answer, NotFoundError):
                await PublishQuotas(rest).drop_copy(group)

    async def _give_back_if_gone(
        self, rest: Rest, table: GroupSnapshot | None
    ) -> list[QuotaplaneError]:
        """Give the cluster its quotas back if no enforcer leads any more, some per call.

        Raises:
            ClusterError: whether one leads can't be found out.
        """
        gone = await self._watch.gone(rest)
        self._conditions.set(NO_ENFORCER, [""] if gone and self._hidden else [])
        if not gone or table is None:
            return []
        names = sorted(self._hidden)[: self._most]
        self._rates.again(names)
        return await give_back(rest, names, table.rows)


_TWO_CLUSTERS: Final = (
    "quotas are written into this history from there, too: two clusters would overwrite each "
    "other's quotas; give each a history of its own"
)


def _leader_topic(settings: Settings) -> str:
    """The topic by which enforcers are elected."""
    transport, topic = settings.transport, settings.enforce.leader_topic
    return transport.full_name(topic) if isinstance(transport, PulsarTransport) else topic


def _parse(answer: Any) -> _Read:
    return _Read(rates_of(answer), fields_in(answer), has_zero(answer))
