"""The scenarios: events and changes of load in the simulated cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from benchmarks.balance_arena.policy_scenarios import policy_scenarios
from benchmarks.balance_arena.scenario import Event, Made, Scenario
from benchmarks.balance_arena.world import (
    CAPACITY_BYTES_PER_S,
    World,
    build,
    heat,
    place_balanced,
    place_random,
)
from quotaplane.model import FloatArray

_BROKERS, _NAMESPACES, _EACH = 10, 75, 4
_RESTART_EVERY_MIN, _RESTART_FROM_MIN = 6, 10
_STEP_MIN: Final = 20
_DAY_MIN: Final = 240


def _hot(rng: np.random.Generator) -> Made:
    world, _ = _even(0.5)(rng)
    heat(rng, world, range(_BROKERS), 1.6)
    return world, None


def _new(rng: np.random.Generator) -> Made:
    world = build(rng, _BROKERS, _NAMESPACES, _EACH)
    place_random(world, range(_BROKERS - 1), rng)
    return world, None


def _even(use: float) -> Callable[[np.random.Generator], Made]:
    def made(rng: np.random.Generator) -> Made:
        world = build(rng, _BROKERS, _NAMESPACES, _EACH, use=use)
        place_balanced(world, range(_BROKERS))
        return world, None

    return made


def _one_range(rng: np.random.Generator) -> Made:
    world = build(rng, _BROKERS, 150, 2)
    place_random(world, range(_BROKERS - 1), rng)
    return world, None


def _hundred(rng: np.random.Generator) -> Made:
    world = build(rng, 200, 1500, 4, topics_each=4, use=0.4)
    place_random(world, range(100), rng)
    return world, None


def _too_big(rng: np.random.Generator) -> Made:
    world, _ = _even(0.5)(rng)
    topics = np.flatnonzero(world.bundle_of == int(np.argmax(world.topics())))
    wanted = 1.4 * 0.5 * CAPACITY_BYTES_PER_S
    parts = rng.dirichlet(np.full(len(topics), 4.0)) * wanted
    factor = np.ones(len(world.rates))
    factor[topics] = parts / world.rates[topics, :2].sum(axis=1)
    world.rates = world.rates * factor[:, None]
    return world, None


def _mixed(rng: np.random.Generator) -> Made:
    world = build(rng, _BROKERS, _NAMESPACES, _EACH, use=0.45)
    world.size[:3], world.size[7:] = 0.5, 2.0
    world.foreign[[3, 4]] = 0.25
    place_random(world, range(_BROKERS), rng)
    return world, None


def _foreign(rng: np.random.Generator) -> Made:
    world = build(rng, 3, 15, 4, use=0.8 / 3)
    world.foreign[:] = 0.0, 0.1, 0.4
    size = world.bundle_rates()[:, :2].sum(axis=1) / CAPACITY_BYTES_PER_S
    wanted = np.array([0.1, 0.4, 0.3])
    left = wanted.copy()
    for bundle in rng.permutation(len(size)):
        world.owner[bundle] = int(np.argmax(left))
        left[world.owner[bundle]] -= size[bundle]
    return world, None


def _namespace_of_topics(world: World) -> np.ndarray:
    numbers = {name: i for i, name in enumerate(dict.fromkeys(b.namespace for b in world.bundles))}
    of_bundle = np.array([numbers[bundle.namespace] for bundle in world.bundles])
    found: np.ndarray = of_bundle[world.bundle_of]
    return found


def _diurnal(rng: np.random.Generator) -> Made:
    world = build(rng, _BROKERS, _NAMESPACES, _EACH, use=0.45)
    namespace = _namespace_of_topics(world)
    region_of_bundle = np.zeros(len(world.bundles), dtype=np.int64)
    region_of_bundle[world.bundle_of] = namespace % 5
    size = world.bundle_rates()[:, :2].sum(axis=1)
    for region in range(5):
        pair = [2 * region, 2 * region + 1]
        load = np.zeros(2)
        for bundle in np.argsort(-size):
            if region_of_bundle[bundle] == region:
                target = int(np.argmin(load))
                world.owner[bundle] = pair[target]
                load[target] += size[bundle]
    phase = 2 * np.pi * (namespace % 5) / 5

    def factors(minute: int) -> FloatArray:
        found: FloatArray = 1.0 + 0.5 * np.sin(2 * np.pi * minute / _DAY_MIN + phase)
        return found

    return world, factors


def _steps(rng: np.random.Generator) -> Made:
    world, _ = _even(0.4)(rng)
    namespace = _namespace_of_topics(world)
    hot = [rng.permutation(_NAMESPACES)[: _NAMESPACES // 8] for _ in range(20)]

    def factors(minute: int) -> FloatArray:
        return np.where(np.isin(namespace, hot[minute // _STEP_MIN]), 3.0, 1.0)

    return world, factors


def beginning(seed: int) -> np.random.Generator:
    """Where the chance of a scenario's beginning comes from."""
    return np.random.default_rng((seed, 7))


def _restarts() -> tuple[Event, ...]:
    events: list[Event] = []
    for broker in range(_BROKERS):
        at = _RESTART_FROM_MIN + _RESTART_EVERY_MIN * broker
        events += [Event(at, "stops", broker), Event(at + 1, "starts", broker)]
    return tuple(events)


NOISE: Final = (0.1, 0.2, 0.3, 0.5)


def scenarios() -> list[Scenario]:
    """All of them, in the page's order."""
    last_start = _RESTART_FROM_MIN + _RESTART_EVERY_MIN * (_BROKERS - 1) + 1
    return [
        Scenario(
            # One of ten brokers carries 1.6 times the mean.
            "one hot broker",
            _hot,
            bound=True,
        ),
        Scenario(
            # Bundles are on nine brokers at random; the tenth is new.
            "new empty broker",
            _new,
            bound=True,
        ),
        Scenario(
            # One of ten brokers dies in minute 10 and comes back in minute 60.
            "dead broker",
            _even(0.4),
            events=(Event(10, "dies", 3), Event(60, "starts", 3)),
            judged_from=60,
        ),
        Scenario(
            # The load of five regions follows the sun (a day of 240 minutes, from half to one and
            # a half of the mean); each region begins on two brokers of its own.
            "diurnal skew",
            _diurnal,
            minutes=_DAY_MIN,
        ),
        Scenario(
            # One bundle alone carries 1.4 times what a broker should: only a split helps.
            "bundle too big",
            _too_big,
        ),
        Scenario(
            # Machines of half, one and two sizes, other programs on two of them; bundles at
            # random.
            "heterogeneous",
            _mixed,
            bound=True,
        ),
        Scenario(
            # PIP-364's three brokers: used to 10, 50 and 70 %, of which other programs 0, 10 and
            # 40 points.
            "foreign load",
            _foreign,
            bound=True,
        ),
        *(
            Scenario(
                # Nothing happens: balanced, bursts of this sigma in every bundle.
                f"noise {sigma:g}",
                _even(0.5),
                sigma=sigma,
                balanced=True,
            )
            for sigma in NOISE
        ),
        Scenario(
            # Each broker is empty in turn, one every 6 minutes from minute 10 on.
            "rolling restart",
            _even(0.4),
            events=_restarts(),
            judged_from=last_start,
        ),
        Scenario(
            # A hundred brokers used to 80 %, a hundred new ones.
            "100 hot + 100 new",
            _hundred,
            minutes=120,
            seeds=1,
        ),
        Scenario(
            # A new empty broker; 150 namespaces of two bundles, so that 150 bundles have the same
            # range.
            "same ranges",
            _one_range,
            bound=True,
        ),
        Scenario(
            # Every broker is used to some 92 % and balanced: there is nowhere to go.
            "all over the threshold",
            _even(0.92),
            balanced=True,
        ),
        Scenario(
            # One eighth of the namespaces carries three times as much, others every 20 minutes.
            "steps every 20 minutes",
            _steps,
            changes=tuple(range(_STEP_MIN, 180, _STEP_MIN)),
        ),
        *policy_scenarios(NOISE),
    ]


def named(name: str) -> Scenario:
    """The scenario with this name."""
    return next(scenario for scenario in scenarios() if scenario.name == name)
