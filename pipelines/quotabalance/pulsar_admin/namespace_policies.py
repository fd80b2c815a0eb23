"""Reads a cluster's rules about where namespaces may be."""

from __future__ import annotations

from typing import Any, Final

from quotaplane.parsing.bounded_json import MALFORMED
from quotaplane.pulsar_admin.rest import Rest

_FIELDS: Final = ("namespaces", "primary", "secondary", "auto_failover_policy")


async def read_isolation(rest: Rest, cluster: str) -> dict[str, dict[str, Any]]:
    """A cluster's isolation policies by name, in Pulsar's order, as Pulsar prints them; none is
    normal.

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


async def anti_affinity_group(rest: Rest, namespace: str) -> str | None:
    """The anti-affinity group of a namespace.

    Raises:
        ClusterError: it can't be read.
    """
    path = Rest.path("namespaces", namespace, "antiAffinity")
    group = await rest.get(path)
    return str(group) if group else None
