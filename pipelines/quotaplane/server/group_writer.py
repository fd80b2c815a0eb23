"""Changes groups for requests: in the table; a group that a cluster has, in the cluster first.

Attachments are the cluster's, or else the table's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.errors import TableChangedError, UnknownGroupError
from quotaplane.groups.attachments import Kind, check_attachable
from quotaplane.groups.policy_options import BY_COLUMN
from quotaplane.groups.pulsar_fields import fields_to_set, read_fields
from quotaplane.history.store import require_history
from quotaplane.model import BASIC, RATE_COLUMNS, FloatArray
from quotaplane.registry.attachments import (
    attach,
    delete_unattached,
    group_of,
    list_attachments,
)
from quotaplane.registry.group_input import GivenGroup, given_groups
from quotaplane.registry.table import GroupsPut, change_groups
from quotaplane.server.cluster_groups import ClusterGroups, rates_to_set
from quotaplane.server.fresh_picture import FreshGroups
from quotaplane.server.refusals import AnswerError
from quotaplane.server.workers import Workers
from quotaplane.settings import History, Settings


class ChangeRequest(NamedTuple):
    """The author, reason and condition of a change."""

    by: str
    why: str | None
    check: Callable[[pa.Table], None] | None = None
    """Takes all rows before the change and raises if the group is not in the state that the caller
    read; None: the group may be in any state."""
    dry_run: bool = False


class GroupWriter:
    """Creates, changes and deletes groups for one server."""

    def __init__(
        self,
        settings: Settings,
        workers: Workers,
        groups: FreshGroups,
        cluster: ClusterGroups | None,
    ) -> None:
        self._history = settings.history
        self._workers, self._groups, self._cluster = workers, groups, cluster
        self._one_by_one = asyncio.Lock()

    async def put(
        self,
        group: str,
        given: GivenGroup,
        request: ChangeRequest,
        *,
        in_cluster: bool = False,
        fields: Mapping[str, Any] = MappingProxyType({}),
    ) -> tuple[GroupsPut, list[str]]:
        """Create or change a group; returns the change and warnings.

        Args:
            group: its name.
            given: its quotas and policy.
            request: author, reason and condition.
            in_cluster: create a group that the cluster lacks there, too.
            fields: of Pulsar besides the rates; other fields of the group stay.

        Raises:
            QuotaplaneError: nothing was done, or only the cluster has the new rates; the quota job
                then copies them.
            AnswerError: not in time.
        """
        if self._cluster is None:
            if fields:
                before = _fields((await self._groups.get()).rows, group)
                given = _with_fields(given, before, fields)
                request = request._replace(check=_unchanged(request.check, group, before))
            return await self._put(group, given, request)
        async with self._one_by_one:
            # All checks come before the first change.
            planned = await self._put(group, given, request._replace(dry_run=True))
            wanted = np.array(given.quotas[:BASIC])
            cluster = await self._cluster.read(group)
            if cluster is None and not in_cluster:
                return await self._put(group, given, request)
            table = _stock_rates(planned[0].before)
            rates, has = (None, {}) if cluster is None else cluster
            if request.check is not None:
                self._check_same(group, table, rates, exists=_exists(planned[0].before))
            before = _fields(planned[0].before, group) if cluster is None else has
            given = _with_fields(given, before, fields)
            change: dict[str, Any] = {
                **rates_to_set(wanted, table, rates),
                **fields_to_set(read_fields(given.policy["pulsar_fields"]), has),
            }
            if request.dry_run:
                return planned
            await self._cluster.put(group, change)
            # The sync may have copied the new rates meanwhile, which is not another change.
            return await self._put(group, given, request._replace(check=None))

    async def _put(
        self, group: str, given: GivenGroup, request: ChangeRequest
    ) -> tuple[GroupsPut, list[str]]:
        warnings: list[str] = []
        change = given_groups([group], [given])

        def put() -> GroupsPut:
            warnings.clear()
            return change_groups(
                self._history,
                change,
                request.by,
                why=request.why,
                check=request.check,
                dry_run=request.dry_run,
                ready=require_history,
                warn=warnings.append,
            )

        done = await (self._workers.read if request.dry_run else self._workers.write)(put)
        self._groups.expire()
        return done, warnings

    async def delete(self, group: str, request: ChangeRequest) -> pa.Table:
        """Delete a group; returns its row as it was.

        Raises:
            UnknownGroupError: there is no such group.
            GroupInUseError: something is attached to it.
            QuotaplaneError, AnswerError: as ``put``.
        """
        if self._cluster is None:
            return await self._delete(group, request)
        async with self._one_by_one:
            before = await self._delete(group, request._replace(dry_run=True))
            cluster = await self._cluster.read(group)
            if request.check is not None and cluster is not None:
                self._check_same(group, _stock_rates(before), cluster.rates, exists=True)
            if request.dry_run:
                return before
            if cluster is not None:
                await self._cluster.delete(group)
            try:
                return await self._delete(group, request._replace(check=None))
            except UnknownGroupError:  # the sync was faster
                return before

    def _check_same(
        self, group: str, table: FloatArray, cluster: FloatArray | None, *, exists: bool
    ) -> None:
        """Check that the cluster's group is the table's: no other program changed it.

        Raises:
            AnswerError: they differ.
        """
        if cluster is None:
            return
        table = np.maximum(table, 1.0)  # the least that a cluster can have
        same = exists and not rates_to_set(table, table, cluster)
        if not same:
            raise AnswerError(
                412,
                f"group {group!r} was changed in the Pulsar cluster, and the quota job has not "
                "copied that yet: read the group again in some seconds",
            )

    async def _delete(self, group: str, request: ChangeRequest) -> pa.Table:
        def delete() -> pa.Table:
            return delete_unattached(
                self._history,
                [group],
                request.by,
                why=request.why,
                check=request.check,
                dry_run=request.dry_run,
            )

        rows = await (self._workers.read if request.dry_run else self._workers.write)(delete)
        self._groups.expire()
        return rows


def _fields(rows: pa.Table, group: str) -> dict[str, Any]:
    """Pulsar's other fields of a group; empty if it is not among the rows."""
    place = pc.index(rows["group"], group).as_py()
    return {} if place < 0 else read_fields(rows["pulsar_fields"][place].as_py())


def _with_fields(
    given: GivenGroup, before: Mapping[str, Any], fields: Mapping[str, Any]
) -> GivenGroup:
    """The given group, with the fields before the change and the new ones."""
    if not fields and "pulsar_fields" in given.policy:
        return given
    text = BY_COLUMN["pulsar_fields"].parse({**before, **fields}, "body")
    return given._replace(policy={**given.policy, "pulsar_fields": text})


def _unchanged(
    check: Callable[[pa.Table], None] | None, group: str, before: Mapping[str, Any]
) -> Callable[[pa.Table], None]:
    """A check that calls ``check`` and raises if the group's fields are no longer those before."""

    def both(rows: pa.Table) -> None:
        if check is not None:
            check(rows)
        if _fields(rows, group) != before:
            raise TableChangedError(
                f"group {group!r} was changed at the same time; make the request again"
            )

    return both


def _exists(before: pa.Table) -> bool:
    """Whether there was a group before the change."""
    return bool(pc.all(before["group"].is_valid(), min_count=0).as_py())


def _stock_rates(before: pa.Table) -> FloatArray:
    """The first four quotas (4,) of the row before a change; inf for unlimited or no group."""
    if not _exists(before):
        return np.full(BASIC, np.inf)
    row = before.to_pylist()[0]
    return np.array([np.inf if row[c] is None else row[c] for c in RATE_COLUMNS[:BASIC]])


_KEPT_THERE = (
    "this Pulsar cluster keeps its attachments: pulsar-admin namespaces get-resource-group"
)


class AttachmentWriter:
    """Reads and changes the attachments of one server."""

    def __init__(
        self, history: History, workers: Workers, cluster: ClusterGroups | None, conf: str
    ) -> None:
        self._history, self._workers, self._cluster = history, workers, cluster
        self._conf = conf

    async def all(self) -> pa.Table:
        """All attachments, with the columns of the table.

        Raises:
            AnswerError: a cluster keeps them.
        """
        if self._cluster is not None:
            raise AnswerError(409, _KEPT_THERE)
        return await self._workers.read(lambda: list_attachments(self._history))

    async def group_of(self, kind: Kind, name: str) -> str | None:
        """The group that this is attached to itself, None for none.

        Raises:
            InputError: the name can't be one.
            ClusterError: the cluster does not answer or refuses.
        """
        check_attachable(kind, name)
        if self._cluster is not None:
            if kind == "tenant":
                return self._cluster.tenants.get(name)
            return await self._cluster.group_of(name)
        return group_of(await self.all(), kind, name)

    async def attach(
        self, kind: Kind, name: str, group: str | None, by: str, why: str | None
    ) -> None:
        """Attach this to a group, in place of another one; None detaches it.

        Raises:
            InputError: the name can't be one.
            UnknownGroupError: there is no such group.
            AnswerError: the settings decide, or it took too long.
            ClusterError: the cluster does not answer or refuses.
        """
        check_attachable(kind, name)
        if self._cluster is None:
            await self._workers.write(lambda: attach(self._history, kind, name, group, by, why=why))
        elif kind == "tenant":
            raise AnswerError(
                409,
                "tenants of a Pulsar cluster are attached in the settings: cluster.tenants in "
                f"{self._conf}",
            )
        else:
            await self._cluster.attach(name, group)
