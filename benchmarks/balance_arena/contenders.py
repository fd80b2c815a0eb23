"""The strategies: Pulsar's pairs of shedder and placement, and ours."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from benchmarks.balance_arena.execution import Handover, Order, Player
from benchmarks.balance_arena.modular_manager import ModularManager
from benchmarks.balance_arena.telemetry import Stats
from benchmarks.balance_arena.world import RETIRED, World
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.options import BalanceOptions
from quotabalance.planning.planner import BalanceRound, BalanceState, decide

START: Final = 0.97
"""``start_above`` of ours by the wanted imbalance."""
STOP: Final = 0.92
"""``stop_below`` of ours by the wanted imbalance."""
BESIDE_OURS: Final = "LeastResourceUsageWithWeight"
"""Pulsar's placement beside ours: where lookups put bundles of a broker that is gone."""


class Contender(NamedTuple):
    """A strategy in the arena."""

    name: str
    shedder: str = ""
    """Pulsar's class; "" = ours."""
    placement: str = ""
    """Pulsar's class."""
    options: BalanceOptions | None = None


def ours(eps: float) -> BalanceOptions:
    """Ours for a wanted imbalance: both thresholds below it leave room for what is not known."""
    return BalanceOptions(start_above=round(START * eps, 6), stop_below=round(STOP * eps, 6))


def _stock(shedder: str, placement: str) -> Contender:
    """Named by both classes, unless one comes only with the other."""
    fixed = shedder in ("AvgShedder", "TransferShedder")
    return Contender(shedder if fixed else f"{shedder} + {placement}", shedder, placement)


STOCK: Final = (
    # Pulsar 4.0's default
    _stock("ThresholdShedder", "LeastLongTermMessageRate"),
    # the documentation's pair
    _stock("ThresholdShedder", "LeastResourceUsageWithWeight"),
    _stock("UniformLoadShedder", "LeastLongTermMessageRate"),
    _stock("OverloadShedder", "LeastLongTermMessageRate"),
    _stock("AvgShedder", "AvgShedder"),
    _stock("TransferShedder", "LeastResourceUsageWithWeight"),
)
EPS: Final = (0.15, 0.10, 0.05)
MORE_EPS: Final = (1.2, 0.9, 0.6, 0.4, 0.3, 0.2)
"""Only for the planes."""
OURS: Final = tuple(Contender(f"ours {eps:.2f}", options=ours(eps)) for eps in (*EPS, *MORE_EPS))


class OurPlayer(Player):
    """``planner.decide`` once a minute on the numbers of the brokers' REST interface.

    Lookups are placed by ``elsewhere``: Pulsar's manager with its shedding switched off.
    """

    handover = Handover(8, keeps_target=True, one_of_a_range=True)

    def __init__(
        self, options: BalanceOptions, world: World, stats: Stats, elsewhere: ModularManager | None
    ) -> None:
        self._options, self._world, self._stats = options, world, stats
        self._elsewhere = elsewhere
        self._state = BalanceState.empty()

    def registered(self) -> None:
        """Pulsar's manager sees it; ours at the next round."""
        if self._elsewhere:
            self._elsewhere.registered()

    def check(self, now_s: float) -> None:
        """Pulsar's manager goes on reporting."""
        if self._elsewhere:
            self._elsewhere.check(now_s)

    def round(self, now_s: float) -> tuple[list[Order], list[tuple[int, tuple[int, ...]]]]:
        """A round of ours."""
        load, brokers, bundles = self.load()
        age_s = now_s - self._stats.measured_s[brokers]
        self._state, decided = decide(
            self._state,
            BalanceRound(load, now_s, age_s, np.zeros(len(brokers), dtype=np.bool_)),
            self._options,
            self._world.policies,
        )
        bundle_of = {name: int(number) for name, number in zip(load.bundles, bundles, strict=True)}
        broker_of = {name: int(number) for name, number in zip(load.brokers, brokers, strict=True)}
        orders = [
            Order(bundle_of[move.bundle], broker_of[move.source], broker_of[move.target])
            for move in decided.moves
        ]
        splits = [(bundle_of[split.bundle], split.boundaries) for split in decided.splits]
        return orders, splits

    def load(self) -> tuple[ClusterLoad, np.ndarray, np.ndarray]:
        """The load as it is known now, and the indices of its brokers and bundles."""
        brokers = np.flatnonzero(self._world.alive)
        usage, limit = self._stats.usage(self._world)
        known = self._stats.holder >= 0
        known &= self._world.owner[: len(known)] != RETIRED
        known &= self._world.alive[self._stats.holder]
        bundles = np.flatnonzero(known)
        index = np.full(len(self._world.brokers), -1)
        index[brokers] = np.arange(len(brokers))
        load = ClusterLoad(
            brokers=[self._world.brokers[broker] for broker in brokers],
            usage=usage[brokers],
            limit=limit[brokers],
            bundles=[self._world.names[bundle] for bundle in bundles],
            owner=index[self._stats.holder[bundles]],
            rates=self._stats.rates[bundles],
            topics=self._world.topics()[bundles],
        )
        return load, brokers, bundles

    def place(self, bundle: int) -> int:
        """By Pulsar's manager."""
        return self._elsewhere.place(bundle) if self._elsewhere else -1
