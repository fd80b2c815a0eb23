"""Cases of the load balancer: clusters written as JSON, round by round, as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from quotaplane.balance.cluster_load import RATES, RESOURCES, ClusterLoad
from quotaplane.errors import InputError
from quotaplane.strict_json import CaseModel, Rate, parse_case

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
    topics: dict[str, Count] = Field(default_factory=dict)
    """Topics of a bundle; absent = not known."""
    sessions: dict[str, Count] = Field(default_factory=dict)
    """Producers and consumers of a bundle; absent = not known."""


RoundCase = dict[str, BrokerLoadCase]
"""One round: what each broker carries, by the broker's name."""


class BalanceCase(CaseModel):
    """Several rounds that one instance of a strategy decides one after the other."""

    cls: str | None = None
    """Name of the strategy; absent = quotaplane's."""
    conf: dict[str, Any] = Field(default_factory=dict)
    """Pulsar's settings; of quotaplane's strategy, its options."""
    policies: dict[str, Any] = Field(default_factory=dict)
    """Of quotaplane's strategy."""
    interval_s: Annotated[float, Field(gt=0, le=1e9)] = 60.0
    """Time between two rounds."""
    rounds: list[RoundCase]
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
    if isinstance(raw, dict) and raw and not raw.keys() & BalanceCase.model_fields.keys():
        raw = {"rounds": [raw]}
    return parse_case(raw, BalanceCase, source)


def load_of(round_: Mapping[str, BrokerLoadCase], source: str) -> ClusterLoad:
    """The columns of one round.

    Raises:
        InputError: two brokers report one bundle, or a count is of a bundle that is not there.

    >>> round_ = {"b1": BrokerLoadCase(cpu=[1, 2], bundles={"t/n/0x00000000_0xffffffff": [1] * 4})}
    >>> load = load_of(round_, "case")
    >>> load.usage[0].tolist(), load.owner.tolist()
    ([1.0, 0.0, 0.0, 0.0, 0.0], [0])
    """
    brokers = list(round_.values())
    bundles = [name for broker in brokers for name in broker.bundles]
    _check_owners(round_, len(bundles), source)
    machines = np.array(
        [[getattr(broker, resource) for resource in RESOURCES] for broker in brokers], np.float64
    ).reshape(len(brokers), len(RESOURCES), 2)
    rates = [rates for broker in brokers for rates in broker.bundles.values()]
    return ClusterLoad(
        brokers=tuple(round_),
        usage=machines[:, :, 0],
        limit=machines[:, :, 1],
        bundles=tuple(bundles),
        owner=np.repeat(np.arange(len(brokers)), [len(broker.bundles) for broker in brokers]),
        rates=np.array(rates, np.float64).reshape(len(rates), len(RATES)),
        topics=_counts(brokers, "topics"),
        sessions=_counts(brokers, "sessions"),
    )


def _check_owners(round_: Mapping[str, BrokerLoadCase], bundles: int, source: str) -> None:
    owners: dict[str, str] = {}
    for name, broker in round_.items():
        for kind in ("topics", "sessions"):
            unknown = getattr(broker, kind).keys() - broker.bundles.keys()
            if unknown:
                raise InputError(
                    f"{source}: broker {name}: {kind}: {min(unknown)} is none of its bundles"
                )
        owners |= dict.fromkeys(broker.bundles, name)
    if len(owners) == bundles:
        return
    for name, broker in round_.items():
        for bundle in broker.bundles:
            if owners[bundle] != name:
                raise InputError(
                    f"{source}: bundle {bundle}: both {name} and {owners[bundle]} report it"
                )


def _counts(brokers: Sequence[BrokerLoadCase], kind: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    """One number for each bundle if any is known; a bundle without one has 0."""
    known = [(getattr(broker, kind), broker.bundles) for broker in brokers]
    if not any(counts for counts, _ in known):
        return np.zeros(0, np.int64)
    return np.array([counts.get(name, 0) for counts, names in known for name in names], np.int64)
