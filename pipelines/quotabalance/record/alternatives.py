"""Recorded rounds, decided again: exactly, or by another strategy whose moves are made. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import Decisions
from quotabalance.planning.planner import BalanceRound
from quotabalance.record.strategies import Strategy
from quotaplane.model import FloatArray

REPEAT_S: Final = 1800.0
"""A move of a bundle that was moved less than this ago is a repeat move: Pulsar's grace period."""


@dataclass
class StrategyOutcome:
    """The results of a strategy over some rounds."""

    rounds: int = 0
    moves: int = 0
    moved_bytes_per_s: float = 0.0
    repeat_moves: int = 0
    splits: int = 0
    imbalances: list[float] = field(default_factory=list)
    """``ClusterLoad.max_by_mean`` of each round, before its moves."""
    _moved_at_s: dict[str, float] = field(default_factory=dict, repr=False)
    _waiting: set[tuple[str, str]] = field(default_factory=set, repr=False)
    """Bundles whose move or split is proposed, with the brokers that have them."""

    def add(
        self, load: ClusterLoad, now_s: float, decisions: Decisions, *, proposed: bool = False
    ) -> None:
        """Count a round.

        Proposals wait for an approval and are made again each round: until its bundle leaves its
        broker, one counts once.
        """
        if proposed:
            decisions = self._new_proposals(load, decisions)
        self.rounds += 1
        self.imbalances.append(load.max_by_mean())
        self.splits += len(decisions.splits)
        for move in decisions.moves:
            if not move.target or move.target == move.source:  # placed where it was
                continue
            last_s = self._moved_at_s.get(move.bundle)
            self.repeat_moves += last_s is not None and now_s - last_s < REPEAT_S
            self._moved_at_s[move.bundle] = now_s
            self.moves += 1
            self.moved_bytes_per_s += move.bytes_per_s

    def _new_proposals(self, load: ClusterLoad, decisions: Decisions) -> Decisions:
        owner = dict(zip(load.bundles, load.owner.tolist(), strict=True))
        waiting = {
            (bundle, broker)
            for bundle, broker in self._waiting
            if bundle not in owner or load.brokers[owner[bundle]] == broker
        }
        moves = [each for each in decisions.moves if (each.bundle, each.source) not in waiting]
        splits = [each for each in decisions.splits if (each.bundle, each.owner) not in waiting]
        waiting |= {(move.bundle, move.source) for move in moves}
        self._waiting = waiting | {(split.bundle, split.owner) for split in splits}
        return decisions._replace(moves=moves, splits=splits)

    def figures(self) -> dict[str, float]:
        """The figures to show."""
        found = np.array(self.imbalances or [1.0])
        return {
            "rounds": self.rounds,
            "moves": self.moves,
            "moved_bytes_per_s": self.moved_bytes_per_s,
            "repeat_moves": self.repeat_moves,
            "splits": self.splits,
            "imbalance_mean": round(float(found.mean()), 4),
            "imbalance_p95": round(float(np.quantile(found, 0.95)), 4),
            "imbalance_max": round(float(found.max()), 4),
            "imbalance_last": round(float(found[-1]), 4),
        }


class OtherOwners:
    """The owners that bundles would have if a strategy's moves were made instead of the recorded.

    Loads of bundles are those recorded. A bundle is where the record shows it first; later changes
    of its owner in the record don't count, unless its broker is gone. Splits are not made: a
    bundle exists as long as the record has it.
    """

    def __init__(self) -> None:
        self._broker: dict[str, str] = {}

    def of(self, load: ClusterLoad) -> ClusterLoad:
        """The load with these owners, and use of machines to match."""
        place = {name: index for index, name in enumerate(load.brokers)}
        owner = load.owner.copy()
        for at, (bundle, recorded) in enumerate(
            zip(load.bundles, load.owner.tolist(), strict=True)
        ):
            broker = self._broker.get(bundle)
            if broker is None or broker not in place:
                self._broker[bundle] = load.brokers[recorded]
            else:
                owner[at] = place[broker]
        if (owner == load.owner).all():
            return load
        other = replace(load, owner=owner)
        return replace(other, usage=_usage(load, other))

    def move(self, decisions: Decisions) -> None:
        """Make a round's moves."""
        self._broker.update((move.bundle, move.target) for move in decisions.moves if move.target)


def _usage(recorded: ClusterLoad, other: ClusterLoad) -> FloatArray:
    """Use of machines if bundles are elsewhere. Memory stays.

    A byte per second takes as much of a resource on every broker: the cluster's use divided by its
    bytes per second.
    """
    before, after = recorded.throughput_of_brokers(), other.throughput_of_brokers()
    total = before.sum()
    each = recorded.usage.sum(axis=0) / total if total > 0 else np.zeros(recorded.usage.shape[1])
    each[1:3] = 0.0
    return np.maximum(recorded.usage + np.outer(after - before, each), 0.0)


def run_alternative(
    rounds: Mapping[tuple[int, int], BalanceRound], strategy: Strategy
) -> StrategyOutcome:
    """The results that a strategy would have had."""
    owners, outcome = OtherOwners(), StrategyOutcome()
    for round_ in rounds.values():
        load = owners.of(round_.load)
        decisions = strategy.decide(round_._replace(load=load))
        outcome.add(load, round_.now_s, decisions)
        owners.move(decisions)
    return outcome
