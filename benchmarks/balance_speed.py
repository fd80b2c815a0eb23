"""A round at 1,000 brokers x 100,000 bundles: ours, Pulsar's reproduced, and Pulsar's own classes.

python -m benchmarks.balance_speed writes docs/measured/balance-benchmarks.md.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from benchmarks.balance_arena.contenders import ours
from benchmarks.balance_arena.telemetry import Noise, Stats
from benchmarks.balance_arena.world import build
from benchmarks.machine import machine
from benchmarks.prose import wrapped
from quotabalance.planning.cluster_load import RESOURCES, ClusterLoad
from quotabalance.planning.planner import BalanceRound, BalanceState, decide
from quotabalance.planning.policies import Policies
from quotabalance.stock.interface import ForgetsBrokers
from quotabalance.stock.leader import Leader
from quotabalance.stock.shedders import new_shedder
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.console.option_parser import OptionParser
from quotaplane.streams.script import run_job
from tests.jvm.pulsar_classes import FAST, Json, ask_pulsar

PAGE: Final = Path(__file__).resolve().parents[1] / "docs/measured/balance-benchmarks.md"
SHEDDERS: Final = {
    "ThresholdShedder": 3,
    "OverloadShedder": 3,
    "UniformLoadShedder": 3,
    "AvgShedder": 4,
    "TransferShedder": 6,
}
"""Number of rounds, of which the slowest counts: those of hit counts decide nothing at first."""
_STOCK_ROUNDS: Final = {"ThresholdShedder": 1, "OverloadShedder": 1, "AvgShedder": 2}
"""Pulsar's take half a minute: no more than until they decide."""
_MOST_S: Final = 0.5
_OURS: Final = "quotaplane"


class Took(NamedTuple):
    """Seconds of a strategy's slowest round, and its moves."""

    seconds: float
    decided: int
    around_s: float = 0.0
    """Checks and averages, before the strategy is asked; of Pulsar's classes not measured."""


def large(brokers: int, bundles: int) -> list[ClusterLoad]:
    """A cluster whose brokers carry very different loads, and the samples of seven minutes."""
    rng = np.random.default_rng(3)
    world = build(rng, brokers, bundles // 4, 4, topics_each=2, use=0.5)
    weight = rng.lognormal(0.0, 0.35, brokers)
    world.owner = rng.choice(brokers, len(world.owner), p=weight / weight.sum())
    noise, stats = Noise(1, 0.1), Stats(world)
    loads = []
    for minute in range(max(SHEDDERS.values()) + 1):
        everybody = np.ones(brokers, dtype=np.bool_)
        stats.measure(world, noise.measured(world.bundle_rates(), minute), everybody, 60 * minute)
        usage, limit = stats.usage(world)
        loads.append(
            ClusterLoad(
                world.brokers,
                usage,
                limit,
                world.names,
                world.owner,
                stats.rates.copy(),
                world.topics(),
            )
        )
    return loads


def time_ours(loads: Sequence[ClusterLoad]) -> Took:
    """The slowest of some rounds; a round that moves much is among them."""
    state, found = BalanceState.empty(), []
    brokers = len(loads[0].brokers)
    for minute, load in enumerate(loads[:5]):
        round_ = BalanceRound(
            load, 60.0 * minute, np.zeros(brokers), np.zeros(brokers, dtype=np.bool_)
        )
        begun = time.process_time()
        state, decided = decide(state, round_, ours(0.15), Policies())
        found.append(Took(time.process_time() - begun, len(decided.moves)))
    return max(found)


def time_reproduced(name: str, loads: Sequence[ClusterLoad]) -> Took:
    """The slowest round of a reproduced strategy."""
    settings = StockSettings()
    shedder, leader = new_shedder(name, settings), Leader(settings)
    found = []
    for minute, load in enumerate(loads[: SHEDDERS[name]]):
        begun = time.process_time()
        round_ = leader.round(load, 60.0 * minute)
        if isinstance(shedder, ForgetsBrokers):
            shedder.active_brokers(load.brokers)
        ready = time.process_time()
        moves = shedder.shed(round_).moves
        found.append(Took(time.process_time() - ready, len(moves), ready - begun))
    return max(found)


def time_stock(loads: Sequence[ClusterLoad]) -> dict[str, Took]:
    """The slowest round of each of Pulsar's classes; nothing is carried out between the rounds."""
    rounds = {name: loads[: _STOCK_ROUNDS.get(name, most)] for name, most in SHEDDERS.items()}
    extensible: Json = {"kind": "transfer", "conf": {}, "policies": None}
    extensible["rounds"] = [
        {"brokers": _reports(load, True), "recent": [], "missing": []}
        for load in rounds.pop("TransferShedder")
    ]
    # one JVM, so that only the first of them is measured before it is compiled
    cases = [
        {"classes": [name], "conf": {}, "recent": [], "timed": True}
        | {"rounds": [_reports(load, False) for load in given]}
        for name, given in rounds.items()
    ]
    found = {}
    for answer in ask_pulsar("PulsarShedders", cases, FAST):
        found |= answer
    (found["TransferShedder"],) = ask_pulsar("PulsarPlacement", [extensible], FAST)
    return {
        name: max(Took(answer["seconds"], len(answer["moves"])) for answer in answers)
        for name, answers in found.items()
    }


def _reports(load: ClusterLoad, extensible: bool) -> Json:
    """Each broker's report, in the form of one of the two programs."""
    found: Json = {}
    for broker, name in enumerate(load.brokers):
        usage, limit = load.usage[broker].tolist(), load.limit[broker].tolist()
        pairs = dict(zip(RESOURCES, zip(usage, limit, strict=True), strict=True))
        found[name] = {"usage": usage, "limit": limit} if extensible else pairs
        found[name]["bundles"] = {}
    topics = [[count, 0] if extensible else [] for count in load.topics.tolist()]
    owners, rates = load.owner.tolist(), load.rates.tolist()
    for bundle, owner, rate, more in zip(load.bundles, owners, rates, topics, strict=True):
        found[load.brokers[owner]]["bundles"][bundle] = rate + more
    return found


def page(brokers: int, bundles: int, mine: dict[str, Took], stock: dict[str, Took]) -> str:
    """The results page."""
    lines = [
        "# Benchmarks of the balancer",
        "",
        *wrapped(
            f"How long a decision of the load balancer takes at {brokers:,} brokers x {bundles:,} "
            "bundles, beside Pulsar's classes (4.0.8) and quotaplane's reproductions of them. "
            "`python -m benchmarks.balance_speed` writes this page; do not edit it."
        ),
        *wrapped(
            "Of several rounds the slowest, in seconds of a core's time. Measured is the decision: "
            "`decide`, `shed` and `findBundlesForUnloading`. Checks and averages around the "
            "reproductions have a column of their own; ours has them in its decision."
        ),
        machine("numpy"),
        "",
        f"| strategy | seconds (wanted: at most {_MOST_S:g}; Uniform: Pulsar's own time) | moves "
        "| around it, s | Pulsar's class, s | times as fast | |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, took in mine.items():
        own = stock.get(name)
        most = own.seconds if name == "UniformLoadShedder" and own else _MOST_S
        lines.append(
            f"| {'**quotaplane**' if name == _OURS else name} | {took.seconds:.3f} "
            f"| {took.decided:,} | {f'{took.around_s:.3f}' if took.around_s else ''} "
            f"| {f'{own.seconds:.3f}' if own else ''} "
            f"| {f'{own.seconds / took.seconds:.1f}' if own else ''} "
            f"| {'met' if took.seconds <= most else '**missed**'} |"
        )
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str]) -> None:
    """Some five minutes; most of it is Pulsar's."""
    parser = OptionParser(prog="python -m benchmarks.balance_speed", description=__doc__)
    parser.add_argument("--brokers", type=int, default=1000)
    parser.add_argument("--bundles", type=int, default=100_000)
    chosen = parser.parse_args(argv)
    loads = large(chosen.brokers, chosen.bundles)
    mine = {_OURS: time_ours(loads)}
    mine |= {name: time_reproduced(name, loads) for name in SHEDDERS}
    stock = time_stock(loads)
    PAGE.write_text(page(chosen.brokers, chosen.bundles, mine, stock), encoding="utf-8")
    print(f"written: {PAGE}")


if __name__ == "__main__":
    run_job(main)
