"""Attaches every namespace of a tenant to the tenant's group, including namespaces created later.

Pulsar can attach only namespaces to a group, and brokers count usage only of attached namespaces.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from quotaplane.errors import ClusterError
from quotaplane.pulsar_admin.bulk import InTurn, ask_each, read_names
from quotaplane.pulsar_admin.resource_groups import group_of, namespace_path
from quotaplane.pulsar_admin.rest import NotFoundError, RefusedError, Rest


class Tenants:
    """Attaches the namespaces of ``tenants`` (tenant: group) that have no group of their own."""

    def __init__(self, tenants: Mapping[str, str], most: int) -> None:
        self._tenants = tenants
        self._policies = InTurn(namespace_path, group_of, most)
        self.waiting: dict[str, str] = {}
        """Tenants whose namespaces can't be attached yet, and why."""
        self.failing: list[ClusterError] = []
        """Failures of the last call, which the next call retries."""

    async def attach(self, rest: Rest, groups: Collection[str]) -> None:
        """Attach namespaces without a group, some per call; ``groups`` are those of the cluster.

        Raises:
            ClusterError: the cluster does not answer.
        """
        self.waiting, self.failing = {}, []
        group_for: dict[str, str] = {}
        for tenant, group in self._tenants.items():
            where = f"cluster.tenants: {tenant}"
            if group not in groups:
                self.waiting[tenant] = f"{where}: there is no resource group {group!r} yet"
                continue
            try:
                namespaces = await read_names(rest, namespace_path(tenant))
            except NotFoundError:
                self.waiting[tenant] = f"{where}: there is no such tenant yet"
            except RefusedError as error:
                self.failing.append(error)
            else:
                group_for |= dict.fromkeys(namespaces, group)
        attached = await self._policies.read(rest, group_for)
        unattached = [namespace for namespace, group in attached.items() if group is None]
        paths = [
            Rest.path("namespaces", name, "resourcegroup", group_for[name]) for name in unattached
        ]
        answers = await ask_each(rest, "POST", paths)
        refused = [answer for answer in answers if isinstance(answer, RefusedError)]
        # That a namespace was deleted meanwhile is no failure.
        self.failing += [error for error in refused if not isinstance(error, NotFoundError)]
        self.failing += self._policies.failing.values()
