"""Random cases for placements, and quotaplane's answers beside Pulsar's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from quotabalance.planning.policies import Policies
from quotabalance.stock.average_shedder import AvgShedder
from quotabalance.stock.interface import StockRound
from quotabalance.stock.leader import Leader
from quotabalance.stock.leader_placement import LeaderPlacement
from quotabalance.stock.placements import PLACEMENTS, AvgPlacement, new_placement
from quotabalance.stock.stock_settings import stock_settings
from tests.jvm.transfer_cases import RandomPolicies, stock_round

Json = dict[str, Any]


def random_place_case(seed: int, policies_of: RandomPolicies) -> Json:
    """A cluster through some rounds; after each, bundles are placed, known ones and new ones, and
    asked whether they may leave their brokers.
    """
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 30)) if rng.random() < 0.8 else int(rng.integers(90, 200))
    brokers = [f"10.{rng.integers(3)}.{n // 20}.{n}:8080" for n in range(count)]
    bundles = [
        f"acme/ns-{rng.integers(9)}/0x{n:08x}_0x{n + 1:08x}"
        for n in range(int(rng.integers(0, 6)) * count)
    ]
    bundles += ["pulsar/system/0x00000000_0xffffffff"]
    whole = rng.random() < 0.4
    rounds = [_round(rng, brokers, bundles, bool(whole)) for _ in range(rng.integers(1, 5))]
    for round_ in rounds:
        _ask_to_leave(np.random.default_rng(seed), round_)
    return {
        "kind": "place",
        "strategy": str(rng.choice(list(PLACEMENTS))),
        "conf": _settings(rng),
        "policies": policies_of(rng, brokers) if rng.random() < 0.6 else {},
        "rounds": rounds,
    }


def _ask_to_leave(rng: np.random.Generator, round_: Json) -> None:
    """Put bundles and brokers, mostly theirs, between what is placed."""
    owned = [(name, broker) for broker, one in round_["brokers"].items() for name in one["bundles"]]
    for at in rng.integers(0, len(owned), 10 * bool(owned)):
        name, broker = owned[at]
        if rng.random() < 0.2:
            broker = str(rng.choice(list(round_["brokers"])))
        round_["place"].insert(rng.integers(len(round_["place"]) + 1), [name, broker])


def _settings(rng: np.random.Generator) -> Json:
    return {
        "loadBalancerBrokerOverloadedThresholdPercentage": int(rng.choice([85, 50, 20])),
        "loadBalancerAverageResourceUsageDifferenceThresholdPercentage": int(rng.choice([10, 1])),
        "loadBalancerHistoryResourcePercentage": float(rng.choice([0.9, 0.5, 0.0])),
        "loadBalancerDirectMemoryResourceWeight": float(rng.choice([0.0, 1.3])),
        "loadBalancerDistributeBundlesEvenlyEnabled": bool(rng.random() < 0.5),
        "loadBalancerBrokerMaxTopics": int(rng.choice([50000, 60])),
        "failureDomainsEnabled": bool(rng.random() < 0.5),
        "preferLaterVersions": bool(rng.random() < 0.2),
        "loadBalancerAvgShedderHitCountLowThreshold": 1,
        "minUnloadMessage": 1,
    }


def _round(rng: np.random.Generator, brokers: list[str], bundles: list[str], whole: bool) -> Json:
    owner = rng.integers(0, len(brokers), len(bundles))
    sizes = rng.lognormal(5, 2, (len(bundles), 4))
    if whole:  # equal sums are frequent then
        sizes = np.round(sizes, -2)
    there = rng.random(len(bundles)) < 0.8
    high = rng.choice([1.0, 0.6, 0.3])
    found: Json = {}
    for n, name in enumerate(brokers):
        if rng.random() < 0.05 and len(brokers) > 1:
            continue
        limit = [100.0] * 5
        found[name] = {
            "usage": np.round(rng.uniform(0, high * 100, 5), rng.choice([0, 3])).tolist(),
            "limit": limit,
            "bundles": {
                bundles[i]: [*sizes[i].tolist(), int(rng.integers(0, 30)), 0]
                for i in np.flatnonzero((owner == n) & there)
            },
        }
    new = [f"acme/ns-{rng.integers(9)}/0x{n:08x}_0x{n + 1:08x}" for n in range(900, 912)]
    asked = [str(name) for name in rng.permutation(bundles + new)[:25]]
    return {"brokers": found, "place": [[name, bool(rng.random() < 0.5)] for name in asked]}


class _Replay:
    """Draws what Pulsar drew; notes where it was offered something else."""

    def __init__(self, said: Json) -> None:
        self.said, self.calls = said, 0
        self.wrong = ""

    def __call__(self, brokers: Sequence[str]) -> str:
        number, offered = self.calls, sorted(brokers)
        self.calls += 1
        if number >= len(self.said["offers"]) or offered != self.said["offers"][number]:
            self.wrong = f"draw {number}: ours {offered}, Pulsar's {self.said['offers']}"
            return offered[0]
        return str(self.said["draws"][number])


def place_difference(case: Json, said: list[list[Json]]) -> str:
    """The first difference to what Pulsar says; "" = none."""
    settings = stock_settings(case["conf"])
    shedder = AvgShedder(settings) if case["strategy"] == "AvgShedder" else None
    strategy = (
        AvgPlacement(settings, shedder.targets)
        if shedder
        else new_placement(case["strategy"], settings)
    )
    placement = LeaderPlacement(strategy, settings, Policies(**case["policies"]))
    leader = Leader(settings)
    for number, (round_, answers) in enumerate(zip(case["rounds"], said, strict=True)):
        view = _view(leader, round_, number)
        if shedder:
            shedder.shed(view)
        placement.begin(view)
        for (bundle, lookup), answer in zip(round_["place"], answers, strict=True):
            if isinstance(lookup, str):
                if placement.may_leave(bundle, lookup) != answer:
                    return f"round {number}: {bundle} may leave {lookup}: Pulsar's {answer}"
                continue
            choices = placement.choices(bundle)
            replay = _Replay(answer)
            found = placement.place(bundle, replay, remember=lookup)
            where = f"round {number}, {bundle}, {case['strategy']}: "
            if replay.wrong or replay.calls != len(answer["offers"]):
                return where + (replay.wrong or "fewer draws")
            if found != answer["broker"]:
                return where + f"ours {found}, Pulsar's {answer['broker']}"
            if found is not None and found not in choices:
                return where + f"{found} is none of the choices {choices}"
    return ""


def _view(leader: Leader, round_: Json, number: int) -> StockRound:
    return leader.round(stock_round(round_).load, 60.0 * number)
