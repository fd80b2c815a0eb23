"""Rates of a namespace: they hold for each topic there that has none of its own.

Pulsar keeps them among the namespace's policies, in Pulsar 4.0 for each topic in full and from its
first message on. A property of the namespace records what we set, so that nobody else's rate is
taken for ours, in a later run either.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from quotaplane.errors import ClusterError
from quotaplane.model import BASIC, BoolArray, FloatArray
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.pulsar_admin.topic_rates import RATE_KEYS, rate_body, rates_in
from quotaplane.topic_layout import KINDS, SIDES

_POLICIES: Final = ("publishMaxMessageRate", "topicDispatchRate")
"""By cluster, among a namespace's policies."""
_PATHS: Final = ("publishRate", "dispatchRate")


@dataclass(frozen=True)
class NamespaceRates:
    """The rates of a namespace in one cluster."""

    in_force: FloatArray
    """(4,) inf = unlimited."""
    ours: BoolArray
    """(2,) by kind: we set it, or nobody set any."""
    recorded: bool
    """Whether the namespace has a record of ours."""

    def same_as(self, other: NamespaceRates | None) -> bool:
        """Whether both say the same."""
        return (
            other is not None
            and self.recorded == other.recorded
            and np.array_equal(self.in_force, other.in_force)
            and np.array_equal(self.ours, other.ours)
        )


def namespace_rates(policies: object, cluster: str) -> NamespaceRates:
    """The rates out of a namespace's policies.

    >>> rate = {"publishThrottlingRateInMsg": 20, "publishThrottlingRateInByte": -1}
    >>> found = namespace_rates({"publishMaxMessageRate": {"blue": rate}}, "blue")
    >>> found.in_force.tolist(), found.ours.tolist(), found.recorded
    ([20.0, inf, inf, inf], [False, True], False)

    Raises:
        ClusterError: these are no policies.
    """
    if not isinstance(policies, Mapping):
        raise ClusterError("Pulsar's REST API: a namespace: answers no policies")
    properties = policies.get("properties") or {}
    record = _parsed(properties.get(_key(cluster)))
    in_force = np.full(BASIC, np.inf)
    ours = np.ones(len(KINDS), np.bool_)
    for kind, name in enumerate(KINDS):
        said = (policies.get(_POLICIES[kind]) or {}).get(cluster)
        if not said:
            continue
        try:
            in_force[SIDES[kind]] = rates_in(said, kind)
            exact = [int(said.get(key, -1)) for key in RATE_KEYS[kind]]
        except (AttributeError, TypeError, ValueError):
            raise ClusterError("Pulsar's REST API: a namespace: its rates are none") from None
        plain = not said.get("relativeToPublishRate") and said.get("ratePeriodInSecond", 1) == 1
        none = not np.isfinite(in_force[SIDES[kind]]).any()
        ours[kind] = plain and (none or exact in record.get(name, []))
    return NamespaceRates(in_force, ours, _key(cluster) in properties)


async def write_namespace_rates(
    rest: Rest, namespace: str, cluster: str, before: NamespaceRates, rates: FloatArray
) -> NamespaceRates:
    """Put rates (4,) in force, of the kinds that are ours; inf in both of a kind takes it away.

    Each write lets every topic of the namespace have a second's worth for free.

    Raises:
        ClusterError: it is not sure what is in force now.
    """
    after = before.in_force.copy()
    record: dict[str, list[list[int]]] = {}
    changed: list[int] = []
    for kind, name in enumerate(KINDS):
        old, new = before.in_force[SIDES[kind]], rates[SIDES[kind]]
        if not before.ours[kind]:
            continue
        if (old != new).any():
            changed.append(kind)
            after[SIDES[kind]] = new
        # Both, as either may be in force while nobody knows whether the write was made.
        pairs = [_whole(pair) for pair in (old, new) if np.isfinite(pair).any()]
        if pairs:
            record[name] = [pair for at, pair in enumerate(pairs) if pair not in pairs[:at]]
    path = Rest.path("namespaces", namespace)
    if any(np.isfinite(rates[SIDES[kind]]).any() for kind in changed):
        text = json.dumps(record, separators=(",", ":"))
        await rest.ask("PUT", f"{path}/properties", {_key(cluster): text})
    for kind in changed:
        new = rates[SIDES[kind]]
        if np.isfinite(new).any():
            await rest.ask("POST", f"{path}/{_PATHS[kind]}", rate_body(kind, new))
        else:
            await rest.ask("DELETE", f"{path}/{_PATHS[kind]}")
    is_left = any(
        before.ours[kind] and np.isfinite(after[SIDES[kind]]).any() for kind in range(len(KINDS))
    )
    if not is_left and (before.recorded or record):
        await rest.ask("DELETE", f"{path}/property/{_key(cluster)}")
    return NamespaceRates(after, before.ours, is_left)


def _key(cluster: str) -> str:
    return f"quotaplane.rates.{cluster}"


def _whole(rates: FloatArray) -> list[int]:
    return [int(rate) if np.isfinite(rate) else -1 for rate in rates]


def _parsed(record: object) -> dict[str, list[Any]]:
    """By kind the rates that may be ours; nothing where somebody else changed the record."""
    try:
        found = json.loads(record) if isinstance(record, str) else {}
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {kind: rates for kind, rates in found.items() if isinstance(rates, list)}
