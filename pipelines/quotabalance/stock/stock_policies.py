"""Pulsar's policies for namespaces and brokers: isolation, anti-affinity, failure domains."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field, field_validator

from quotaplane.model import BoolArray
from quotaplane.parsing.strict_json import CaseModel, check_expressions


class AutoFailover(CaseModel):
    """When secondary brokers may serve the namespaces, too; as ``pulsar-admin`` prints it."""

    policy_type: Literal["min_available"] = "min_available"
    parameters: dict[str, str]
    """``min_limit``: with fewer primary brokers than this, secondary ones are allowed.
    ``usage_threshold``: Pulsar's managers do not read it."""

    @field_validator("parameters")
    @classmethod
    def _has_a_limit(cls, parameters: dict[str, str]) -> dict[str, str]:
        if not re.fullmatch(r"[+-]?\d{1,9}", parameters.get("min_limit", "")):
            raise ValueError('must have "min_limit", a whole number written as a text')
        return parameters

    @property
    def min_limit(self) -> int:
        """The fewest primary brokers with which no secondary one is needed."""
        return int(self.parameters["min_limit"])


class IsolationPolicy(CaseModel):
    """Namespaces that may only be on certain brokers, which serve no others."""

    namespaces: list[str] = Field(min_length=1)
    """Regular expressions; each must match the whole name."""
    primary: list[str]
    """Regular expressions of brokers' hosts (the name without the port)."""
    secondary: list[str] = Field(default_factory=list)
    auto_failover_policy: AutoFailover

    @field_validator("namespaces", "primary", "secondary")
    @classmethod
    def _are_expressions(cls, texts: list[str]) -> list[str]:
        check_expressions(texts)
        return texts


class StockPolicies(CaseModel):
    """All policies of a cluster.

    >>> StockPolicies(anti_affinity_groups={"acme/orders": "ha"}).group_of("acme/orders")
    'ha'
    """

    isolation: dict[str, IsolationPolicy] = Field(default_factory=dict)
    """By name; of several that match a namespace, the first one counts."""
    anti_affinity_groups: dict[str, str] = Field(default_factory=dict)
    """Namespace -> group; the namespaces of a group are kept apart. Upper and lower case are
    the same."""
    failure_domains: dict[str, list[str]] = Field(default_factory=dict)
    """Domain -> brokers; counts with ``failureDomainsEnabled``."""
    broker_versions: dict[str, str] = Field(default_factory=dict)
    """Broker -> version; counts with ``preferLaterVersions``."""

    def group_of(self, namespace: str) -> str:
        """The namespace's anti-affinity group in lower case; "" = none."""
        group = self.anti_affinity_groups.get(namespace, "")
        return group.lower() if group.strip() else ""

    def namespaces_of(self, group: str) -> list[str]:
        """All namespaces of a group."""
        return [name for name in self.anti_affinity_groups if self.group_of(name) == group]

    def isolation_of(self, namespace: str) -> IsolationPolicy | None:
        """The isolation policy that holds for a namespace."""
        for policy in self.isolation.values():
            if matches_any(policy.namespaces, namespace):
                return policy
        return None


def matches_any(expressions: list[str], text: str) -> bool:
    """Whether one of the regular expressions matches the whole text."""
    return any(re.fullmatch(expression, text) for expression in expressions)


class _Pools(NamedTuple):
    """The brokers of one isolation policy, shape (B,) each."""

    primary: BoolArray
    secondary: BoolArray
    """Not primary brokers; no broker is in both."""
    min_limit: int


class BrokerPools:
    """Which brokers a namespace may be on, by isolation policies; remembers its answers.

    >>> isolation = IsolationPolicy(
    ...     namespaces=["acme/.*"], primary=["b1"], secondary=["b2"],
    ...     auto_failover_policy=AutoFailover(parameters={"min_limit": "1"}),
    ... )
    >>> pools = BrokerPools(StockPolicies(isolation={"acme": isolation}), ("b1:1", "b2:1", "b3:1"))
    >>> everywhere = np.ones(3, bool)
    >>> pools.allowed("acme/orders", everywhere).tolist()
    [True, False, False]
    >>> pools.allowed("acme/orders", np.array([False, True, True])).tolist()
    [False, True, False]
    >>> pools.allowed("other/orders", everywhere).tolist()
    [False, True, True]
    """

    def __init__(self, policies: StockPolicies, brokers: tuple[str, ...]) -> None:
        self._policies = policies
        self._hosts = [broker.rpartition(":")[0] or broker for broker in brokers]
        self._pools = {name: self._pool(policy) for name, policy in policies.isolation.items()}
        self._shared = np.ones(len(brokers), bool)
        for pool in self._pools.values():
            self._shared &= ~pool.primary
        self._of_namespace: dict[str, _Pools | None] = {}

    def _pool(self, policy: IsolationPolicy) -> _Pools:
        primary = np.array([matches_any(policy.primary, host) for host in self._hosts], bool)
        secondary = np.array([matches_any(policy.secondary, host) for host in self._hosts], bool)
        return _Pools(primary, secondary & ~primary, policy.auto_failover_policy.min_limit)

    def is_isolated(self, namespace: str) -> bool:
        """Whether a policy holds for the namespace."""
        return self._find(namespace) is not None

    def allowed(self, namespace: str, candidates: BoolArray) -> BoolArray:
        """Those of the candidates that the namespace may be on; shapes (B,)."""
        pool = self._find(namespace)
        if pool is None:
            shared: BoolArray = candidates & self._shared
            return shared
        primary: BoolArray = candidates & pool.primary
        if np.count_nonzero(primary) < pool.min_limit:
            primary |= candidates & pool.secondary
        return primary

    def split(self, namespace: str) -> tuple[BoolArray, BoolArray]:
        """Primary brokers of the namespace, and others that it may be on; shapes (B,)."""
        pool = self._find(namespace)
        if pool is None:
            return np.zeros(len(self._shared), np.bool_), self._shared
        return pool.primary, pool.secondary

    def _find(self, namespace: str) -> _Pools | None:
        if not self._pools:
            return None
        if namespace not in self._of_namespace:
            found = self._policies.isolation_of(namespace)
            names = [name for name, policy in self._policies.isolation.items() if policy is found]
            self._of_namespace[namespace] = self._pools[names[0]] if names else None
        return self._of_namespace[namespace]
