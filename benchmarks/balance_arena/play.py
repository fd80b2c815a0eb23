"""One strategy on one scenario with one seed: what happened."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks.balance_arena.contenders import (
    BESIDE_OURS,
    Contender,
    OurPlayer,
    Player,
    StockPlayer,
)
from benchmarks.balance_arena.execution import SESSION_S, Execution, Moved, Outage
from benchmarks.balance_arena.scenarios import Event, Scenario, beginning
from benchmarks.balance_arena.stock_leader import Jvm
from benchmarks.balance_arena.telemetry import CHECK_EVERY_S, STATS_EVERY_S, Noise, Stats
from benchmarks.balance_arena.world import World
from quotaplane.model import FloatArray

_TICKS = STATS_EVERY_S // CHECK_EVERY_S


@dataclass
class Run:
    """M minutes, B brokers. All rates are true: without noise."""

    use: FloatArray
    """Shape (M, B): part of the capacity that is used, with foreign load; nan = not alive."""
    size: FloatArray
    """Shape (B,): capacities."""
    cluster_bytes: FloatArray
    """Shape (M,): bytes per second of all bundles."""
    moved: list[Moved]
    parted: list[Moved]
    """Parts of split bundles that lookups placed on another broker."""
    outages: list[Outage]
    refused: int
    splits: int
    seconds: list[float] = field(default_factory=list)
    """Ours: what each round took."""


class _Simulation:
    def __init__(
        self, contender: Contender, scenario: Scenario, seed: int, jvm: Jvm | None
    ) -> None:
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
        self.set_rates(0)
        self.player = _player(contender, scenario, self.world, self.stats, jvm, seed)
        self.execution = Execution(
            self.world, self.player.handover, self.player.wish, self.player.place, self.touched
        )
        self.splits = 0
        self.registrations: list[float] = []

    def set_rates(self, minute: int) -> None:
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
            self.player.measured(due, now_s)
        self.player.check(now_s)

    def happens(self, event: Event, now_s: int) -> None:
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
            if isinstance(self.player, StockPlayer):
                self.execution.part(parts, now_s + 1.0, now_s)
            else:
                self.player.touched(bundle, broker)
        self.execution.order(orders, now_s)


def play(contender: Contender, scenario: Scenario, seed: int, jvm: Jvm | None) -> Run:
    """Run it; equal arguments give equal runs (but where Pulsar draws without a seed)."""
    sim = _Simulation(contender, scenario, seed, jvm)
    use = np.full((scenario.minutes, len(sim.world.brokers)), np.nan)
    cluster = np.zeros(scenario.minutes)
    for minute in range(scenario.minutes):
        sim.set_rates(minute)
        for event in scenario.events:
            if event.minute == minute:
                sim.happens(event, 60 * minute)
        for tick in range(_TICKS):
            sim.tick(60 * minute + CHECK_EVERY_S * tick)
        sizes = sim.world.bundle_rates()[:, :2].sum(axis=1)
        sim.execution.run_until(60 * (minute + 1) - 1)
        use[minute] = np.where(sim.world.alive, sim.world.use(sizes), np.nan)
        cluster[minute] = sizes.sum()
        sim.round(60 * (minute + 1) - 1)
    done = sim.execution
    seconds = sim.player.seconds if isinstance(sim.player, OurPlayer) else []
    return Run(
        use, sim.world.size, cluster, done.moved, done.parted, done.outages, done.refused,
        sim.splits, seconds,
    )  # fmt: skip


def _player(
    contender: Contender,
    scenario: Scenario,
    world: World,
    stats: Stats,
    jvm: Jvm | None,
    seed: int,
) -> Player:
    # Beside ours, Pulsar's manager is only asked where brokers go: there lookups have no target.
    if contender.options and not scenario.events:
        return OurPlayer(contender.options, world, stats, None)
    if jvm is None:
        raise ValueError(f"{contender.name} needs a JVM for {scenario.name}")
    if contender.options is None:
        return StockPlayer(contender, world, stats, jvm, seed)
    beside = contender._replace(placement=BESIDE_OURS)
    elsewhere = StockPlayer(beside, world, stats, jvm, seed)
    return OurPlayer(contender.options, world, stats, elsewhere)


def _before(scenario: Scenario, event: Event) -> bool:
    """Whether the broker was there before it starts."""
    return any(
        other.broker == event.broker and other.what != "starts" and other.minute < event.minute
        for other in scenario.events
    )
