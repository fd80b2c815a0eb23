"""Publish quotas of a cluster's groups: read, written, taken over, given back.

A quota that is taken over is set to unlimited in the cluster, so that the brokers' own calculator
does not throttle. A copy of it stays in the cluster, in a group of its own that nothing is attached
to: ``orders.taken-over`` has the quota of ``orders``. It outlives our table and its history, and
``pulsar-admin resourcegroups get`` shows it.
"""

from __future__ import annotations

import contextlib
from enum import Enum
from typing import Final

import numpy as np

from quotaplane.errors import ClusterError
from quotaplane.groups.pulsar_fields import RATE_KEYS
from quotaplane.groups.quota_copies import copy_of
from quotaplane.model import PUBLISH, BoolArray, FloatArray
from quotaplane.pulsar_admin.resource_groups import group_path, rates_of, to_cluster
from quotaplane.pulsar_admin.rest import RefusedError, Rest

_NOT_FOUND: Final = 404
_PUBLISH_RATES: Final = 2


class Given(Enum):
    """How giving back a group's quota ended."""

    HAD = "the cluster has it already"
    WRITTEN = "the cluster has it now"
    NOT_KEPT = "the cluster accepted it, and does not have it"
    NOWHERE = "neither the cluster nor the caller has a quota"


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
        except RefusedError as error:
            if error.status != _NOT_FOUND:
                raise
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

    async def read_copy(self, group: str) -> FloatArray:
        """The copy of a group's quotas; NaN: there is none.

        Raises:
            ClusterError: it can't be read.
        """
        return await self.read(copy_of(group))

    async def keep_copy(self, group: str, rates: FloatArray) -> None:
        """Keep a copy of a group's quotas in the cluster, and read it back.

        Raises:
            ClusterError: the cluster does not have the copy.
        """
        wanted = to_cluster(rates)
        if np.array_equal(await self.read_copy(group), wanted):
            return
        await self.write(copy_of(group), rates, np.full(_PUBLISH_RATES, True))
        found = await self.read_copy(group)
        if not np.array_equal(found, wanted):
            raise ClusterError(
                f"resource group {copy_of(group)!r}: has {found.tolist()} after {wanted.tolist()} "
                "was written; the quota is not taken over without a copy"
            )

    async def drop_copy(self, group: str) -> None:
        """Delete the copy, as the group has its quota again; a failure leaves it there."""
        with contextlib.suppress(ClusterError):
            await self._rest.ask("DELETE", group_path(copy_of(group)))

    async def give_back(self, group: str, recorded: FloatArray | None) -> Given:
        """Write a quota that was taken over to the cluster again, and read it back.

        ``recorded`` is the table's; None: the table has no such group, so the copy counts.

        Raises:
            ClusterError: the cluster refuses, or does not answer.
        """
        rates = await self.read(group)
        if recorded is None and np.isinf(rates).any():
            copy = await self.read_copy(group)
            recorded = None if np.isnan(copy).any() else copy
        if recorded is None:
            return Given.NOWHERE if np.isinf(rates).all() else Given.HAD
        hidden = np.isinf(rates) & np.isfinite(recorded)
        if not hidden.any():
            return Given.HAD
        await self.write(group, recorded, hidden)
        if (np.isinf(await self.read(group)) & hidden).any():
            return Given.NOT_KEPT
        await self.drop_copy(group)
        return Given.WRITTEN
