"""One strategy on one scenario with one seed: what happened."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.balance_arena.contenders import BESIDE_OURS, Contender, OurPlayer
from benchmarks.balance_arena.execution import SESSION_S, Execution, Moved, Outage, Player
from benchmarks.balance_arena.extensible_manager import ExtensibleManager
from benchmarks.balance_arena.modular_manager import ModularManager
from benchmarks.balance_arena.reach import forbidden, mean_use, pools, together
from benchmarks.balance_arena.scenario import Event, Scenario
from benchmarks.balance_arena.scenarios import beginning
from benchmarks.balance_arena.telemetry import CHECK_EVERY_S, STATS_EVERY_S, Noise, Stats
from benchmarks.balance_arena.world import World
from quotabalance.planning.isolation import IsolatedBrokers
from quotaplane.model import FloatArray, IntArray

_TICKS = STATS_EVERY_S // CHECK_EVERY_S


@dataclass
class Run:
    """M minutes, B brokers. All rates are true: without noise."""

    use: FloatArray
    """Shape (M, B): part of the capacity that is used, with foreign load; nan = not alive."""
    mean: FloatArray
    """Shape (M, B): the mean use that a broker's is compared with; nan = not alive."""
    cluster_bytes: FloatArray
    """Shape (M,): bytes per second of all bundles."""
    moved: list[Moved]
    parted: list[Moved]
    """Parts of split bundles that lookups placed on another broker."""
    outages: list[Outage]
    splits: int
    forbidden: IntArray
    """Shape (M,): bundles on brokers that isolation policies forbid."""
    together: int
    """Minutes of namespaces that are together beyond what is unavoidable."""


class _Simulation:
    def __init__(self, contender: Contender, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        rng = beginning(seed)
        self.world, self.factors = scenario.make(rng)
        self.base = self.world.rates.copy()
        self.stats = Stats(self.world)
        self.noise = Noise(seed, scenario.sigma)
        self.phase = CHECK_EVERY_S * rng.integers(0, _TICKS, len(self.world.brokers))
        for event in scenario.events:
            if event.what == "starts" and not _before(scenario, event):
                self.world.alive[event.broker] = False
        self.begin_minute(0)
        self.player = _player(contender, scenario, self.world, self.stats, seed)
        self.execution = Execution(
            self.world, self.player.handover, self.player.wish, self.player.place, self.touched
        )
        self.splits = 0
        self.registrations: list[float] = []

    def begin_minute(self, minute: int) -> None:
        self.world.policies = self.scenario.policies_at(minute)
        if self.factors:
            self.world.rates = self.base * self.factors(minute)[:, None]

    def touched(self, bundle: int, broker: int) -> None:
        if self.world.owner[bundle] < 0:
            self.stats.forget(bundle)
        self.player.touched(bundle, broker)

    def tick(self, now_s: int) -> None:
        self.execution.run_until(now_s)
        if self.registrations and self.registrations[0] <= now_s:
            self.registrations.pop(0)
            self.player.registered()
        due = self.world.alive & (now_s % STATS_EVERY_S == self.phase)
        due |= self.world.alive & np.isinf(self.stats.measured_s)
        if due.any():
            noisy = self.noise.measured(self.world.bundle_rates(), now_s // STATS_EVERY_S)
            self.stats.measure(self.world, noisy, due, now_s)
            self.player.measured(due)
        self.player.check(now_s)

    def happens(self, event: Event, now_s: int) -> None:
        if event.what == "isolated unloads":
            isolated = IsolatedBrokers(self.world.policies.isolation, self.world.brokers)
            names = [bundle.namespace for bundle in self.world.bundles]
            mine = np.array([isolated.is_isolated(name) for name in names])
            bundles = np.flatnonzero(mine & (self.world.owner >= 0)).tolist()
            self.execution.release(bundles, now_s + 1.0, now_s)
            return
        if event.what == "starts":
            self.world.alive[event.broker] = True
            self.stats.measured_s[event.broker] = -np.inf
            self.player.registered()
            return
        bundles = np.flatnonzero(self.world.owner == event.broker).tolist()
        self.world.alive[event.broker] = False
        dead = event.what == "dies"
        self.execution.release(bundles, now_s + (SESSION_S if dead else 1.0), now_s)
        self.stats.forget_all(event.broker)
        if dead:
            self.registrations.append(now_s + SESSION_S - CHECK_EVERY_S)
        else:
            self.player.registered()

    def round(self, now_s: int) -> None:
        orders, splits = self.player.round(now_s)
        for bundle, boundaries in splits:
            if self.world.owner[bundle] < 0:
                continue
            broker = int(self.world.owner[bundle])
            parts = self.world.split(bundle, boundaries)
            self.base = self.world.rates if not self.factors else self.base
            self.stats.forget(bundle)
            self.splits += 1
            if self.player.handover.keeps_target:
                self.player.touched(bundle, broker)
            else:  # the modular manager unloads them
                self.execution.part(parts, now_s + 1.0, now_s)
        wrong = forbidden(self.world, pools(self.world))
        orders = [order._replace(forced=bool(wrong[order.bundle])) for order in orders]
        self.execution.order(orders, now_s)


def play(contender: Contender, scenario: Scenario, seed: int) -> Run:
    """Run it; equal arguments give equal runs."""
    sim = _Simulation(contender, scenario, seed)
    use = np.full((scenario.minutes, len(sim.world.brokers)), np.nan)
    mean, wrong, close = use.copy(), np.zeros(scenario.minutes, np.int64), 0
    cluster = np.zeros(scenario.minutes)
    for minute in range(scenario.minutes):
        sim.begin_minute(minute)
        for event in scenario.events:
            if event.minute == minute:
                sim.happens(event, 60 * minute)
        for tick in range(_TICKS):
            sim.tick(60 * minute + CHECK_EVERY_S * tick)
        sizes = sim.world.bundle_rates()[:, :2].sum(axis=1)
        sim.execution.run_until(60 * (minute + 1) - 1)
        use[minute] = np.where(sim.world.alive, sim.world.use(sizes), np.nan)
        allowed = pools(sim.world)
        mean[minute] = mean_use(sim.world, sizes, allowed)
        wrong[minute] = forbidden(sim.world, allowed).sum()
        close += together(sim.world)
        cluster[minute] = sizes.sum()
        sim.round(60 * (minute + 1) - 1)
    done = sim.execution
    return Run(
        use, mean, cluster, done.moved, done.parted, done.outages, sim.splits, wrong, close
    )  # fmt: skip


def _player(
    contender: Contender, scenario: Scenario, world: World, stats: Stats, seed: int
) -> Player:
    if contender.shedder == "TransferShedder":
        return ExtensibleManager(world, stats, seed)
    if contender.options is None:
        return ModularManager(world, stats, contender.shedder, contender.placement, seed)
    # Beside ours, Pulsar's manager is only asked where brokers go: there lookups have no target.
    beside = ModularManager(world, stats, "", BESIDE_OURS, seed) if scenario.events else None
    return OurPlayer(contender.options, world, stats, beside)


def _before(scenario: Scenario, event: Event) -> bool:
    """Whether the broker was there before it starts."""
    return any(
        other.broker == event.broker and other.what != "starts" and other.minute < event.minute
        for other in scenario.events
    )
