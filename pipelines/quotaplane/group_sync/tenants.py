"""Groups that hang on tenants: every namespace of the tenant is attached, now and later.

Stock brokers know attachments of namespaces only, and count the use of what is attached.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from quotaplane.errors import ClusterError
from quotaplane.pulsar_admin.bulk import InTurn, ask_each, read_names
from quotaplane.pulsar_admin.resource_groups import group_of, namespace_path
from quotaplane.pulsar_admin.rest import RefusedError, Rest


class Tenants:
    """Attaches the namespaces of ``tenants`` (tenant: group) that have no group of their own."""

    def __init__(self, tenants: Mapping[str, str], most: int) -> None:
        self._tenants = tenants
        self._policies = InTurn(namespace_path, group_of, most)
        self.waiting: dict[str, str] = {}
        """Why nothing can be attached yet, by tenant."""
        self.failing: list[ClusterError] = []
        """What went wrong the last time, and is tried again."""

    async def attach(self, rest: Rest, groups: Collection[str]) -> None:
        """See which namespaces are there, and attach some; ``groups`` are those of the cluster.

        Raises:
            ClusterError: there was no answer.
        """
        self.waiting, self.failing = {}, []
        group_for: dict[str, str] = {}
        for tenant, group in self._tenants.items():
            where = f"cluster.tenants: {tenant}"
            if group not in groups:
                self.waiting[tenant] = f"{where}: there is no resource group {group!r}, so far"
                continue
            try:
                namespaces = await read_names(rest, namespace_path(tenant))
            except RefusedError as error:
                if error.status == 404:
                    self.waiting[tenant] = f"{where}: there is no such tenant, so far"
                else:
                    self.failing.append(error)
            else:
                group_for |= dict.fromkeys(namespaces, group)
        attached = await self._policies.read(rest, group_for)
        free = [namespace for namespace, group in attached.items() if group is None]
        paths = [Rest.path("namespaces", each, "resourcegroup", group_for[each]) for each in free]
        answers = await ask_each(rest, "POST", paths)
        refused = [answer for answer in answers if isinstance(answer, RefusedError)]
        # A namespace that was deleted in between needs no group any more.
        self.failing += [error for error in refused if error.status != 404]
        self.failing += self._policies.failing.values()
