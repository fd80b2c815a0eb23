"""Reads a cluster's rules about where namespaces may be."""

from __future__ import annotations

from typing import Any, NamedTuple

from quotaplane.parsing.bounded_json import MALFORMED
from quotaplane.pulsar_admin.rest import Rest


class NamespaceIsolation(NamedTuple):
    """A namespace isolation policy of Pulsar; all are regular expressions."""

    namespaces: tuple[str, ...]
    primary: tuple[str, ...]
    secondary: tuple[str, ...]
    min_primary: int
    """Secondary brokers are used while fewer primary ones than this are there."""


async def read_isolation(rest: Rest, cluster: str) -> list[NamespaceIsolation]:
    """A cluster's isolation policies, by name; none is normal.

    Raises:
        ClusterError: they can't be read.
    """
    path = Rest.path("clusters", cluster, "namespaceIsolationPolicies")
    answer = await rest.find(path)
    try:
        return [_isolation(answer[name]) for name in sorted(answer or {})]
    except MALFORMED:
        raise rest.failure(f"GET {path}: the answer has no isolation policies") from None


def _isolation(policy: dict[str, Any]) -> NamespaceIsolation:
    failover = policy.get("auto_failover_policy") or {}
    parameters = failover.get("parameters") or {}
    return NamespaceIsolation(
        tuple(map(str, policy["namespaces"])),
        tuple(map(str, policy["primary"])),
        tuple(map(str, policy.get("secondary") or ())),
        int(parameters.get("min_limit", 1)),
    )


async def anti_affinity_group(rest: Rest, namespace: str) -> str | None:
    """The anti-affinity group of a namespace.

    Raises:
        ClusterError: it can't be read.
    """
    path = Rest.path("namespaces", namespace, "antiAffinity")
    group = await rest.get(path)
    return str(group) if group else None
