"""Where bundles may be: isolation rules, anti-affinity groups, capacities, drained brokers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import Field, ValidationError, field_validator

from quotaplane.errors import InputError
from quotaplane.model import BoolArray, FloatArray
from quotaplane.parsing.decimals import OneSpelling
from quotaplane.parsing.strict_json import check_expressions, first_error


class IsolationRule(OneSpelling):
    """Namespaces that are only on certain brokers, as Pulsar's namespace isolation policies.

    All expressions must match the whole name.
    """

    namespaces: tuple[str, ...] = Field(min_length=1)
    """Regular expressions of tenant/namespace."""
    primary: tuple[str, ...] = Field(min_length=1)
    """Regular expressions of brokers. Namespaces without a rule never get onto these brokers."""
    secondary: tuple[str, ...] = ()
    """Brokers that are used while fewer than ``min_primary`` primary ones are there."""
    min_primary: int = Field(default=1, ge=0)

    @field_validator("namespaces", "primary", "secondary")
    @classmethod
    def _compiles(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        check_expressions(texts)
        return texts


class Policies(OneSpelling):
    """An administrator's rules for brokers and namespaces.

    >>> policies = Policies(isolation=[{"namespaces": ["acme/.*"], "primary": ["b1"]}])
    >>> policies.allowed("acme/orders", ["b1", "b2"], np.array([True, True])).tolist()
    [True, False]
    >>> policies.allowed("other/ns", ["b1", "b2"], np.array([True, True])).tolist()
    [False, True]
    """

    isolation: tuple[IsolationRule, ...] = ()
    """The first rule whose expressions match a namespace holds."""
    anti_affinity: Mapping[str, str] = Field(default={})
    """Namespace to group: a move never brings more namespaces of one group together."""
    capacity_weights: Mapping[str, float] = Field(default={})
    """By broker; multiplies what its limits say, or 1 if they are not known."""
    drained_brokers: frozenset[str] = frozenset()
    """Brokers to be taken out: they get nothing, and all of their bundles leave."""
    excluded_namespaces: tuple[str, ...] = ()
    """Regular expressions; bundles of these are never split, and leave only drained brokers.
    Pulsar's ``pulsar/system`` counts as one of these; bundles of heartbeat and SLA
    namespaces never leave."""

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

    def rule_of(self, namespace: str) -> IsolationRule | None:
        """The isolation rule that holds for a namespace."""
        for rule in self.isolation:
            if any(re.fullmatch(text, namespace) for text in rule.namespaces):
                return rule
        return None

    def allowed(self, namespace: str, brokers: Sequence[str], live: BoolArray) -> BoolArray:
        """Brokers that the isolation rules let a namespace's bundles be on; shape (B,)."""
        rule = self.rule_of(namespace)
        if rule is None:
            primary = [text for other in self.isolation for text in other.primary]
            return ~_matching(primary, brokers)
        allowed = _matching(rule.primary, brokers)
        if (allowed & live).sum() < rule.min_primary:
            allowed = allowed | _matching(rule.secondary, brokers)
        return allowed

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


def _matching(texts: Sequence[str], brokers: Sequence[str]) -> BoolArray:
    if not texts:
        return np.zeros(len(brokers), np.bool_)
    pattern = re.compile("|".join(f"(?:{text})" for text in texts))
    return np.array([bool(pattern.fullmatch(name)) for name in brokers], np.bool_)
