"""Where bundles may be: isolation rules, anti-affinity groups, capacities, drained brokers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import Field, ValidationError, field_validator

from quotabalance.planning.isolation import IsolationPolicy
from quotaplane.errors import InputError
from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.parsing.decimals import OneSpelling
from quotaplane.parsing.strict_json import check_expressions, first_error


class Policies(OneSpelling):
    """An administrator's rules for brokers and namespaces.

    >>> policies = Policies(anti_affinity={"acme/orders": "Ha", "acme/bills": "hA"})
    >>> policies.group_of("acme/orders"), policies.namespaces_of("ha")
    ('ha', ['acme/orders', 'acme/bills'])
    """

    isolation: Mapping[str, IsolationPolicy] = Field(default={})
    """By name, or a list. The first policy that matches a namespace holds."""
    anti_affinity: Mapping[str, str] = Field(default={})
    """Namespace to group, upper and lower case being the same: a move never brings more namespaces
    of one group together."""
    failure_domains: Mapping[str, tuple[str, ...]] = Field(default={})
    """Domain to its brokers; brokers in none are one domain. Namespaces of an anti-affinity group
    are kept apart by domains before brokers. For Pulsar's strategies they count with
    ``failureDomainsEnabled``."""
    broker_versions: Mapping[str, str] = Field(default={})
    """Only for Pulsar's strategies, with ``preferLaterVersions``."""
    capacity_weights: Mapping[str, float] = Field(default={})
    """By broker; multiplies what its limits say, or 1 if they are not known."""
    drained_brokers: frozenset[str] = frozenset()
    """Brokers to be taken out: they get nothing, and all of their bundles leave."""
    excluded_namespaces: tuple[str, ...] = ()
    """Regular expressions; bundles of these are never split, and leave only drained brokers.
    Pulsar's ``pulsar/system`` counts as one of these; bundles of heartbeat and SLA
    namespaces never leave."""

    @field_validator("isolation", mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return {str(place): policy for place, policy in enumerate(given)}
        return given

    @field_validator("capacity_weights")
    @classmethod
    def _positive(cls, weights: Mapping[str, float]) -> Mapping[str, float]:
        for broker, weight in weights.items():
            if not (np.isfinite(weight) and weight > 0):
                raise ValueError(f"broker {broker}: the weight must be above 0, it is {weight:g}")
        return weights

    @field_validator("excluded_namespaces")
    @classmethod
    def _compiles(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        check_expressions(texts)
        return texts

    @cached_property
    def _excluded(self) -> re.Pattern[str] | None:
        texts = "|".join(f"(?:{text})" for text in self.excluded_namespaces)
        return re.compile(texts) if texts else None

    def is_excluded(self, namespace: str) -> bool:
        """Whether bundles of the namespace stay where they are."""
        return bool(self._excluded and self._excluded.fullmatch(namespace))

    def group_of(self, namespace: str) -> str:
        """The namespace's anti-affinity group in lower case; "" = none."""
        group = self.anti_affinity.get(namespace, "")
        return group.lower() if group.strip() else ""

    def namespaces_of(self, group: str) -> list[str]:
        """All namespaces of a group."""
        return [name for name in self.anti_affinity if self.group_of(name) == group]

    def weights(self, brokers: Sequence[str]) -> FloatArray:
        """Each broker's capacity weight; shape (B,)."""
        return np.array([self.capacity_weights.get(name, 1.0) for name in brokers])


def read_policies(values: Any) -> Policies:
    """Policies from a mapping.

    Raises:
        InputError: a name is unknown or a value unusable; one line that names it.
    """
    try:
        return Policies.model_validate(values)
    except ValidationError as error:
        raise InputError(first_error(error)) from None


def domain_codes(brokers: Sequence[str], domains: Mapping[str, Sequence[str]]) -> IntArray:
    """Each broker's failure domain as a number; shape (B,), or (0,) if there are no domains.

    Brokers that are in no domain are together in one, ``default``.

    >>> domain_codes(["b1", "b2", "b3"], {"rack 1": ["b2"]}).tolist()
    [0, 1, 0]
    """
    of_broker = {broker: name for name, members in domains.items() for broker in members}
    if not of_broker:
        return np.zeros(0, np.int64)
    codes: dict[str, int] = {}
    names = (of_broker.get(broker, "default") for broker in brokers)
    return np.array([codes.setdefault(name, len(codes)) for name in names], np.int64)


def apart(candidates: BoolArray, held: IntArray, domains: IntArray) -> BoolArray:
    """The candidates with the least of an anti-affinity group; shapes (B,).

    First only the failure domains are kept whose candidates together hold the least, then only the
    brokers that hold the least (``LoadManagerShared.filterAntiAffinityGroupOwnedBrokers``).

    Args:
        candidates: brokers that may be chosen.
        held: how much of the group each broker holds.
        domains: ``domain_codes``; (0,) = none.

    >>> held, domains = np.array([2, 1, 2, 1, 2, 2]), np.array([0, 0, 1, 1, 2, 2])
    >>> apart(np.ones(6, bool), held, domains).tolist()
    [False, True, False, True, False, False]
    """
    if not candidates.any():
        return candidates
    if len(domains):
        together = np.bincount(domains[candidates], held[candidates], domains.max() + 1)
        least = together[domains[candidates]].min()
        candidates = candidates & (together[domains] == least)
    found: BoolArray = candidates & (held == held[candidates].min())
    return found
