"""Pulsar's extensible load manager beside a simulated cluster, as quotaplane has its classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from benchmarks.balance_arena.execution import Handover, Order, Player
from benchmarks.balance_arena.telemetry import ReportRule, Stats
from benchmarks.balance_arena.world import World
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.stock.extensible_placement import ExtensiblePlacement
from quotabalance.stock.interface import BrokerLoads, StockRound
from quotabalance.stock.leader import is_recent
from quotabalance.stock.split_algorithms import range_equally_divide
from quotabalance.stock.split_triggers import ExtensibleSplitter
from quotabalance.stock.stock_settings import StockSettings
from quotabalance.stock.transfer_loads import weighted_max
from quotabalance.stock.transfer_shedder import TransferShedder
from quotaplane.model import BoolArray, FloatArray, IntArray

_ALL_AT_ONCE: Final = 100_000


class ExtensibleManager(Player):
    """``ExtensibleLoadManagerImpl`` of all brokers. B brokers."""

    handover = Handover(_ALL_AT_ONCE, keeps_target=True)

    def __init__(self, world: World, stats: Stats, seed: int) -> None:
        self._world, self._stats = world, stats
        brokers = len(world.brokers)
        self._settings = StockSettings(failureDomainsEnabled=bool(world.policies.failure_domains))
        self._shedder = TransferShedder(self._settings)
        self._splitters = [
            ExtensibleSplitter(self._settings, range_equally_divide) for _ in range(brokers)
        ]
        self._rng = np.random.default_rng((seed, 11))
        self._rule = ReportRule(brokers, self._settings)
        self._online = np.zeros(brokers, np.bool_)
        self._averages: FloatArray = np.full((brokers, 2), np.nan)
        """Use and bytes per second, of each broker itself."""
        self._reported: FloatArray = np.full((brokers, 3), np.nan)
        """Columns of ``BrokerLoads``."""
        self._reported_s: FloatArray = np.full(brokers, np.nan)
        self._bundles_reported = np.zeros(brokers, np.bool_)
        self._bundles_due = np.zeros(brokers, np.bool_)
        self._unloaded_s: dict[int, float] = {}
        self._broker_unloaded_s: FloatArray = np.full(brokers, -np.inf)
        self.registered()

    def registered(self) -> None:
        """A new broker reports at once; the reports of one that is gone are gone, too."""
        for broker in np.flatnonzero(self._world.alive & ~self._online).tolist():
            self._rule.void(broker)
        self._online = self._world.alive.copy()
        for broker in np.flatnonzero(~self._online).tolist():
            self._forget(broker)

    def measured(self, due: BoolArray) -> None:
        """New numbers of bundles go out at the next check."""
        self._bundles_due |= due

    def check(self, now_s: float) -> None:
        """Every broker's averages move on, and brokers whose load changed enough report."""
        brokers = len(self._world.brokers)
        usage, limit = self._stats.usage(self._world)
        sums = self._stats.sums(brokers)
        load = self._load(np.arange(brokers), usage, limit, np.zeros(0, np.int64))
        now = np.stack((weighted_max(load, self._settings), sums[:, 1]), axis=1)
        history = self._settings.loadBalancerHistoryResourcePercentage
        smooth = self._averages * history + (1 - history) * now
        self._averages = np.where(np.isnan(self._averages), now, smooth)
        percent = 100.0 * (usage / limit)[:, [0, 2, 3, 4]].max(axis=1)
        due = self._rule.due(now_s, sums, percent) & self._online
        self._rule.reported(due, now_s, sums, percent)
        self._reported[due] = np.column_stack((self._averages, sums[:, 1]))[due]
        self._reported_s[due] = now_s
        self._bundles_reported |= self._bundles_due & self._online
        self._bundles_due &= ~self._online

    def round(self, now_s: float) -> tuple[list[Order], list[tuple[int, tuple[int, ...]]]]:
        """A minute's transfers, and the splits of each broker."""
        if self._online.sum() < 2:
            return [], []
        seen, brokers, bundles = self._seen(now_s)
        number = dict(zip(seen.load.bundles, bundles.tolist(), strict=True))
        of_broker = dict(zip(seen.load.brokers, brokers.tolist(), strict=True))
        self._shedder.policies = self._world.policies
        orders = []
        for move in self._shedder.shed(seen).moves:
            order = Order(number[move.bundle], of_broker[move.source], of_broker[move.target])
            self._unloaded_s[order.bundle] = now_s
            self._broker_unloaded_s[order.source] = now_s
            orders.append(order)
        splits = [
            (number[split.bundle], split.boundaries)
            for place, broker in enumerate(brokers.tolist())
            for split in self._splitters[broker].find(seen.load, place).splits
        ]
        return sorted(orders), splits

    def place(self, bundle: int) -> int:
        """As ``LeastResourceUsageWithWeight.select`` after the filters."""
        seen, brokers, _ = self._seen(0.0)
        if not len(brokers):
            return -1
        placement = ExtensiblePlacement(self._settings, self._world.policies)
        placement.begin(seen)
        found = placement.place(self._world.names[bundle], self._draw)
        return -1 if found is None else self._world.brokers.index(found)

    def touched(self, bundle: int, broker: int) -> None:
        """Brokers void their numbers when a bundle leaves or comes."""
        self._forget(broker)
        self._rule.void(broker)

    def _forget(self, broker: int) -> None:
        self._averages[broker] = self._reported[broker] = np.nan
        self._reported_s[broker] = np.nan
        self._bundles_reported[broker] = False

    def _draw(self, brokers: Sequence[str]) -> str:
        return brokers[int(self._rng.integers(len(brokers)))]

    def _seen(self, now_s: float) -> tuple[StockRound, IntArray, IntArray]:
        """The leader's view, and the numbers of its brokers and bundles."""
        has_report = self._online & ~np.isnan(self._reported_s)
        brokers, missing = np.flatnonzero(has_report), np.flatnonzero(self._online & ~has_report)
        owner = self._world.owner
        bundles = np.flatnonzero((owner >= 0) & has_report[owner])
        usage, limit = self._stats.usage(self._world)
        load = self._load(brokers, usage, limit, bundles)
        self._unloaded_s = {
            bundle: at
            for bundle, at in self._unloaded_s.items()
            if is_recent(at, now_s, self._settings)
        }
        at_s = self._reported_s[brokers]
        seen = StockRound(
            load,
            load.rates,
            load.rates,
            np.isin(bundles, list(self._unloaded_s)),
            now_s,
            report_age_s=now_s - at_s,
            since_unload_s=at_s - self._broker_unloaded_s[brokers],
            missing=[self._world.brokers[broker] for broker in missing.tolist()],
            broker_loads=BrokerLoads(*self._reported[brokers].T),
        )
        return seen, brokers, bundles

    def _load(
        self, brokers: IntArray, usage: FloatArray, limit: FloatArray, bundles: IntArray
    ) -> ClusterLoad:
        """Bundles whose broker has not reported them are listed without rates."""
        world, stats = self._world, self._stats
        known = bundles[bundles < len(stats.holder)]
        known = known[stats.holder[known] == world.owner[known]]
        known = known[self._bundles_reported[world.owner[known]]]
        rates = np.zeros((len(world.bundles), 4))
        rates[known] = stats.rates[known]
        place = np.zeros(len(world.brokers), np.int64)
        place[brokers] = np.arange(len(brokers))
        return ClusterLoad(
            tuple(world.brokers[broker] for broker in brokers.tolist()),
            usage[brokers],
            limit[brokers],
            tuple(world.names[bundle] for bundle in bundles.tolist()),
            place[world.owner[bundles]],
            rates[bundles],
            world.topics()[bundles],
        )
