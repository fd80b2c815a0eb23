"""Scenarios of the arena: who wants how much of a quota when, and what becomes of reports.

A round is 5 s. Rates are messages per second, of a quota of 10,000 (more where there are many
brokers), so that PIP-82's numbers are here times a hundred: enough that the noise of a 5 s window
stays within "10 % of fair", and little enough that it shows. One scenario has PIP-82's own numbers.
Conditions with a noise of fewer
counts scale a scenario down: all its rates are divided by the same number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from quotaplane.model import BoolArray, FloatArray
from quotaplane.sim.demand_schedule import POISSON, CountNoise, noisy, small_rate
from quotaplane.sim.loop import PERFECT, Network

WINDOW_S: Final = 5.0
QUOTA: Final = 10_000.0


class Shift(NamedTuple):
    """From this round on something is different, and limits must follow."""

    round_: int
    what: str


@dataclass(frozen=True)
class Scenario:
    """True mean demand and quota, round by round."""

    name: str
    demand: FloatArray
    """(rounds, brokers), per second."""
    quota: FloatArray
    """(rounds,), per second."""
    alive: BoolArray
    """(rounds, brokers)."""
    shifts: tuple[Shift, ...]
    """The first is the cold start in round 0."""


@dataclass(frozen=True)
class Condition:
    """Noise and faults added to a scenario; ``seeds`` as many runs, because chance decides."""

    name: str
    says: str
    noise: CountNoise | None = None
    lost: float = 0.0
    delays: tuple[int, ...] = field(default=(0,))
    seeds: int = 1


FEW: Final = "30 counts"
"""The condition of the plots about noise."""

CONDITIONS: Final = (
    Condition("none", "demand is its mean, every report arrives"),
    Condition(
        "poisson",
        "demand of a round is a Poisson count around its mean",
        noise=POISSON,
        seeds=5,
    ),
    Condition("lost", "20 % of the reports never arrive", lost=0.2, seeds=5),
    Condition("delayed", "each report arrives 1 to 3 rounds late", delays=(1, 2, 3), seeds=5),
    Condition(
        FEW,
        "Poisson, with rates at which a small broker wants 30 messages in a round",
        noise=CountNoise(counts=30),
        seeds=5,
    ),
    Condition(
        "dispersion 4",
        "batches: a small broker wants 100 messages in a round, with a variance of 400",
        noise=CountNoise(counts=100, dispersion=4),
        seeds=5,
    ),
)

OWN_SCALE: Final = "under-use of 100"
"""The scenario with PIP-82's own numbers."""

HARDER: Final = frozenset({FEW, "dispersion 4", "mostly small", "tiny and huge", OWN_SCALE})
"""Conditions and scenarios that came later. Wishes of the others are counted by themselves, so
that their number can be compared with that of earlier versions."""


class Case(NamedTuple):
    """One run: demand as it turns out, and the network."""

    demand: FloatArray
    network: Network


def scaled(scenario: Scenario, condition: Condition) -> Scenario:
    """The scenario with rates at which a small broker has the condition's counts in a round."""
    if condition.noise is None or condition.noise.counts is None:
        return scenario
    by = condition.noise.counts / (small_rate(scenario.demand) * WINDOW_S)
    return replace(scenario, demand=scenario.demand * by, quota=scenario.quota * by)


def relative_noise(scenario: Scenario, condition: Condition) -> float:
    """Standard deviation of a small broker's demand in a round, by its mean."""
    noise = condition.noise
    return 0.0 if noise is None else noise.relative(scenario.demand, WINDOW_S)


def draw(scenario: Scenario, condition: Condition, seed: int) -> Case:
    """A (scaled) scenario under a condition; the same seed gives every law the same luck."""
    shape = scenario.demand.shape
    noise, luck = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(2))
    network = PERFECT
    if condition.lost or any(condition.delays):
        network = Network(
            lost=luck.random(shape) < condition.lost,
            delay_rounds=luck.choice(condition.delays, shape),
        )
    return Case(noisy(scenario.demand, condition.noise, noise, WINDOW_S), network)


def scenarios() -> tuple[Scenario, ...]:
    """All of them, in the order of the page."""
    return (
        _steps(
            # PIP-82's first example: 10/50/30 of 100; nobody is in need of limits at all.
            "residual",
            [(24, (1000, 5000, 3000), "cold start")],
        ),
        _steps(
            # PIP-82's second: 80/20, then the second wants 60; fair is 50/50.
            "stealing",
            [(12, (8000, 2000), "cold start"), (20, (8000, 6000), "the second wants more")],
        ),
        _steps(
            # PIP-82's goal of fairness: limits of 70/30, then both want 70; fair is 50/50.
            "uniform load",
            [(12, (7000, 3000), "cold start"), (20, (7000, 7000), "both want 70 %")],
        ),
        _steps(
            # PIP-82's goal of use: limits of 70/30 and then a use of 80/20, which fits.
            "under-use",
            [(12, (7000, 3000), "cold start"), (20, (8000, 2000), "80/20 on limits of 70/30")],
        ),
        _steps(
            # Two brokers share the quota, a third that was idle wants 60 %; fair is a third each.
            "idle wakes",
            [
                (12, (8000, 8000, 0), "cold start"),
                (16, (8000, 8000, 6000), "the idle broker wakes"),
                (16, (8000, 8000, 0), "it falls asleep"),
            ],
        ),
        _steps(
            # One of five brokers wants 30 times as much, and then no longer.
            "flash crowd",
            [
                (12, (1000, 1500, 2000, 2500, 250), "cold start"),
                (16, (1000, 1500, 2000, 2500, 7500), "thirty times the demand"),
                (16, (1000, 1500, 2000, 2500, 250), "the crowd leaves"),
            ],
        ),
        _diurnal(),
        _reshuffled(),
        _churn(),
        _quotas(),
        _mostly_small(),
        _tiny_and_huge(),
        _steps(
            # The same as under-use, with a quota of 100 messages per second, as PIP-82 has it.
            OWN_SCALE,
            [(12, (70, 30), "cold start"), (20, (80, 20), "80/20 on limits of 70/30")],
            quota=100.0,
        ),
    )


def _steps(
    name: str,
    stretches: Sequence[tuple[int, tuple[float, ...], str]],
    quota: float = QUOTA,
) -> Scenario:
    demand = np.concatenate(
        [np.tile(np.array(rates, dtype=np.float64), (rounds, 1)) for rounds, rates, _ in stretches]
    )
    begins = np.cumsum([0, *(rounds for rounds, _, _ in stretches[:-1])]).tolist()
    shifts = [Shift(at, what) for at, (_, _, what) in zip(begins, stretches, strict=True)]
    return _scenario(name, demand, shifts, quota)


def _scenario(
    name: str,
    demand: FloatArray,
    shifts: Sequence[Shift],
    quota: float | FloatArray = QUOTA,
    alive: BoolArray | None = None,
) -> Scenario:
    lives = np.ones(demand.shape, dtype=np.bool_) if alive is None else alive
    quotas: FloatArray = np.broadcast_to(np.asarray(quota, dtype=np.float64), (len(demand),))
    return Scenario(name, np.where(lives, demand, 0.0), quotas, lives, tuple(shifts))


def _diurnal() -> Scenario:
    """A day of 120 rounds, in which demand moves all the time, up to 1.3 times the quota.

    The second half of the brokers lives eight time zones away.
    """
    turn = 2 * np.pi * np.arange(120) / 120
    phase = np.array([0, 0, 0, 1, 1, 1]) * 2 * np.pi / 3
    mean = np.array([1000.0, 1500, 2500, 1000, 1500, 2500])
    demand = mean * (1 + 0.7 * np.sin(turn[:, None] - phase))
    return _scenario("diurnal", demand, [Shift(0, "cold start, and a day")])


def _reshuffled() -> Scenario:
    """Demand is 1.2 times the quota on average, the largest is some 50 times the smallest."""
    rng = np.random.default_rng(82)
    hands = [rng.lognormal(np.log(8000.0), 0.9, 100) for _ in range(4)]
    demand = np.concatenate([np.tile(hand, (12, 1)) for hand in hands])
    shifts = [Shift(12 * n, "all demands are dealt anew" if n else "cold start") for n in range(4)]
    return _scenario("reshuffled", demand, shifts, quota=100 * QUOTA)


def _churn() -> Scenario:
    """Brokers join, die and come back."""
    alive = np.ones((72, 10), dtype=np.bool_)
    alive[:12, 8:] = False
    alive[24:48, 0] = False
    alive[36:60, 5:8] = False
    demand = np.tile(np.linspace(500, 2500, 10), (72, 1))
    shifts = [
        Shift(0, "cold start"),
        Shift(12, "two brokers join"),
        Shift(24, "one dies"),
        Shift(36, "three die"),
        Shift(48, "the one is back"),
        Shift(60, "the three are back"),
    ]
    return _scenario("churn", demand, shifts, alive=alive)


def _quotas() -> Scenario:
    """The quota is raised and lowered under a constant demand."""
    quota = np.repeat([QUOTA, 2 * QUOTA, 0.6 * QUOTA, QUOTA], 12)
    demand = np.tile([2000.0, 3000, 4000, 5000], (48, 1))
    shifts = [
        Shift(0, "cold start"),
        Shift(12, "the quota is doubled: all fits"),
        Shift(24, "it falls to 60 % of what it was at first"),
        Shift(36, "it is back"),
    ]
    return _scenario("quota changes", demand, shifts, quota=quota)


def _mostly_small() -> Scenario:
    """Forty small brokers want 1 % of the quota each, two large ones all they can get.

    A fair share is 30 % while both large ones are there.
    """
    both, alone = ([1000.0] * 40 + large for large in ([1e5, 1e5], [1e5, 0.0]))
    shifts = [
        Shift(0, "cold start"),
        Shift(16, "a large one wants nothing any more"),
        Shift(32, "it is back"),
    ]
    demand = np.repeat([both, alone, both], 16, axis=0)
    return _scenario("mostly small", demand, shifts, quota=10 * QUOTA)


def _tiny_and_huge() -> Scenario:
    """Thirty tiny brokers beside three huge ones, of which each wants 60 % of the quota.

    A tiny one wants 0.2 % of the quota and then 0.4 %, an equal share is 3 %.
    """
    usual, double = ([tiny] * 30 + [0.6e5] * 3 for tiny in (200.0, 400.0))
    shifts = [
        Shift(0, "cold start"),
        Shift(16, "the tiny ones want twice as much"),
        Shift(32, "they want as much as at first"),
    ]
    demand = np.repeat([usual, double, usual], 16, axis=0)
    return _scenario("tiny and huge", demand, shifts, quota=10 * QUOTA)
