"""Random clusters for comparisons with Pulsar's own classes; the format is that of cases."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator

Case = dict[str, Any]
Round = dict[str, dict[str, Any]]

RESOURCES = ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut")

SETTINGS: dict[str, tuple[Any, ...]] = {
    "loadBalancerCPUResourceWeight": (1.0, 0.5, 0.0, 2.5, 0.123),
    "loadBalancerDirectMemoryResourceWeight": (0.0, 1.0, 0.7),
    "loadBalancerMemoryResourceWeight": (0.0, 1.0),
    "loadBalancerBandwidthInResourceWeight": (1.0, 0.3, 0.0),
    "loadBalancerBandwithInResourceWeight": (1.0, 0.4),
    "loadBalancerBandwidthOutResourceWeight": (1.0, 0.9, -1.0),
    "loadBalancerBandwithOutResourceWeight": (1.0, 0.6),
    "loadBalancerBrokerOverloadedThresholdPercentage": (85, 50, 20, 0, 100, -5),
    "loadBalancerBrokerThresholdShedderPercentage": (10, 5, 0, 30, -10),
    "lowerBoundarySheddingEnabled": (False, True),
    "loadBalancerHistoryResourcePercentage": (0.9, 0.0, 0.5, 1.0, 0.99, 1.1),
    "loadBalancerBundleUnloadMinThroughputThreshold": (10.0, 0.0, 1.0, 0.001, -1.0),
    "loadBalancerMsgRateDifferenceShedderThreshold": (50.0, 0.0, 10.0, 1e9, -1.0),
    "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold": (4.0, 1.5, 0.0, 1.0),
    "maxUnloadBundleNumPerShedding": (-1, 1, 3, 0, 20, -2),
    "minUnloadMessage": (1000, 0, 10, 1, -5, 100000),
    "minUnloadMessageThroughput": (1048576, 0, 1, 1000, -1),
    "maxUnloadPercentage": (0.2, 0.5, 0.0, 1.0, 0.05, 2.0, -0.2),
    "loadBalancerAvgShedderLowThreshold": (15, 5, 0, 1, -3),
    "loadBalancerAvgShedderHighThreshold": (40, 20, 10, 0),
    "loadBalancerAvgShedderHitCountLowThreshold": (8, 1, 2, 3, 0),
    "loadBalancerAvgShedderHitCountHighThreshold": (2, 1, 4, 0),
}
"""Values within and beyond what makes sense; the first one is the default."""


def random_case(
    random: Generator, *, rounds: int = 12, brokers: int = 40, bundles: int = 400
) -> Case:
    """A cluster over some rounds: loads drift, bundles move, come and go, as brokers do.

    ``brokers`` and ``bundles`` are the most that there are at first; many cases have few.
    """
    return _Cluster(random, brokers, bundles).case(rounds)


class _Cluster:
    def __init__(self, random: Generator, brokers: int, bundles: int) -> None:
        self.random = random
        self.brokers = [
            f"{random.choice(['broker', 'b', 'pulsar-broker-'])}{number}:8080"
            for number in range(random.integers(1, random.choice([3, 8, brokers + 1])))
        ]
        self.spare = [f"new{number}.example:8080" for number in range(4)]
        self.bytes = float(10.0 ** random.uniform(2, 10))
        self.messages = float(10.0 ** random.uniform(-1, 7))
        self.ties = random.random() < 0.3
        self.steady = random.random() < 0.3
        self.skew = random.choice([0.0, 1.0, 3.0])
        self.unlimited = random.random() < 0.1
        self.made = 0
        self.owner: dict[str, str] = {}
        self.rates: dict[str, list[float]] = {}
        for _ in range(random.integers(0, random.choice([4, 40, bundles + 1]))):
            self.add_bundle()

    def add_bundle(self) -> None:
        random = self.random
        self.made += 1
        low = int(random.integers(0, 2**32 - 2))
        kind = random.random()
        space = f"tenant{random.integers(4)}/ns{random.integers(30)}"
        if kind < 0.03:
            space = str(random.choice(["pulsar/system", "pulsar/b1:80", "pulsar/x/b1:80"]))
        elif kind < 0.05:
            space = str(random.choice(["sla-monitor/c/b1:80", "sla-monitor/b1:80"]))
        elif kind < 0.06:
            space = "tenant/näme\U0001f600"
        name = f"{space}/0x{low:08x}_0x{low + 1 + self.made % 2:08x}"
        weights = np.arange(1, len(self.brokers) + 1) ** float(self.skew)
        self.owner[name] = self.brokers[random.choice(len(weights), p=weights / weights.sum())]
        self.rates[name] = self.some_rates()

    def some_rates(self) -> list[float]:
        random = self.random
        if random.random() < 0.1:
            return [0.0] * 4
        if self.ties:
            size, count = random.choice([1.0, 2.0, 5.0], 2).tolist()
            return [self.bytes * size, self.bytes, self.messages * count, self.messages]
        size, count = random.lognormal(0, 1.5, 2).tolist()
        rates = [self.bytes * size, self.bytes * size * random.random(), self.messages * count, 0.0]
        return [float(np.floor(rate)) if random.random() < 0.3 else float(rate) for rate in rates]

    def case(self, rounds: int) -> Case:
        random = self.random
        bundles = list(self.owner)
        recent = [name for name in bundles if random.random() < random.choice([0, 0, 0.3])]
        conf = {
            name: values[random.integers(len(values))]
            for name, values in SETTINGS.items()
            if random.random() < 0.3
        }
        loads = []
        for _ in range(rounds):
            loads.append(self.round())
            self.drift()
        return {"conf": conf, "rounds": loads, "recent": recent}

    def round(self) -> Round:
        total: dict[str, float] = dict.fromkeys(self.brokers, 0.0)
        bundles: dict[str, dict[str, list[float]]] = {name: {} for name in self.brokers}
        for name in self.random.permutation(list(self.owner)).tolist() if self.owner else []:
            total[self.owner[name]] += sum(self.rates[name][:2])
            bundles[self.owner[name]][name] = self.rates[name]
        most = max(total.values()) or 1.0
        return {
            name: {**self.machine(total[name] / most), "bundles": bundles[name]}
            for name in self.brokers
        }

    def machine(self, load: float) -> dict[str, list[float]]:
        """Usages about in proportion to the traffic, or not."""
        random = self.random
        usages = {}
        for resource in RESOURCES:
            limit = float(random.choice([100.0, 800.0, 1e9 / 3]))
            noise = 0.0 if self.ties else random.normal(0, 0.05)
            share = max(0.0, load * 0.9 + noise) if random.random() < 0.9 else random.random() * 1.2
            if self.unlimited and random.random() < 0.5:
                limit = float(random.choice([0.0, -1.0, 1e-50])) if random.random() < 0.5 else 0.0
            usages[resource] = [float(share * abs(limit)), abs(limit)]
        return usages

    def drift(self) -> None:
        random = self.random
        for name in list(self.owner):
            chance = random.random()
            if chance < 0.03:
                del self.owner[name], self.rates[name]
            elif chance < 0.08:
                self.owner[name] = str(random.choice(self.brokers))
            elif not self.steady:
                self.rates[name] = (
                    self.some_rates()
                    if self.ties or chance > 0.95
                    else [rate * float(random.uniform(0.8, 1.2)) for rate in self.rates[name]]
                )
        for _ in range(random.integers(0, 1 + len(self.owner) // 20)):
            self.add_bundle()
        if random.random() < 0.15 and self.spare:
            self.brokers.insert(int(random.integers(len(self.brokers) + 1)), self.spare.pop())
        if random.random() < 0.15 and len(self.brokers) > 1:
            gone = self.brokers.pop(int(random.integers(len(self.brokers))))
            self.spare.append(gone)
            for name, owner in self.owner.items():
                if owner == gone:
                    self.owner[name] = str(random.choice(self.brokers))
