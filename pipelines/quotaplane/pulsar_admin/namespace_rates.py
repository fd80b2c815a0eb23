"""Reads and writes rates of namespaces; each topic without its own rate is held to them.

They are part of the namespace's policies. In Pulsar 4.0 each topic gets the rate in full, from its
first message on. A property of the namespace records the rates that we set, so that a later run
does not take a rate of another program for ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from quotaplane.errors import ClusterError
from quotaplane.model import BASIC, BoolArray, FloatArray
from quotaplane.parsing.bounded_json import MALFORMED, parse_bounded
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.pulsar_admin.topic_rates import PATHS, RATE_KEYS, rate_body, rates_in
from quotaplane.topics.topic_layout import KINDS, SIDES

_POLICIES: Final = ("publishMaxMessageRate", "topicDispatchRate")
"""Keys in a namespace's policies; each holds rates by cluster."""


@dataclass(frozen=True)
class NamespaceRates:
    """The rates of a namespace in one cluster."""

    in_force: FloatArray
    """(4,) per second; inf = unlimited."""
    ours: BoolArray
    """(2,) by kind: we set the rate, or there is none."""
    recorded: bool
    """The namespace has a record of our rates."""

    def same_as(self, other: NamespaceRates | None) -> bool:
        """Whether both are equal."""
        return (
            other is not None
            and self.recorded == other.recorded
            and np.array_equal(self.in_force, other.in_force)
            and np.array_equal(self.ours, other.ours)
        )


def namespace_rates(policies: object, cluster: str) -> NamespaceRates:
    """Parse the rates in a namespace's policies.

    >>> rate = {"publishThrottlingRateInMsg": 20, "publishThrottlingRateInByte": -1}
    >>> rates = namespace_rates({"publishMaxMessageRate": {"blue": rate}}, "blue")
    >>> rates.in_force.tolist(), rates.ours.tolist(), rates.recorded
    ([20.0, inf, inf, inf], [False, True], False)

    Raises:
        ClusterError: the answer is not policies.
    """
    if not isinstance(policies, Mapping):
        raise ClusterError("Pulsar's REST API: a namespace: the answer has no policies")
    properties = policies.get("properties") or {}
    if not isinstance(properties, Mapping):
        raise ClusterError("Pulsar's REST API: a namespace: its properties are no object")
    record = _parsed(properties.get(_key(cluster)))
    in_force = np.full(BASIC, np.inf)
    ours = np.ones(len(KINDS), np.bool_)
    for kind, name in enumerate(KINDS):
        try:
            policy = (policies.get(_POLICIES[kind]) or {}).get(cluster)
            if not policy:
                continue
            in_force[SIDES[kind]] = rates_in(policy, kind)
            exact = [int(policy.get(key, -1)) for key in RATE_KEYS[kind]]
        except MALFORMED:
            raise ClusterError(
                f"Pulsar's REST API: a namespace: {_POLICIES[kind]} has no valid rates"
            ) from None
        plain = not policy.get("relativeToPublishRate") and policy.get("ratePeriodInSecond", 1) == 1
        none = not np.isfinite(in_force[SIDES[kind]]).any()
        ours[kind] = plain and (none or exact in record.get(name, []))
    return NamespaceRates(in_force, ours, _key(cluster) in properties)


async def write_namespace_rates(
    rest: Rest, namespace: str, cluster: str, before: NamespaceRates, rates: FloatArray
) -> NamespaceRates:
    """Write rates (4,) of the kinds that are ours; inf in both of a kind removes its rate.

    Each write gives every topic of the namespace a burst of one second's rate.

    Raises:
        ClusterError: a request failed, so the rates in force are uncertain.
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
        # Record both: if the write fails, either may be in force.
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
            await rest.ask("POST", f"{path}/{PATHS[kind]}", rate_body(kind, new))
        else:
            await rest.ask("DELETE", f"{path}/{PATHS[kind]}")
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
    """The rates that may be ours, by kind; empty if another program changed the record."""
    try:
        by_kind = parse_bounded(record.encode()) if isinstance(record, str) else {}
    except ValueError:
        return {}
    if not isinstance(by_kind, dict):
        return {}
    return {kind: rates for kind, rates in by_kind.items() if isinstance(rates, list)}
