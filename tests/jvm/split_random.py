"""Random cases for splits and load reports, and quotaplane's answers in the form of Pulsar's."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.balance_arena.telemetry import ReportRule
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.stock.bundle_ranking import max_usage, traffic_of
from quotabalance.stock.java import percent_usage
from quotabalance.stock.leader import Leader
from quotabalance.stock.split_algorithms import (
    TopicRates,
    default_boundaries,
    flow_or_qps_equally_divide,
    range_equally_divide,
    specified_positions_divide,
    topic_count_equally_divide,
    topic_hash,
)
from quotabalance.stock.split_triggers import BundleSplitterTask, ExtensibleSplitter
from quotabalance.stock.stock_settings import StockSettings, stock_settings
from quotaplane.errors import InputError
from quotaplane.model import FloatArray
from quotaplane.topics.bundle_names import FULL_RANGE, parse_bundle
from tests.jvm.transfer_cases import stock_round

Json = dict[str, Any]
ALGORITHMS = (
    *("range_equally_divide", "topic_count_equally_divide"),
    *("specified_positions_divide", "flow_or_qps_equally_divide"),
)
TOPICS = sorted((f"persistent://acme/ns-0/tøpic-{n}" for n in range(3000)), key=topic_hash)
HASHES = np.array([topic_hash(topic) for topic in TOPICS])
KINDS = ("boundaries", "split modular", "split extensible", "report")


def random_split_case(seed: int) -> Json:
    """A case of one of ``KINDS``, in turn."""
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    conf = _settings(rng)
    if kind == "boundaries":
        return _boundaries_case(rng, conf)
    brokers = 1 if kind in ("split extensible", "report") else int(rng.integers(1, 5))
    bundles = _bundles(rng, int(rng.integers(0, 40)))
    count = 2 if kind == "report" else 6
    return {
        "kind": kind,
        "conf": conf,
        "counts": {f"acme/ns-{n}": int(rng.integers(1, 140)) for n in range(4)},
        "topics": {bundle: _topics(rng, conf, bundle) for bundle in bundles},
        "age_s": float(rng.choice([5.0, 60.0, 3000.0], p=[0.5, 0.45, 0.05])),
        "rounds": _rounds(rng, bundles, brokers, count, kind == "report"),
    }


def _settings(rng: np.random.Generator) -> Json:
    return {
        "loadBalancerNamespaceBundleMaxTopics": int(rng.choice([1000, 20])),
        "loadBalancerNamespaceBundleMaxSessions": int(rng.choice([1000, 30, 0, -1])),
        "loadBalancerNamespaceBundleMaxMsgRate": int(rng.choice([30000, 500])),
        "loadBalancerNamespaceBundleMaxBandwidthMbytes": int(rng.choice([100, 1, 2048, 5000])),
        "loadBalancerNamespaceMaximumBundles": int(rng.choice([128, 30])),
        "flowOrQpsDifferenceThresholdPercentage": int(rng.choice([10, 0, 50])),
        "loadBalancerMaxNumberOfBundlesToSplitPerCycle": int(rng.choice([10, 2])),
        "loadBalancerNamespaceBundleSplitConditionHitCountThreshold": int(rng.integers(-1, 4)),
        "defaultNamespaceBundleSplitAlgorithm": str(rng.choice([*ALGORITHMS, "unknown"])),
        "loadBalancerReportUpdateThresholdPercentage": int(rng.choice([10, 1, 30])),
        "loadBalancerDirectMemoryResourceWeight": float(rng.choice([0.0, 0.8])),
    }


def _bundles(rng: np.random.Generator, count: int) -> list[str]:
    edges = sorted({*rng.integers(0, FULL_RANGE, count).tolist(), 0, FULL_RANGE})
    names = []
    for low, high in pairwise(edges):
        high = low + 1 if rng.random() < 0.05 and high != FULL_RANGE else high
        names.append(f"acme/ns-{rng.integers(4)}/0x{low:08x}_0x{high:08x}")
    return names


def _topics(rng: np.random.Generator, conf: Json, bundle: str) -> Json:
    """Topics whose hashes are in the bundle's range."""
    low, high = np.searchsorted(HASHES, parse_bundle(bundle)[1:]).tolist()
    names = rng.permutation(TOPICS[low:high])[: rng.integers(0, 14)]
    scale = conf["loadBalancerNamespaceBundleMaxMsgRate"] * rng.choice([0.01, 0.1, 1.0])
    found = {}
    for name in names:
        rates = rng.lognormal(0, 1, 4) * scale * [100, 100, 0.5, 0.5]
        rates[rng.random(4) < 0.2] = 0
        kept = rates.tolist() if rng.random() < 0.8 else [0.0] * 4
        found[str(name)] = kept
    return found


def _boundaries_case(rng: np.random.Generator, conf: Json) -> Json:
    name = str(rng.choice(ALGORITHMS))
    conf["defaultNamespaceBundleSplitAlgorithm"] = name
    bundle = str(rng.choice(_bundles(rng, 3)))
    case = {
        "kind": "boundaries",
        "conf": conf,
        "algorithm": name,
        "bundle": bundle,
        "topics": {bundle: _topics(rng, conf, bundle)},
    }
    if name == "specified_positions_divide":
        low, high = parse_bundle(bundle)[1:]
        near = [low, low + 1, high - 1, high, *rng.integers(0, 2**32, 3).tolist()]
        case["positions"] = [int(rng.choice(near)) for _ in range(rng.integers(0, 5))]
    return case


def _rounds(
    rng: np.random.Generator, bundles: list[str], brokers: int, count: int, gently: bool
) -> list[Json]:
    rates = rng.lognormal(5, 2, (len(bundles), 4)) * [1e4, 1e4, 1, 1]
    spread = rng.choice([0.0, 0.05]) if gently else 0.3
    usage = rng.uniform(0, 100, 5)
    found = []
    for _ in range(count):
        rates = rates * rng.lognormal(0, spread, rates.shape)
        usage = np.clip(usage + rng.normal(0, 5, 5), 0, 100)
        there = rng.random(len(bundles)) < (1.0 if gently and rng.random() < 0.7 else 0.9)
        rows = {
            bundle: [*rates[i].tolist(), int(rng.integers(0, 40)), int(rng.integers(0, 60))]
            for i, bundle in enumerate(bundles)
            if there[i]
        }
        listed = list(rows)
        found.append(
            {
                "brokers": {
                    f"10.0.0.{n}:8080": {
                        "usage": usage.tolist(),
                        "limit": [100.0] * 5,
                        "bundles": {name: rows[name] for name in listed[n::brokers]},
                    }
                    for n in range(brokers)
                },
                "splitting": [name for name in bundles if rng.random() < 0.03],
            }
        )
    return found


def our_split_answer(case: Json) -> Any:
    """Answer of quotaplane to a case."""
    settings = stock_settings(case["conf"])
    if case["kind"] == "boundaries":
        return _our_boundaries(case)
    if case["kind"] == "report":
        return _our_reports(case)
    if case["kind"] == "split modular":
        task, leader = BundleSplitterTask(settings), Leader(settings)
        return [
            sorted(
                f"{split.bundle} {split.owner}"
                for split in task.find(
                    leader.round(stock_round(round_).load, 60.0 * number), case["counts"]
                ).splits
            )
            for number, round_ in enumerate(case["rounds"])
        ]
    topics = {bundle: _rates(of) for bundle, of in case["topics"].items()}
    splitter = ExtensibleSplitter(
        settings, lambda name: default_boundaries(name, topics[str(name)], settings)
    )
    return [
        sorted(
            f"{split.bundle} 0x{split.boundaries[0]:08x} {split.label}"
            for split in splitter.find(
                stock_round(round_).load, 0, case["counts"], round_["splitting"]
            ).splits
        )
        for round_ in case["rounds"]
    ]


def _rates(topics: Json) -> dict[str, TopicRates]:
    return {name: TopicRates(row[0] + row[1], row[2] + row[3]) for name, row in topics.items()}


def _our_boundaries(case: Json) -> Any:
    settings, name = stock_settings(case["conf"]), parse_bundle(case["bundle"])
    topics = _rates(case["topics"][case["bundle"]])
    if case["algorithm"] == "range_equally_divide":
        found = range_equally_divide(name)
    elif case["algorithm"] == "topic_count_equally_divide":
        found = topic_count_equally_divide(topics)
    elif case["algorithm"] == "flow_or_qps_equally_divide":
        found = flow_or_qps_equally_divide(topics, settings)
    else:
        try:
            found = specified_positions_divide(name, len(topics), case["positions"])
        except InputError:
            return "error"
    return list(found)


def _our_reports(case: Json) -> list[bool]:
    settings = stock_settings(case["conf"])
    last, now = (stock_round(round_).load for round_ in case["rounds"])
    found = []
    for extensible in (False, True):
        rule = ReportRule(1, settings)
        rule.reported(np.array([True]), 0.0, *_reported(last, settings, extensible))
        found += rule.due(case["age_s"], *_reported(now, settings, extensible)).tolist()
    return found


def _reported(
    load: ClusterLoad, settings: StockSettings, extensible: bool
) -> tuple[FloatArray, FloatArray]:
    """The numbers that brokers compare. Only the modular manager gives resources weights."""
    percents = percent_usage(load.usage, load.limit)[:, [0, 2, 3, 4]].max(axis=1)
    traffic = traffic_of(load)
    sums = np.column_stack((traffic.messages_per_s, traffic.bytes_per_s, traffic.bundles))
    return sums, percents if extensible else 100 * max_usage(load, settings)


def same(ours: Any, said: Any) -> bool:
    """Whether the answers agree; Pulsar has two ways to say that there is no boundary."""
    return bool(ours == (said if said is not None else []))
