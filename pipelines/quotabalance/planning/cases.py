"""Cases of the load balancer: clusters written as JSON, round by round, as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from quotabalance.planning.cluster_load import RATES, RESOURCES, ClusterLoad
from quotaplane.errors import InputError
from quotaplane.model import IntArray
from quotaplane.parsing.strict_json import CaseModel, Rate, parse_case
from quotaplane.topics.bundle_names import BundleName, parse_bundle

Pair = Annotated[list[Rate], Field(min_length=2, max_length=2)]
"""Usage and limit, in one unit."""
Rates = Annotated[list[Rate], Field(min_length=len(RATES), max_length=len(RATES))]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]


class BrokerLoadCase(CaseModel):
    """One broker in one round; an absent resource is neither used nor known."""

    cpu: Pair = Field(default_factory=lambda: [0.0, 0.0])
    memory: Pair = Field(default_factory=lambda: [0.0, 0.0])
    directMemory: Pair = Field(default_factory=lambda: [0.0, 0.0])  # noqa: N815 (Pulsar's name)
    bandwidthIn: Pair = Field(default_factory=lambda: [0.0, 0.0])  # noqa: N815
    bandwidthOut: Pair = Field(default_factory=lambda: [0.0, 0.0])  # noqa: N815
    bundles: dict[str, Rates] = Field(default_factory=dict)
    """By name: bytes per second in and out, messages per second in and out."""


RoundCase = dict[str, BrokerLoadCase]
"""One round: what each broker carries, by the broker's name."""


class BalanceCase(CaseModel):
    """Several rounds that one instance of a strategy decides one after the other."""

    cls: str | None = None
    """Name of the strategy; absent = quotaplane's."""
    conf: dict[str, Any] = Field(default_factory=dict)
    """Pulsar's settings, for its strategies."""
    options: dict[str, Any] = Field(default_factory=dict)
    """For quotaplane's strategy; so one case can be decided by either."""
    policies: dict[str, Any] = Field(default_factory=dict)
    """Policies of quotaplane's strategy."""
    interval_s: Annotated[float, Field(gt=0, le=1e9)] = 60.0
    """Time between two rounds."""
    rounds: list[RoundCase]
    topics: dict[str, Count] = Field(default_factory=dict)
    """How many topics a bundle has, by its name; empty = not known."""
    sessions: dict[str, Count] = Field(default_factory=dict)
    """Producers and consumers of bundles; empty = not known."""
    recent: list[str] = Field(default_factory=list)
    """Bundles that were unloaded shortly before the first round."""


def parse_balance_case(raw: object, source: str) -> BalanceCase:
    """Check a case, or a bare snapshot: one round without ``rounds`` around it.

    Raises:
        InputError: the first wrong field.

    >>> case = parse_balance_case({"b1": {"cpu": [50, 100]}}, "case")
    >>> [list(round_) for round_ in case.rounds]
    [['b1']]
    """
    return parse_case(in_rounds(raw, BalanceCase), BalanceCase, source)


def _check_ranges(bundles: Sequence[str], source: str) -> None:
    """Refuse names that are none of bundles, and bundles that have a hash in common."""
    for one, other in pairwise(sorted(check_bundle(name, source) for name in bundles)):
        if one.namespace == other.namespace and other.low < one.high:
            raise InputError(f"{source}: bundles {one} and {other} overlap")


def in_rounds(raw: object, *models: type[CaseModel]) -> object:
    """A case; if it has no key of the models, it is one round, and becomes a case of it.

    >>> in_rounds({"b1": {}}, BalanceCase), in_rounds({"rounds": []}, BalanceCase)
    ({'rounds': [{'b1': {}}]}, {'rounds': []})
    """
    known = {key for model in models for key in model.model_fields}
    if isinstance(raw, dict) and raw and not raw.keys() & known:
        return {"rounds": [raw]}
    return raw


def check_bundle(name: str, field: str) -> BundleName:
    """Read the bundle's name that a field of a case has.

    Raises:
        InputError: it is none; the error names the field.
    """
    try:
        return parse_bundle(name)
    except InputError as error:
        raise InputError(f"{field}: {error}") from None


def loads_of(
    rounds: Sequence[RoundCase],
    source: str,
    topics: Mapping[str, int] | None = None,
    sessions: Mapping[str, int] | None = None,
) -> list[ClusterLoad]:
    """The columns of each round.

    Args:
        rounds: checked.
        source: name of the case in errors.
        topics: of bundles, in all rounds; a bundle that is not in it has 0.
        sessions: the same of producers and consumers.

    Raises:
        InputError: two brokers report one bundle, a name is none of a bundle, or bundles overlap.

    >>> bundles = {"t/n/0x00000000_0xffffffff": [1.0] * 4}
    >>> (load,) = loads_of([{"b1": BrokerLoadCase(cpu=[1, 2], bundles=bundles)}], "case")
    >>> load.usage[0].tolist(), load.owner.tolist()
    ([1.0, 0.0, 0.0, 0.0, 0.0], [0])
    """
    loads = []
    for number, round_ in enumerate(rounds):
        load = _load(round_, f"{source}: rounds.{number}")
        counts = (_counts(load.bundles, topics), _counts(load.bundles, sessions))
        loads.append(replace(load, topics=counts[0], sessions=counts[1]))
    return loads


def _load(round_: RoundCase, source: str) -> ClusterLoad:
    brokers = list(round_.values())
    bundles = [name for broker in brokers for name in broker.bundles]
    _check_owners(round_, len(bundles), source)
    _check_ranges(bundles, source)
    machines = np.array(
        [[getattr(broker, resource) for resource in RESOURCES] for broker in brokers], np.float64
    ).reshape(len(brokers), len(RESOURCES), 2)
    rates = [rates for broker in brokers for rates in broker.bundles.values()]
    each = np.array([len(broker.bundles) for broker in brokers], np.int64)
    return ClusterLoad(
        brokers=tuple(round_),
        usage=machines[:, :, 0],
        limit=machines[:, :, 1],
        bundles=tuple(bundles),
        owner=np.repeat(np.arange(len(brokers)), each),
        rates=np.array(rates, np.float64).reshape(len(rates), len(RATES)),
    )


def _check_owners(round_: RoundCase, bundles: int, source: str) -> None:
    owners: dict[str, str] = {}
    for name, broker in round_.items():
        owners |= dict.fromkeys(broker.bundles, name)
    if len(owners) == bundles:
        return
    for name, broker in round_.items():
        for bundle in broker.bundles:
            if owners[bundle] != name:
                raise InputError(
                    f"{source}: bundle {bundle}: both {name} and {owners[bundle]} report it"
                )


def _counts(bundles: Sequence[str], counts: Mapping[str, int] | None) -> IntArray:
    """One number for each bundle, or none if nothing is known."""
    return np.array([counts.get(name, 0) for name in bundles] if counts else [], np.int64)
