"""A small cluster in columns that does what the balancer orders; noise and time are explicit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import Decisions
from quotabalance.planning.options import BalanceOptions
from quotabalance.planning.planner import BalanceRound, BalanceState, decide
from quotabalance.planning.policies import Policies

_CAPACITY: Final = 1e9
"""Bytes per second that each broker can carry."""


@dataclass
class BalanceLoop:
    """Rounds of a minute. B brokers, N bundles; every broker measures once a round."""

    truth: np.ndarray
    """Shape (N,): bytes per second without noise."""
    owner: np.ndarray
    brokers: int
    options: BalanceOptions = field(default_factory=BalanceOptions)
    sigma: float = 0.0
    seed: int = 1
    foreign: Any = 0.0
    """Foreign load of each broker, as part of its machine."""
    with_limits: bool = False
    executes: Callable[[int, str], bool] = lambda _round, _bundle: True
    """Whether a move is carried out."""
    draining: Sequence[int] = ()

    def __post_init__(self) -> None:
        """Begin at minute 0."""
        self.random = np.random.default_rng(self.seed)
        self.state = BalanceState.empty()
        self.minute = 0
        self.decided: list[Decisions] = []
        self.names = [f"acme/n{i:05d}/0x00000000_0xffffffff" for i in range(len(self.truth))]
        self.broker_names = [f"b{i:04d}" for i in range(self.brokers)]

    def load(self) -> ClusterLoad:
        """Load as it is measured now, with noise."""
        noise = self.random.normal(size=len(self.truth))
        sample = self.truth * np.exp(self.sigma * noise - self.sigma**2 / 2)
        rates = np.stack([sample * 0.4, sample * 0.6, sample / 1e3, sample / 1e3], axis=1)
        usage, limit = np.zeros((2, self.brokers, 5))
        if self.with_limits:
            carried = np.bincount(self.owner, sample, self.brokers)
            limit[:, 0] = 800.0
            usage[:, 0] = limit[:, 0] * (carried / _CAPACITY + self.foreign)
        return ClusterLoad(self.broker_names, usage, limit, self.names, self.owner.copy(), rates)

    def run(self, minutes: int) -> BalanceLoop:
        """Let the balancer decide once a minute, and do what it says."""
        for _ in range(minutes):
            draining = np.isin(np.arange(self.brokers), self.draining)
            round_ = BalanceRound(self.load(), 60.0 * self.minute, np.zeros(self.brokers), draining)
            self.state, decided = decide(self.state, round_, self.options, Policies())
            for move in decided.moves:
                if self.executes(self.minute, move.bundle):
                    at = self.names.index(move.bundle)
                    assert self.broker_names[self.owner[at]] == move.source
                    self.owner[at] = self.broker_names.index(move.target)
            self.decided.append(decided)
            self.minute += 1
        return self

    def ratio(self) -> float:
        """The most loaded broker by the mean, without noise."""
        use = np.bincount(self.owner, self.truth, self.brokers) / _CAPACITY + self.foreign
        return float(use.max() / use.mean())

    def moves(self) -> int:
        """How many moves were decided so far."""
        return sum(len(decided.moves) for decided in self.decided)

    def bytes_moved(self) -> float:
        """Bytes of the moves so far, as part of the cluster's, without noise."""
        place = {name: i for i, name in enumerate(self.names)}
        moved = sum(self.truth[place[m.bundle]] for one in self.decided for m in one.moves)
        return float(moved / self.truth.sum())


def balanced_owner(truth: np.ndarray, brokers: int) -> np.ndarray:
    """The biggest bundle first, each to the broker that carries least."""
    owner = np.zeros(len(truth), np.int64)
    carried = np.zeros(brokers)
    for bundle in np.argsort(-truth):
        owner[bundle] = carried.argmin()
        carried[owner[bundle]] += truth[bundle]
    return owner
