"""What a cluster says of its resource groups, and which namespaces are attached to which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from quotaplane.errors import ClusterError
from quotaplane.model import MAX_RATE, UNLIMITED, FloatArray
from quotaplane.pulsar_admin.rest import Rest

RATE_KEYS: Final = (
    "publishRateInMsgs",
    "publishRateInBytes",
    "dispatchRateInMsgs",
    "dispatchRateInBytes",
)
"""What Pulsar calls the first four of ``model.DIMENSIONS``."""

_MOST: Final = np.array([2.0**31 - 1, MAX_RATE])
"""The highest publish quotas that Pulsar can hold: messages are a 32-bit number there."""

GROUPS: Final = Rest.path("resourcegroups")


def group_path(group: str) -> str:
    """Where a group's rates are."""
    return Rest.path("resourcegroups", group)


def namespace_path(namespace: str) -> str:
    """Where a namespace's policies are; its name is ``tenant/namespace``."""
    return Rest.path("namespaces", namespace)


def rates_of(group: object) -> list[float]:
    """A group's rates out of Pulsar's answer: 4, per second; +inf is unlimited.

    A rate of 0 counts as unlimited, too: brokers take it for that until the group was used.

    >>> rates_of({"publishRateInMsgs": 100, "publishRateInBytes": -1, "dispatchRateInMsgs": 0})
    [100.0, inf, inf, inf]

    Raises:
        ClusterError: it is something else.
    """
    # Pulsar fills in -1 when a group is created: an object without any rate is another answer.
    if not isinstance(group, dict) or not any(key in group for key in RATE_KEYS):
        raise ClusterError("Pulsar's REST API: a resource group: answers no rates")
    rates = []
    for key in RATE_KEYS:
        rate = group.get(key)
        if rate is not None and type(rate) not in (int, float):
            raise ClusterError(f"Pulsar's REST API: a resource group: {key} is no rate: {rate!r}")
        # Long.MAX_VALUE is a way to say unlimited, too.
        rates.append(UNLIMITED if rate is None or not 0 < rate <= MAX_RATE else float(rate))
    return rates


def has_zero(group: Mapping[str, object]) -> bool:
    """Whether a quota of the group is 0, which somebody may take for "nothing is allowed"."""
    return any(group.get(key) == 0 for key in RATE_KEYS)


def to_cluster(publish: FloatArray) -> FloatArray:
    """Publish quotas (..., 2) as the cluster can hold them: whole, and at least 1; inf stays.

    >>> to_cluster(np.array([[99.5, 0.4], [0.0, np.inf]])).tolist()
    [[100.0, 1.0], [1.0, inf]]
    """
    whole = np.minimum(np.maximum(np.ceil(publish), 1.0), _MOST)
    return np.where(np.isinf(publish), np.inf, whole)


def group_of(policies: object) -> str | None:
    """The group that a namespace of these policies is attached to.

    Not asked for by itself: that answer is plain text, in which a group named ``1`` is a number.

    >>> group_of({"resource_group_name": "rg"}), group_of({"bundles": {}})
    ('rg', None)

    Raises:
        ClusterError: these are no policies.
    """
    if not isinstance(policies, dict):
        raise ClusterError("Pulsar's REST API: a namespace: answers no policies")
    return policies.get("resource_group_name") or None


@dataclass(frozen=True)
class Runtime:
    """How a cluster's brokers are set up, as one of them says."""

    cluster: str
    report_interval_s: float | None
    """None: they send no usage reports."""


async def read_runtime(rest: Rest) -> Runtime:
    """How the cluster's brokers are set up.

    Raises:
        ClusterError: it can't be read.
    """
    path = Rest.path("brokers", "configuration", "runtime")
    said = await rest.get(path)
    if not isinstance(said, dict) or not said.get("clusterName"):
        raise ClusterError(
            f"Pulsar's REST API at {rest.url}: GET {path}: does not tell the cluster's name; check "
            "transport.admin_url"
        )
    interval_s = None
    if said.get("resourceUsageTransportClassName"):
        interval_s = float(said.get("resourceUsageTransportPublishIntervalInSecs", 60))
    return Runtime(str(said["clusterName"]), interval_s)
