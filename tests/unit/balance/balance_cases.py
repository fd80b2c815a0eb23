"""Clusters and rounds for tests of the balancer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from quotabalance.planning.bundle_orders import NotMade
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import Decisions
from quotabalance.planning.options import BalanceOptions
from quotabalance.planning.planner import BalanceRound, BalanceState, decide
from quotabalance.planning.policies import Policies

AT_ONCE = {
    "confirm_samples": 1,
    "confirm_window_samples": 1,
    "noise_z": 0,
    "stop_below": 0.1,
    "max_bytes_share_per_round": 1,
}
"""Options with which the first sample is believed."""

HOT = {"b1": [10.0] * 20, "b2": [10.0] * 10, "b3": [10.0] * 9}
"""A cluster whose first broker is overloaded."""


def bundle(number: int, namespace: str = "acme/orders") -> str:
    """The name of a bundle."""
    return f"{namespace}/0x{number:08x}_0x{number + 2:08x}"


def cluster(
    held: Mapping[str, Sequence[float] | Mapping[str, float]],
    topics: Mapping[str, int] | None = None,
    cpu: Mapping[str, tuple[float, float]] | None = None,
) -> ClusterLoad:
    """A cluster from brokers and the bytes per second of their bundles."""
    names: list[str] = []
    owner: list[int] = []
    loads: list[float] = []
    for broker, bundles in enumerate(held.values()):
        if not isinstance(bundles, Mapping):
            bundles = {bundle(1000 * broker + 2 * i): x for i, x in enumerate(bundles)}
        names += bundles
        owner += [broker] * len(bundles)
        loads += bundles.values()
    rates = np.zeros((len(names), 4))
    rates[:, 0] = loads
    usage, limit = np.zeros((2, len(held), 5))
    for broker, name in enumerate(held):
        usage[broker, 0], limit[broker, 0] = (cpu or {}).get(name, (0.0, 0.0))
    return ClusterLoad(
        tuple(held),
        usage,
        limit,
        tuple(names),
        np.array(owner, np.int64),
        rates,
        np.array([topics.get(name, 5) for name in names]) if topics else np.zeros(0, np.int64),
    )


def once(
    load: ClusterLoad,
    policies: Policies | None = None,
    state: BalanceState | None = None,
    now_s: float = 0.0,
    age_s: Sequence[float] | None = None,
    draining: Sequence[str] = (),
    not_made: Sequence[NotMade] = (),
    **options: Any,
) -> tuple[BalanceState, Decisions]:
    """One round, by default with ``AT_ONCE``."""
    count = len(load.brokers)
    round_ = BalanceRound(
        load,
        now_s,
        np.zeros(count) if age_s is None else np.array(age_s, np.float64),
        np.array([name in draining for name in load.brokers], np.bool_),
        not_made,
    )
    given = BalanceOptions.model_validate({**AT_ONCE, **options})
    return decide(state or BalanceState.empty(), round_, given, policies or Policies())


def applied(load: ClusterLoad, decided: Decisions) -> ClusterLoad:
    """The cluster after all moves."""
    owner = load.owner.copy()
    for move in decided.moves:
        place = list(load.bundles).index(move.bundle)
        assert load.brokers[owner[place]] == move.source
        owner[place] = list(load.brokers).index(move.target)
    return replace(load, owner=owner)


def labels(decided: Decisions) -> set[str]:
    """Labels of all moves, splits and skips."""
    everything = (*decided.moves, *decided.splits, *decided.skips)
    return {one.label for one in everything}
