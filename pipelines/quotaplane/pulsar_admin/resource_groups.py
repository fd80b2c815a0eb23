"""Parses a cluster's answers about resource groups, attached namespaces and configuration.

Reads and writes publish quotas of groups, and their copies. A quota that is taken over is set to
unlimited in the cluster, so that the brokers' own calculator does not throttle. A copy of it stays
in the cluster, in a group of its own that nothing is attached to: ``orders.taken-over`` has the
quota of ``orders``. It outlives our table and its history, and ``pulsar-admin resourcegroups get``
shows it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from quotaplane.errors import ClusterError
from quotaplane.groups.names import copy_of, is_copy, original_of
from quotaplane.groups.pulsar_fields import RATE_KEYS
from quotaplane.model import MAX_RATE, PUBLISH, UNLIMITED, BoolArray, FloatArray
from quotaplane.parsing.bounded_json import MALFORMED
from quotaplane.pulsar_admin.bulk import read_names
from quotaplane.pulsar_admin.rest import NotFoundError, Rest

MOST_RATES: Final = (2**31 - 1, int(MAX_RATE)) * 2
"""The highest of ``RATE_KEYS`` that Pulsar can store and its clients can read: messages have 32
bits."""

_MOST: Final = np.array(MOST_RATES[:2], np.float64)
"""Those of publish quotas."""

GROUPS: Final = Rest.path("resourcegroups")
_RUNTIME: Final = Rest.path("brokers", "configuration", "runtime")
TRANSPORT_CLASS: Final = "resourceUsageTransportClassName"
REPORT_INTERVAL: Final = "resourceUsageTransportPublishIntervalInSecs"


def group_path(group: str) -> str:
    """The REST path of a group."""
    return Rest.path("resourcegroups", group)


def namespace_path(namespace: str) -> str:
    """The REST path of the policies of a namespace ``tenant/namespace``."""
    return Rest.path("namespaces", namespace)


def rates_of(group: object) -> list[float]:
    """Parse a group's four rates per second; inf = unlimited.

    A rate of 0 counts as unlimited: brokers treat it so until the group is used.

    >>> rates_of({"publishRateInMsgs": 100, "publishRateInBytes": -1, "dispatchRateInMsgs": 0})
    [100.0, inf, inf, inf]

    Raises:
        ClusterError: the answer is something else.
    """
    # Pulsar sets missing rates to -1 when a group is created, so a group has at least one key.
    if not isinstance(group, dict) or not any(key in group for key in RATE_KEYS):
        raise ClusterError("Pulsar's REST API: a resource group: the answer has no rates")
    rates = []
    for key in RATE_KEYS:
        rate = group.get(key)
        if rate is not None and type(rate) not in (int, float):
            raise ClusterError(
                f"Pulsar's REST API: a resource group: {key} is not a rate: {str(rate)[:100]!r}"
            )
        # Some clients write Long.MAX_VALUE for unlimited.
        rates.append(UNLIMITED if rate is None or not 0 < rate <= MAX_RATE else float(rate))
    return rates


def has_zero(group: Mapping[str, object]) -> bool:
    """Whether a quota of the group is 0, which may have been meant as "nothing is allowed"."""
    return any(group.get(key) == 0 for key in RATE_KEYS)


def to_cluster(publish: FloatArray) -> FloatArray:
    """Round publish quotas (..., 2) up to whole numbers that Pulsar can store, at least 1.

    >>> to_cluster(np.array([[99.5, 0.4], [0.0, np.inf]])).tolist()
    [[100.0, 1.0], [1.0, inf]]
    """
    whole = np.minimum(np.maximum(np.ceil(publish), 1.0), _MOST)
    return np.where(np.isinf(publish), np.inf, whole)


def group_of(policies: object) -> str | None:
    """The group that a namespace with these policies is attached to.

    Taken from the policies, because Pulsar's own request for it answers plain text, in which a
    group named ``1`` parses as a number.

    >>> group_of({"resource_group_name": "rg"}), group_of({"bundles": {}})
    ('rg', None)

    Raises:
        ClusterError: the answer is not policies.
    """
    if not isinstance(policies, dict):
        raise ClusterError("Pulsar's REST API: a namespace: the answer has no policies")
    group = policies.get("resource_group_name") or None
    if group is not None and not isinstance(group, str):
        raise ClusterError("Pulsar's REST API: a namespace: its resource_group_name is no text")
    return group


@dataclass(frozen=True)
class Runtime:
    """The configuration of a cluster's brokers."""

    cluster: str
    """Its name."""
    report_interval_s: float | None
    """How often brokers send usage reports; None = never."""
    configuration: Mapping[str, object]
    """All of it, by key of broker.conf."""


async def read_runtime(rest: Rest) -> Runtime:
    """Read the runtime configuration of a broker, which is taken to be that of all.

    Raises:
        ClusterError: it can't be read.
    """
    configuration = await read_configuration(rest)
    interval_s = None
    if configuration.get(TRANSPORT_CLASS):
        interval_s = _seconds(configuration.get(REPORT_INTERVAL, 60))
        if interval_s is None:
            raise rest.failure(f"GET {_RUNTIME}: {REPORT_INTERVAL} is no number of seconds")
    return Runtime(str(configuration["clusterName"]), interval_s, configuration)


async def read_configuration(rest: Rest) -> dict[str, Any]:
    """All values of a broker's configuration, with the cluster's name.

    Raises:
        ClusterError: they can't be read.
    """
    configuration = await rest.get(_RUNTIME)
    if not isinstance(configuration, dict) or not configuration.get("clusterName"):
        raise rest.failure(
            f"GET {_RUNTIME}: the answer has no clusterName; check transport.admin_url"
        )
    return configuration


def _seconds(given: object) -> float | None:
    """A setting of a broker as a time; None: it is none."""
    try:
        time_s = float(given)  # type: ignore[arg-type]
    except MALFORMED:
        return None
    return time_s if 0 < time_s < math.inf else None


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
