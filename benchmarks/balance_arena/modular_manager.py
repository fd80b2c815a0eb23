"""Pulsar's modular load manager beside a simulated cluster: its classes as quotaplane has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.balance_arena.execution import Handover, Order, Player
from benchmarks.balance_arena.telemetry import ReportRule, Stats
from benchmarks.balance_arena.world import World
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.stock.average_shedder import AvgShedder
from quotabalance.stock.averages import LONG_SAMPLES, SHORT_SAMPLES, averaged
from quotabalance.stock.interface import ForgetsBrokers, StockRound
from quotabalance.stock.leader import is_recent
from quotabalance.stock.leader_placement import LeaderPlacement
from quotabalance.stock.placements import AvgPlacement, PlacementStrategy, new_placement
from quotabalance.stock.shedders import new_shedder
from quotabalance.stock.split_triggers import BundleSplitterTask
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.model import BoolArray, FloatArray, IntArray


class Report(NamedTuple):
    """A broker's entry in the metadata store. n bundles."""

    at_s: float
    usage: FloatArray
    """Shape (5,), as ``ClusterLoad.usage``."""
    limit: FloatArray
    """Shape (5,)."""
    bundles: IntArray
    """Shape (n,): the bundles that it measured."""
    rates: FloatArray
    """Shape (n, 4), as ``ClusterLoad.rates``."""


class Listing(NamedTuple):
    """All reports that the leader has. L rows: a bundle that has moved is in an old one, too."""

    brokers: list[int]
    """Numbers of the brokers that reported."""
    reports: list[Report]
    owner: IntArray
    """Shape (L,): place in ``brokers``."""
    bundles: IntArray
    """Shape (L,)."""
    rates: FloatArray
    """Shape (L, 4)."""
    newest: BoolArray
    """Shape (L,): the newest report of the bundle."""


def listing(published: dict[int, Report], active: BoolArray) -> Listing:
    """The reports of active brokers."""
    brokers = [broker for broker in published if active[broker]]
    reports = [published[broker] for broker in brokers]
    counts = [len(report.bundles) for report in reports]
    owner = np.repeat(np.arange(len(brokers)), counts)
    bundles = np.concatenate([np.zeros(0, np.int64), *(one.bundles for one in reports)])
    rates = np.concatenate([np.zeros((0, 4)), *(one.rates for one in reports)])
    age = -np.repeat(np.array([report.at_s for report in reports]), counts)
    by_age = np.lexsort((age, bundles))
    newest = np.zeros(len(bundles), np.bool_)
    newest[by_age[np.unique(bundles[by_age], return_index=True)[1]]] = True
    return Listing(brokers, reports, owner, bundles, rates, newest)


class SampledBundles:
    """``BundleData`` of every bundle. N bundles.

    >>> sampled = SampledBundles()
    >>> sampled.take(np.array([1]), np.full((1, 4), 8.0), times=12)
    >>> sampled.take(np.array([1]), np.full((1, 4), 21.0), times=1)
    >>> sampled.short[:, 0].tolist(), sampled.long[:, 0].tolist(), sampled.samples.tolist()
    ([0.0, 9.3], [0.0, 9.0], [0, 13])
    """

    def __init__(self) -> None:
        self.short: FloatArray = np.zeros((0, 4))
        self.long: FloatArray = np.zeros((0, 4))
        self.samples: IntArray = np.zeros(0, np.int64)
        """Shape (N,): at most 1000; 0 = the leader does not know the bundle."""

    def take(self, bundles: IntArray, rates: FloatArray, times: int) -> None:
        """Samples of each bundle that is listed, ``times`` each; the leader forgets all others."""
        more = int(bundles.max(initial=-1)) + 1 - len(self.samples)
        if more > 0:
            self.short, self.long = (
                np.concatenate((before, np.zeros((more, 4)))) for before in (self.short, self.long)
            )
            self.samples = np.concatenate((self.samples, np.zeros(more, np.int64)))
        passes, rest = [], np.arange(len(bundles))
        while len(rest):  # a bundle in two reports has a sample of each
            at = np.unique(bundles[rest], return_index=True)[1]
            passes.append(rest[at])
            rest = np.delete(rest, at)
        for _ in range(times):
            for rows in passes:
                self._sample(bundles[rows], rates[rows])
        known = np.zeros(len(self.samples), np.bool_)
        known[bundles] = True
        self.samples[~known] = 0

    def _sample(self, bundles: IntArray, rates: FloatArray) -> None:
        count = np.minimum(self.samples[bundles] + 1, LONG_SAMPLES)
        self.samples[bundles] = count
        for average, most in ((self.short, SHORT_SAMPLES), (self.long, LONG_SAMPLES)):
            average[bundles] = averaged(average[bundles], rates, np.minimum(count, most))


class ModularManager(Player):
    """``ModularLoadManagerImpl`` of all brokers, with one shedder and one placement."""

    # doLoadShedding waits for each unload
    handover = Handover(1, keeps_target=False)

    def __init__(self, world: World, stats: Stats, shedder: str, placement: str, seed: int) -> None:
        """``shedder`` and ``placement``: Pulsar's class names; "" = no shedding."""
        self._world, self._stats = world, stats
        self._settings = StockSettings(failureDomainsEnabled=bool(world.policies.failure_domains))
        self._shedder = new_shedder(shedder, self._settings) if shedder else None
        self._chooser: PlacementStrategy
        if isinstance(self._shedder, AvgShedder):
            self._chooser = AvgPlacement(self._settings, self._shedder.targets)
        else:
            self._chooser = new_placement(placement, self._settings)
        self._splitter = BundleSplitterTask(self._settings)
        self._rng = np.random.default_rng((seed, 11))
        self._number = {name: broker for broker, name in enumerate(world.brokers)}
        self._rule = ReportRule(len(world.brokers), self._settings)
        self._online = np.zeros(len(world.brokers), np.bool_)
        self._published: dict[int, Report] = {}
        self._bundles = SampledBundles()
        self._wishes: dict[object, int] = {}
        self._unloaded_s: dict[int, float] = {}
        self._policies = world.policies
        self._placement: LeaderPlacement | None = None
        self.registered()

    def registered(self) -> None:
        """A new broker reports at once."""
        for broker in np.flatnonzero(self._world.alive & ~self._online):
            self._rule.void(int(broker))
        self._online = self._world.alive.copy()
        self._published = {b: one for b, one in self._published.items() if self._online[b]}
        self._listed = listing(self._published, self._online)
        self._placement = None

    def check(self, now_s: float) -> None:
        """Brokers whose load changed enough report."""
        stats, brokers = self._stats, len(self._world.brokers)
        usage, limit = stats.usage(self._world)
        percent = 100.0 * (usage / limit)[:, [0, 2, 3, 4]].max(axis=1)
        sums = stats.sums(brokers)
        due = self._rule.due(now_s, sums, percent) & self._online
        if not due.any():
            return
        self._rule.reported(due, now_s, sums, percent)
        for broker in np.flatnonzero(due).tolist():
            held = np.flatnonzero(stats.holder == broker)
            rates = stats.rates[held]
            self._published[broker] = Report(now_s, usage[broker], limit[broker], held, rates)
        self._listed = listing(self._published, self._online)
        # Each report is a notification, and the leader takes a sample of everybody at each.
        self._bundles.take(self._listed.bundles, self._listed.rates, int(due.sum()))
        self._placement = None

    def round(self, now_s: float) -> tuple[list[Order], list[tuple[int, tuple[int, ...]]]]:
        """A minute's shedding, and the splits before it."""
        if self._shedder is None or self._online.sum() < 2:
            return [], []
        return self._shed(now_s), self._splits(now_s)

    def _shed(self, now_s: float) -> list[Order]:
        assert self._shedder
        placement = self._begun()
        if isinstance(self._shedder, ForgetsBrokers):
            online = np.flatnonzero(self._online).tolist()
            self._shedder.active_brokers([self._world.brokers[broker] for broker in online])
        seen = self._seen(now_s)
        row = {name: at for at, name in enumerate(seen.load.bundles)}
        orders = []
        for move in self._shedder.shed(seen).moves:
            bundle = int(self._listed.bundles[row[move.bundle]])
            name = self._world.names[bundle]
            if not placement.may_leave(name, move.source):
                continue
            target = placement.place(name, self._draw, remember=False)
            if target and target != move.source:
                self._unloaded_s[bundle] = now_s
                orders.append(Order(bundle, self._number[move.source], self._number[target]))
        return orders

    def _splits(self, now_s: float) -> list[tuple[int, tuple[int, ...]]]:
        seen = self._seen(now_s, self._listed.newest)
        bundles = self._listed.bundles[self._listed.newest].tolist()
        number = dict(zip(seen.load.bundles, bundles, strict=True))
        return sorted((number[split.bundle], ()) for split in self._splitter.find(seen).splits)

    def wish(self, bundle: int, broker: int) -> None:
        """Kept by the bundle's range only."""
        self._wishes[self._world.bundles[bundle][1:]] = broker

    def place(self, bundle: int) -> int:
        """As ``ModularLoadManagerWrapper.getLeastLoaded``, which a lookup calls."""
        wished = self._wishes.pop(self._world.bundles[bundle][1:], -1)
        if wished >= 0 and self._online[wished]:
            return wished
        if not self._listed.brokers:
            return -1
        target = self._begun().place(self._world.names[bundle], self._draw)
        return -1 if target is None else self._number[target]

    def _begun(self) -> LeaderPlacement:
        """The placement with the newest reports and policies; it forgets what was placed before."""
        policies = self._world.policies
        if self._placement is None or self._policies is not policies:
            self._policies = policies
            self._placement = LeaderPlacement(self._chooser, self._settings, policies)
            self._placement.begin(self._seen(0.0))
        return self._placement

    def _draw(self, brokers: Sequence[str]) -> str:
        return brokers[int(self._rng.integers(len(brokers)))] if len(brokers) > 1 else brokers[0]

    def _seen(self, now_s: float, rows: BoolArray | None = None) -> StockRound:
        """The leader's view: of the listing all rows, or these."""
        listed, names = self._listed, self._world.names
        chosen = np.arange(len(listed.bundles)) if rows is None else np.flatnonzero(rows)
        bundles = listed.bundles[chosen]
        settings = self._settings
        self._unloaded_s = {
            bundle: at for bundle, at in self._unloaded_s.items() if is_recent(at, now_s, settings)
        }
        texts = [names[bundle] for bundle in bundles.tolist()]
        for at in np.flatnonzero(~listed.newest[chosen]).tolist():
            texts[at] += f" as {listed.brokers[listed.owner[chosen[at]]]} reported it"
        load = ClusterLoad(
            tuple(self._world.brokers[broker] for broker in listed.brokers),
            np.array([report.usage for report in listed.reports]).reshape(-1, 5),
            np.array([report.limit for report in listed.reports]).reshape(-1, 5),
            tuple(texts),
            listed.owner[chosen],
            listed.rates[chosen],
            self._world.topics()[bundles],
        )
        return StockRound(
            load,
            self._bundles.short[bundles],
            self._bundles.long[bundles],
            np.isin(bundles, list(self._unloaded_s)),
            now_s,
            self._bundles.samples[bundles],
        )
