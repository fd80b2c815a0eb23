"""Reads a cluster's rules about where namespaces may be."""

from __future__ import annotations

from typing import Any, Final

from quotaplane.parsing.bounded_json import MALFORMED
from quotaplane.pulsar_admin.rest import Rest

_FIELDS: Final = ("namespaces", "primary", "secondary", "auto_failover_policy")


async def read_isolation(rest: Rest, cluster: str) -> dict[str, dict[str, Any]]:
    """A cluster's isolation policies by name, as Pulsar prints them and in the order in which its
    brokers try them; none is normal.

    Raises:
        ClusterError: they can't be read.
    """
    path = Rest.path("clusters", cluster, "namespaceIsolationPolicies")
    answer = await rest.find(path)
    try:
        return {
            name: {field: policy[field] for field in _FIELDS}
            for name, policy in (answer or {}).items()
        }
    except MALFORMED:
        raise rest.failure(f"GET {path}: the answer has no isolation policies") from None


async def read_failure_domains(rest: Rest, cluster: str) -> dict[str, list[str]]:
    """A cluster's failure domains and the brokers in them; none is normal.

    Raises:
        ClusterError: they can't be read.
    """
    path = Rest.path("clusters", cluster, "failureDomains")
    answer = await rest.find(path)
    try:
        found = sorted((answer or {}).items())
        return {name: sorted(map(str, one["brokers"])) for name, one in found}
    except MALFORMED:
        raise rest.failure(f"GET {path}: the answer has no failure domains") from None


async def anti_affinity_group(rest: Rest, namespace: str) -> str | None:
    """The anti-affinity group of a namespace; also None if the namespace is gone, or has a name of
    Pulsar 1 (tenant/cluster/namespace).

    Raises:
        ClusterError: it can't be read.
    """
    path = Rest.path("namespaces", namespace, "antiAffinity")
    group = await rest.find(path)
    return str(group) if group else None
