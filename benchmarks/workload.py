"""PIP-82's own example as data: groups, brokers, and stock usage reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from quotaplane.model import BASIC, FloatArray, IntArray
from quotaplane.wire.reports import encode_stock_report

QUOTA = 500.0
"""Quota of every group per second, in each dimension; its five brokers use 40 to 160 each."""


@dataclass(frozen=True)
class Workload:
    """``brokers`` brokers report ``groups`` groups; each group is on ``spread`` brokers."""

    groups: int
    brokers: int
    spread: int = 5
    interval_s: float = 60.0
    noise: float = 0.1
    """Part of its level by which an entry's use differs in a round; 0: every round is the same."""
    reported_every: int = 1
    """Rounds in which an entry is reported once; Pulsar's brokers report a use that did not change
    by more than 5 % in every fifth round."""

    partitions: int = 2
    """Partitions of the report topic; they divide ``brokers``, so that a batch has one of each."""

    def names(self) -> list[str]:
        """Names of groups, as long as tenant/namespace is in practice: 40 characters."""
        return [
            f"tenant-{number % 1000:04d}/namespace-{number:07d}-production"
            for number in range(self.groups)
        ]

    def members(self) -> list[IntArray]:
        """The groups of each broker."""
        first = np.random.default_rng(1).integers(0, self.brokers, self.groups)
        step = max(self.brokers // self.spread, 1)
        on = (first[:, None] + step * np.arange(self.spread)) % self.brokers
        return [np.flatnonzero((on == broker).any(axis=1)) for broker in range(self.brokers)]

    def rounds(self, count: int) -> Iterator[list[tuple[str, bytes]]]:
        """Each broker's report, round by round: every entry has its own level with noise, so
        nearly every value changes a little in each round.
        """
        random = np.random.default_rng(2)
        names = np.array(self.names(), dtype=object)
        members = self.members()
        levels = [random.uniform(40, 160, (len(own), BASIC)) for own in members]
        for number in range(count):
            reports = []
            for broker, (own, level) in enumerate(zip(members, levels, strict=True)):
                name = f"pulsar-broker-{broker:03d}.pulsar.svc.example.com:8080"
                now = slice(number % self.reported_every, None, self.reported_every)
                counts = self._counts(level[now], random)
                reports.append((name, encode_stock_report(name, names[own[now]].tolist(), counts)))
            yield reports

    def _counts(self, level: FloatArray, random: np.random.Generator) -> FloatArray:
        rates = level * random.uniform(1 - self.noise, 1 + self.noise, level.shape)
        return np.round(rates * self.interval_s)
