"""Attachments of tenants and namespaces for requests: the cluster's, or else the table's."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.registry.attachments import Kind, attach, check_attachable, list_attachments
from quotaplane.server.cluster_groups import ClusterGroups
from quotaplane.server.refusals import AnswerError
from quotaplane.server.workers import Workers
from quotaplane.settings import History

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
        rows = await self.all()
        mine = pc.and_(pc.equal(rows["kind"], kind), pc.equal(rows["name"], name))
        found = rows.filter(mine)["resource_group"].to_pylist()
        return str(found[0]) if found else None

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
