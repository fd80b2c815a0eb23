"""Changes of groups and attachments in the Pulsar cluster that the quota job copies groups from.

The cluster decides the four stock rates of its groups (docs/operate/pulsar-groups.md). A change of
them is made there first, and then in the table, which keeps its author and reason. Rates that the
sync read from the cluster before the change do not overwrite the table (``group_sync``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from quotaplane.enforce.custody import NONE, quota
from quotaplane.errors import InputError
from quotaplane.groups.pulsar_fields import RATE_KEYS, UNLIMITED, fields_in, read_fields
from quotaplane.model import BASIC, PUBLISH, RATE_COLUMNS, FloatArray
from quotaplane.pulsar_admin.resource_groups import (
    group_of,
    group_path,
    namespace_path,
    rates_of,
    to_cluster,
)
from quotaplane.pulsar_admin.rest import NotFoundError, Rest


def rates_to_set(
    wanted: FloatArray, table: FloatArray, cluster: FloatArray | None
) -> dict[str, int]:
    """The rates to set in the cluster, by Pulsar's names, so that it has what is wanted.

    To want just what a hidden publish quota means (``custody.quota``) changes nothing.

    Args:
        wanted: (4,) per second; NaN keeps what there is, inf is unlimited.
        table: (4,) what the table has; inf is unlimited.
        cluster: (4,) what the cluster has; None: it does not have the group.

    Raises:
        InputError: a rate of 0, which brokers take for unlimited.

    >>> table, cluster = np.array([100.0, np.inf, 5.0, np.inf]), np.full(4, np.inf)
    >>> rates_to_set(np.array([100.0, np.nan, 7.5, np.inf]), table, cluster)
    {'dispatchRateInMsgs': 8}
    """
    zero = np.flatnonzero(wanted == 0)
    if len(zero):
        raise InputError(
            f"{RATE_COLUMNS[zero[0]]}: Pulsar's brokers take 0 for unlimited; give at least 1"
        )
    creates = cluster is None
    if cluster is None:
        wanted = np.where(np.isnan(wanted), table, wanted)
        cluster = np.full(BASIC, np.inf)
    whole = to_cluster(wanted.reshape(2, 2)).reshape(BASIC)
    same = np.isnan(wanted) | (whole == cluster)
    same[PUBLISH] |= wanted[PUBLISH] == quota(cluster[PUBLISH], table[PUBLISH], NONE)
    return {
        key: UNLIMITED if np.isinf(whole[place]) else int(whole[place])
        for place, key in enumerate(RATE_KEYS)
        if creates or not same[place]
    }


class ClusterGroup(NamedTuple):
    """A group as the cluster has it."""

    rates: FloatArray
    """(4,) per second; inf = unlimited."""
    fields: dict[str, Any]
    """Others (``pulsar_fields``)."""


class ClusterGroups:
    """The cluster's groups and attachments, over its REST API."""

    def __init__(self, rest: Rest, tenants: Mapping[str, str]) -> None:
        self._rest = rest
        self.tenants = tenants
        """``cluster.tenants`` of the settings."""

    async def read(self, group: str) -> ClusterGroup | None:
        """A group; None: there is none of that name.

        Raises:
            ClusterError: the cluster does not answer or refuses.
        """
        if "/" in group:  # no name of a group in Pulsar
            return None
        try:
            answer = await self._rest.get(group_path(group))
        except NotFoundError:
            return None
        return ClusterGroup(np.array(rates_of(answer)), read_fields(fields_in(answer)))

    async def put(self, group: str, fields: Mapping[str, Any]) -> None:
        """Create a group or change some of its rates and other fields."""
        if fields:
            if "/" in group:
                raise InputError(
                    f"group {group!r}: a group of a Pulsar cluster has no / in its name"
                )
            await self._rest.ask("PUT", group_path(group), dict(fields))

    async def delete(self, group: str) -> None:
        """Delete a group; the cluster refuses it while it is in use."""
        await self._rest.ask("DELETE", group_path(group))

    async def group_of(self, namespace: str) -> str | None:
        """The group that a namespace is attached to, None for none."""
        return group_of(await self._rest.get(namespace_path(namespace)))

    async def attach(self, namespace: str, group: str | None) -> None:
        """Attach a namespace to a group; None detaches it."""
        base = ("namespaces", namespace, "resourcegroup")
        if group is None:
            await self._rest.ask("DELETE", Rest.path(*base))
        else:
            await self._rest.ask("POST", Rest.path(*base, group))
