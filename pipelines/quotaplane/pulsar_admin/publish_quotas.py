"""Publish quotas of a cluster's groups, and their copies: read and written.

A quota that is taken over is set to unlimited in the cluster, so that the brokers' own calculator
does not throttle. A copy of it stays in the cluster, in a group of its own that nothing is attached
to: ``orders.taken-over`` has the quota of ``orders``. It outlives our table and its history, and
``pulsar-admin resourcegroups get`` shows it.
"""

from __future__ import annotations

import contextlib
from typing import Final

import numpy as np

from quotaplane.errors import ClusterError
from quotaplane.groups.pulsar_fields import RATE_KEYS
from quotaplane.groups.quota_copies import copy_of, is_copy, original_of
from quotaplane.model import PUBLISH, BoolArray, FloatArray
from quotaplane.pulsar_admin.bulk import read_names
from quotaplane.pulsar_admin.resource_groups import GROUPS, group_path, rates_of, to_cluster
from quotaplane.pulsar_admin.rest import NotFoundError, Rest

_PUBLISH_RATES: Final = 2


class PublishQuotas:
    """Reads and writes the publish quotas of one cluster.

    Quotas are (2,) messages and bytes per second; inf = unlimited, NaN = no such group.
    """

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    async def read(self, group: str) -> FloatArray:
        """A group's quotas in the cluster.

        Raises:
            ClusterError: they can't be read.
        """
        try:
            return np.array(rates_of(await self._rest.get(group_path(group))))[PUBLISH]
        except NotFoundError:
            return np.full(_PUBLISH_RATES, np.nan)

    async def write(self, group: str, rates: FloatArray, which: BoolArray) -> None:
        """Write those quotas of a group that ``which`` (2,) names; the others stay.

        Raises:
            ClusterError: the cluster refuses, or does not answer.
        """
        # Pulsar merges: fields that are missing from the body stay.
        body = {
            key: int(rate) if np.isfinite(rate) else -1
            for key, rate, named in zip(RATE_KEYS[PUBLISH], to_cluster(rates), which, strict=True)
            if named
        }
        await self._rest.ask("PUT", group_path(group), body)

    async def copied(self) -> set[str]:
        """The groups with a copy.

        Raises:
            ClusterError: the groups can't be listed.
        """
        names = await read_names(self._rest, GROUPS)
        return {original_of(name) for name in names if is_copy(name)}

    async def read_copy(self, group: str) -> FloatArray:
        """The copy of a group's quotas; NaN: there is none.

        Raises:
            ClusterError: it can't be read.
        """
        return await self.read(copy_of(group))

    async def write_copy(self, group: str, rates: FloatArray) -> None:
        """Write the copy of a group's quotas.

        Raises:
            ClusterError: the cluster refuses, or does not answer.
        """
        await self.write(copy_of(group), rates, np.full(_PUBLISH_RATES, True))

    async def drop_copy(self, group: str) -> None:
        """Delete the copy, as the group has its quota again; a failure leaves it there."""
        with contextlib.suppress(ClusterError):
            await self._rest.ask("DELETE", group_path(copy_of(group)))
