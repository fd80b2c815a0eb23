"""quotaplane's own strategy: one round, from the load of a cluster to moves and splits. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from quotaplane.balance.cluster_load import ClusterLoad
from quotaplane.balance.decisions import Decisions, Move
from quotaplane.balance.options import BalanceOptions
from quotaplane.balance.policies import Policies
from quotaplane.model import BoolArray, FloatArray


class BalanceRound(NamedTuple):
    """What is known when a round begins. B brokers."""

    load: ClusterLoad
    now_s: float
    """Seconds of a clock; only differences count."""
    age_s: FloatArray
    """Shape (B,): seconds since each broker's numbers were measured; inf = there are none."""
    draining: BoolArray
    """Shape (B,): to be taken out, besides those of the policies."""


@dataclass(frozen=True)
class BalanceState:
    """What a round leaves for the next."""

    moved_at_s: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def empty(cls) -> BalanceState:
        """The state before the first round."""
        return cls()

    def to_bytes(self) -> bytes:
        """The state as bytes."""
        return json.dumps(self.moved_at_s).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> BalanceState:
        """The state from its bytes."""
        return cls(json.loads(data))


def decide(
    state: BalanceState, round_: BalanceRound, options: BalanceOptions, policies: Policies
) -> tuple[BalanceState, Decisions]:
    """Decide one round; returns the new state and what is to be done."""
    load = round_.load
    load.check()
    moved = {k: t for k, t in state.moved_at_s.items() if round_.now_s - t < options.grace_s}
    weights = policies.weights(load.brokers)
    size = load.throughput()
    carried = load.throughput_of_brokers()
    mean = carried.sum() / weights.sum()
    moves: list[Move] = []
    for source in np.argsort(-carried / weights, kind="stable"):
        if carried[source] <= (1 + options.start_above) * mean * weights[source]:
            break
        for bundle in sorted(np.flatnonzero(load.owner == source), key=lambda i: -size[i]):
            excess = carried[source] - (1 + options.stop_below) * mean * weights[source]
            target = int((carried / weights).argmin())
            fits = (
                carried[target] + size[bundle] <= (1 + options.stop_below) * mean * weights[target]
            )
            name = load.bundles[bundle]
            if excess > 0 and size[bundle] > 0 and fits and name not in moved:
                carried[source] -= size[bundle]
                carried[target] += size[bundle]
                moved[name] = round_.now_s
                names = load.brokers[source], load.brokers[target]
                moves.append(Move(name, *names, float(size[bundle]), "Overloaded", "is overloaded"))
    return BalanceState(moved), Decisions(moves)
