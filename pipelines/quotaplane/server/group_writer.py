"""Changes of groups for requests: in the table, and where a cluster has the group, there first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.errors import UnknownGroupError
from quotaplane.history.store import require_history
from quotaplane.model import BASIC, RATE_COLUMNS, FloatArray
from quotaplane.registry.attachments import delete_unattached
from quotaplane.registry.group_input import GivenGroup, given_groups
from quotaplane.registry.table import GroupsPut, change_groups
from quotaplane.server.cluster_groups import ClusterGroups, rates_to_set
from quotaplane.server.fresh_groups import FreshGroups
from quotaplane.server.refusals import AnswerError
from quotaplane.server.workers import Workers
from quotaplane.settings import Settings


class ChangeRequest(NamedTuple):
    """Who changes something, and under which condition."""

    by: str
    why: str | None
    check: Callable[[pa.Table], None] | None = None
    """Is given all rows before the change, and raises unless the group is what somebody has read
    of it; None: whatever it is."""
    dry_run: bool = False


class GroupWriter:
    """Makes the changes of groups of one server."""

    def __init__(
        self,
        settings: Settings,
        workers: Workers,
        groups: FreshGroups,
        cluster: ClusterGroups | None,
    ) -> None:
        self._history = settings.history
        self._take_over = settings.enforce.take_over
        self._workers, self._groups, self._cluster = workers, groups, cluster
        self._one_by_one = asyncio.Lock()

    async def put(
        self, group: str, given: GivenGroup, request: ChangeRequest, *, in_cluster: bool = False
    ) -> tuple[GroupsPut, list[str]]:
        """Create or change a group; returns the change and warnings.

        ``in_cluster``: a group that the cluster lacks is created there, too.

        Raises:
            QuotaplaneError: nothing was done, or only the cluster has the new rates; the quota job
                then copies them.
            AnswerError: not in time.
        """
        if self._cluster is None:
            return await self._put(group, given, request)
        async with self._one_by_one:
            # All checks before anything is changed anywhere.
            planned = await self._put(group, given, request._replace(dry_run=True))
            wanted = np.array(given.quotas[:BASIC])
            cluster = await self._cluster.rates(group)
            if cluster is None and not in_cluster:
                return await self._put(group, given, request)
            table = _stock_rates(planned[0].before)
            if request.check is not None:
                self._check_same(group, table, cluster, exists=_exists(planned[0].before))
            rates = rates_to_set(wanted, table, cluster, take_over=self._take_over)
            if request.dry_run:
                return planned
            await self._cluster.put(group, rates)
            # The sync may have copied the new rates meanwhile: that is no other's change.
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
                change.names,
                change.quotas,
                request.by,
                policy=change.policy,
                timeframe_s=change.timeframe_s,
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
            cluster = await self._cluster.rates(group)
            if request.check is not None:
                self._check_same(group, _stock_rates(before), cluster, exists=True)
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
        """Refuse if the cluster's group is not the table's: another program changed it.

        Raises:
            AnswerError: it is not.
        """
        if cluster is None:
            return
        table = np.maximum(table, 1.0)  # the least that a cluster can have
        same = exists and not rates_to_set(table, table, cluster, take_over=self._take_over)
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


def _exists(before: pa.Table) -> bool:
    """Whether there was a group before the change."""
    return bool(pc.all(before["group"].is_valid(), min_count=0).as_py())


def _stock_rates(before: pa.Table) -> FloatArray:
    """The first four quotas (4,) of the row before a change; inf for unlimited or no group."""
    if not _exists(before):
        return np.full(BASIC, np.inf)
    row = before.to_pylist()[0]
    return np.array([np.inf if row[c] is None else row[c] for c in RATE_COLUMNS[:BASIC]])
