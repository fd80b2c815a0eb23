"""Random cases for TransferShedder, and quotaplane's answers in the form of Pulsar's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.policies import Policies
from quotabalance.stock.extensible_placement import ExtensiblePlacement
from quotabalance.stock.interface import StockRound
from quotabalance.stock.stock_settings import stock_settings
from quotabalance.stock.transfer_shedder import TransferShedder

Json = dict[str, Any]
ROUNDS = 12


RandomPolicies = Callable[[np.random.Generator, list[str]], Json]


def random_case(seed: int, policies_of: RandomPolicies) -> Json:
    """A cluster through 12 rounds, with settings that make TransferShedder act."""
    rng = np.random.default_rng(seed)
    brokers = [f"10.0.{rng.integers(9)}.{n}:8080" for n in range(rng.integers(1, 14))]
    policies = policies_of(rng, brokers) if rng.random() < 0.6 else None
    bundles = _bundles(rng, int(rng.integers(0, 25)) * len(brokers))
    sizes = rng.lognormal(13, rng.choice([0.3, 1.0, 2.0]), (len(bundles), 4)) / [1, 1, 1e3, 1e3]
    sizes[rng.random(len(bundles)) < 0.1] = 0
    skew = rng.dirichlet(np.full(len(brokers), rng.choice([0.3, 1.0, 10.0])))
    owner = rng.choice(len(brokers), len(bundles), p=skew)
    rounds = [
        _round(rng, brokers, bundles, sizes * rng.lognormal(0, 0.2, sizes.shape), owner)
        for _ in range(ROUNDS)
    ]
    settings = _settings(rng)
    if policies is None:  # Pulsar's class is made without a broker, and then filters nothing
        settings |= {"loadBalancerBrokerMaxTopics": 50000, "preferLaterVersions": False}
    return {
        "kind": "transfer",
        "conf": settings,
        "policies": policies,
        "rounds": rounds,
    }


def _bundles(rng: np.random.Generator, count: int) -> list[str]:
    names = [f"acme/ns-{rng.integers(8)}/0x{n:08x}_0x{n + 1:08x}" for n in range(count)]
    special = ("pulsar/system", "pulsar/10.0.0.1:8080", "sla-monitor/test/10.0.0.1:8080")
    for place, namespace in zip(rng.permutation(count)[:3], special, strict=False):
        if rng.random() < 0.3:
            names[place] = f"{namespace}/0x00000000_0xffffffff"
    return names


def random_policies(rng: np.random.Generator, brokers: list[str]) -> Json:
    """Isolation policies, anti-affinity groups, failure domains and versions."""
    hosts = [broker.rpartition(":")[0] for broker in brokers]
    pick = lambda: [str(host) for host in rng.choice(hosts, min(len(hosts), 2), replace=False)]  # noqa: E731
    isolation = {
        f"policy-{n}": {
            "namespaces": [f"acme/ns-{n}", "acme/ns-[67]"],
            "primary": pick(),
            "secondary": pick() if rng.random() < 0.7 else [],
            "auto_failover_policy": {
                "policy_type": "min_available",
                "parameters": {"min_limit": str(rng.integers(0, 4)), "usage_threshold": "80"},
            },
        }
        for n in range(rng.integers(0, 3))
    }
    groups = {f"acme/ns-{n}": str(rng.choice(["Ha", "hA", "other", " "])) for n in range(3, 6)}
    domains = {f"rack-{n}": pick_all(rng, brokers) for n in range(rng.integers(0, 4))}
    choices = ["4.0.8", "4.0.8-rc.1", "4.0.7", "4.0.8+b1", *(["4.x"] if rng.random() < 0.1 else [])]
    versions = {broker: str(rng.choice(choices)) for broker in brokers}
    return {
        "isolation": isolation,
        "anti_affinity": groups if rng.random() < 0.7 else {},
        "failure_domains": domains,
        "broker_versions": versions,
    }


def pick_all(rng: np.random.Generator, names: list[str]) -> list[str]:
    """Some of the names."""
    return [name for name in names if rng.random() < 0.4]


def _settings(rng: np.random.Generator) -> Json:
    return {
        "loadBalancerDebugModeEnabled": bool(rng.random() < 0.5),
        "loadBalancerBrokerLoadTargetStd": float(rng.choice([0.25, 0.1, 0.02, 0.0, 1.5])),
        "loadBalancerSheddingConditionHitCountThreshold": int(rng.integers(0, 4)),
        "loadBalancerTransferEnabled": bool(rng.random() < 0.8),
        "loadBalancerMaxNumberOfBrokerSheddingPerCycle": int(rng.integers(0, 6)),
        "loadBalancerMaxNumberOfBundlesInBundleLoadReport": int(rng.integers(1, 14)),
        "loadBalancerBrokerOverloadedThresholdPercentage": int(rng.choice([85, 60])),
        "loadBalancerHistoryResourcePercentage": float(rng.choice([0.9, 0.5, 0.0])),
        "loadBalancerMemoryResourceWeight": float(rng.choice([0.0, 0.7])),
        "loadBalancerDirectMemoryResourceWeight": float(rng.choice([0.0, 1.3])),
        "loadBalancerBandwithInResourceWeight": float(rng.choice([1.0, 0.4])),
        "loadBalancerSheddingBundlesWithPoliciesEnabled": bool(rng.random() < 0.6),
        "loadBalancerBrokerMaxTopics": int(rng.choice([50000, 400])),
        "failureDomainsEnabled": bool(rng.random() < 0.5),
        "preferLaterVersions": bool(rng.random() < 0.15),
    }


def _round(
    rng: np.random.Generator,
    brokers: list[str],
    bundles: list[str],
    sizes: np.ndarray[Any, Any],
    owner: np.ndarray[Any, Any],
) -> Json:
    if rng.random() < 0.3:  # many equal loads: Java's orders decide
        sizes = np.round(sizes, -6)
    load = np.bincount(owner, sizes[:, :2].sum(1), len(brokers))
    found: Json = {}
    stale = rng.random() < 0.2
    for n in rng.permutation(len(brokers)).tolist() if rng.random() < 0.2 else range(len(brokers)):
        limit = [100.0, 64.0, 64.0, 1e3, 1e3 if rng.random() < 0.9 else 0.0]
        share = np.clip(load[n] / max(load.max(), 1) * rng.uniform(0.5, 1, 5), 0, 1)
        broker: Json = {
            "usage": (share * limit).tolist(),
            "limit": limit,
            "bundles": {
                bundles[i]: [
                    *sizes[i].tolist(),
                    int(rng.integers(0, 60)),
                    int(rng.integers(0, 900)),
                ]
                for i in np.flatnonzero(owner == n)
            },
        }
        if stale and rng.random() < 0.5:
            broker["age_s"] = 3600.0
        if rng.random() < 0.02:
            broker["since_unload_s"] = float(rng.choice([-5.0, 60.0, 300.0]))
        found[brokers[n]] = broker
    if rng.random() < 0.05 and found:
        found.pop(next(iter(found)))
    names = [name for broker in found.values() for name in broker["bundles"]]
    return {
        "brokers": found,
        "place": [*names[:2], f"acme/ns-{rng.integers(8)}/0xf0000000_0xffffffff"],
        "recent": [name for name in names if rng.random() < 0.1],
        "missing": ["10.9.9.9:8080"] if rng.random() < 0.03 else [],
    }


def stock_round(round_: Json) -> StockRound:
    """A round of a case in columns."""
    brokers, rows = list(round_["brokers"]), list(round_["brokers"].values())
    listed = [(n, name, c) for n, row in enumerate(rows) for name, c in row["bundles"].items()]
    columns = np.array([c for _, _, c in listed], float).reshape(-1, 6)
    load = ClusterLoad(
        brokers,
        np.array([row["usage"] for row in rows], float).reshape(-1, 5),
        np.array([row["limit"] for row in rows], float).reshape(-1, 5),
        [name for _, name, _ in listed],
        np.array([n for n, _, _ in listed], np.int64),
        columns[:, :4],
        columns[:, 4].astype(np.int64),
        columns[:, 5].astype(np.int64),
    )
    load.check()
    recent = set(round_.get("recent", ()))
    return StockRound(
        load,
        load.rates,
        load.rates,
        np.array([name in recent for name in load.bundles], bool),
        0.0,
        report_age_s=np.array([row.get("age_s", 0.0) for row in rows]),
        since_unload_s=np.array([row.get("since_unload_s", np.inf) for row in rows]),
        missing=round_.get("missing", ()),
    )


def our_answer(case: Json) -> list[Json]:
    """Decisions of quotaplane's TransferShedder in each round."""
    policies = case["policies"]
    shedder = TransferShedder(
        stock_settings(case["conf"]), Policies(**policies) if policies else None
    )
    answers = []
    placement = ExtensiblePlacement(
        stock_settings(case["conf"]), Policies(**policies) if policies else None
    )
    for round_ in case["rounds"]:
        view = stock_round(round_)
        decided = shedder.shed(view)
        placement.begin(view)
        choices = [placement.choices(bundle) for bundle in round_["place"]]
        moves = sorted(
            " ".join((move.bundle, move.source, move.target or "-", move.label))
            for move in decided.moves
        )
        label = decided.skips[-1].label if decided.skips else ""
        answers.append({"moves": moves, "skip": "" if moves else f"Skip {label}"})
        if policies:  # else Pulsar's filters are not asked, and missing brokers are candidates
            answers[-1]["choices"] = choices
    return answers
