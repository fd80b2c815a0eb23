"""Pulsar's namespace isolation policies: which brokers a namespace may be on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from pydantic import Field, field_validator, model_validator

from quotabalance.planning.java_expressions import java_expression
from quotaplane.model import BoolArray
from quotaplane.parsing.decimals import OneSpelling

_KIND: Final = "min_available"
"""The only kind of failover that Pulsar has."""
_PORT: Final = re.compile(r":\d+$")


class IsolationPolicy(OneSpelling):
    """Namespaces that may only be on certain brokers, which serve no other namespaces.

    Taken as ``pulsar-admin ns-isolation-policy get`` prints it, or with ``min_primary`` in place of
    ``auto_failover_policy``. An expression must match the whole name.

    >>> failover = {"policy_type": "min_available", "parameters": {"min_limit": "2"}}
    >>> IsolationPolicy(
    ...     namespaces=["acme/.*"], primary=["b1"], auto_failover_policy=failover
    ... ).min_primary
    2
    """

    namespaces: tuple[str, ...] = Field(min_length=1)
    """Java's regular expressions of tenant/namespace."""
    primary: tuple[str, ...] = Field(min_length=1)
    """Regular expressions of brokers' hosts. Namespaces without a policy never get onto these
    brokers. An expression that ends with a port is compared with host:port, too, which Pulsar never
    does."""
    secondary: tuple[str, ...] = ()
    """Brokers that are used while fewer than ``min_primary`` primary ones are there."""
    min_primary: int = Field(default=1, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _as_pulsar_prints_it(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "auto_failover_policy" not in given:
            return given
        failover = given["auto_failover_policy"]
        if "min_primary" in given:
            raise ValueError("has both min_primary and auto_failover_policy")
        kind = failover.get("policy_type", _KIND) if isinstance(failover, dict) else None
        if kind != _KIND:
            raise ValueError('auto_failover_policy: policy_type must be "min_available"')
        parameters = failover.get("parameters")
        limit = parameters.get("min_limit") if isinstance(parameters, dict) else None
        if not re.fullmatch(r"[+-]?[0-9]{1,10}", str(limit)):
            raise ValueError("auto_failover_policy: parameters.min_limit must be a whole number")
        rest = {name: value for name, value in given.items() if name != "auto_failover_policy"}
        return {**rest, "min_primary": max(int(str(limit)), 0)}

    @field_validator("namespaces", "primary", "secondary")
    @classmethod
    def _are_expressions(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        for text in texts:
            java_expression(text)
        return texts

    def holds_for(self, namespace: str) -> bool:
        """Whether the namespace is one of the policy's."""
        return any(java_expression(text).fullmatch(namespace) for text in self.namespaces)


class IsolatedBrokers:
    """Brokers that isolation policies leave to namespaces; remembers its answers. B brokers.

    Source: Pulsar's ``SimpleResourceAllocationPolicies`` and
    ``LoadManagerShared.applyNamespacePolicies``. The first policy that matches a namespace holds.

    >>> policy = IsolationPolicy(namespaces=["acme/.*"], primary=["b1"], secondary=["b2"])
    >>> isolated = IsolatedBrokers({"acme": policy}, ("b1:8080", "b2:8080", "b3:8080"))
    >>> everywhere = np.ones(3, bool)
    >>> isolated.open_to("acme/orders", everywhere).tolist()
    [True, False, False]
    >>> isolated.open_to("acme/orders", np.array([False, True, True])).tolist()
    [True, True, False]
    >>> isolated.open_to("other/orders", everywhere).tolist()
    [False, True, True]
    """

    def __init__(
        self,
        isolation: Mapping[str, IsolationPolicy],
        brokers: Sequence[str],
        *,
        ports: bool = True,
    ) -> None:
        """Find each policy's brokers; without ``ports`` exactly those that Pulsar finds."""
        self._policies = tuple(isolation.values())
        names = brokers if ports else [""] * len(brokers)
        hosts = [_PORT.sub("", broker) for broker in brokers]
        self._primary = [_matches(policy.primary, hosts, names) for policy in self._policies]
        self._secondary = [
            _matches(policy.secondary, hosts, names) & ~primary
            for policy, primary in zip(self._policies, self._primary, strict=True)
        ]
        self.shared: BoolArray = ~np.logical_or.reduce(
            [np.zeros(len(brokers), np.bool_), *self._primary]
        )
        """Shape (B,): primary in no policy, so open to namespaces without one."""
        self._place: dict[str, int | None] = {}
        self.without_brokers = tuple(
            name
            for name, primary, secondary in zip(
                isolation, self._primary, self._secondary, strict=True
            )
            if not (primary | secondary).any()
        )
        """Names of the policies that match no broker."""

    def is_isolated(self, namespace: str) -> bool:
        """Whether a policy holds for the namespace."""
        return self._find(namespace) is not None

    def open_to(self, namespace: str, available: BoolArray) -> BoolArray:
        """Brokers that the namespace may be on; shape (B,).

        Args:
            namespace: its name.
            available: shape (B,): primary brokers that count for ``min_primary``.
        """
        place = self._find(namespace)
        if place is None:
            return self.shared
        primary = self._primary[place]
        if np.count_nonzero(primary & available) < self._policies[place].min_primary:
            return primary | self._secondary[place]
        return primary

    def split(self, namespace: str) -> tuple[BoolArray, BoolArray]:
        """Primary brokers of the namespace, and others that it may be on; shapes (B,)."""
        place = self._find(namespace)
        if place is None:
            return np.zeros_like(self.shared), self.shared
        return self._primary[place], self._secondary[place]

    def _find(self, namespace: str) -> int | None:
        if namespace not in self._place:
            holds = (n for n, policy in enumerate(self._policies) if policy.holds_for(namespace))
            self._place[namespace] = next(holds, None)
        return self._place[namespace]


def _matches(texts: Sequence[str], hosts: Sequence[str], names: Sequence[str]) -> BoolArray:
    found = np.zeros(len(hosts), np.bool_)
    for text in texts:
        matches = java_expression(text).fullmatch
        found |= np.array([bool(matches(host)) for host in hosts], np.bool_)
        if _PORT.search(text):
            found |= np.array([bool(matches(name)) for name in names], np.bool_)
    return found
