"""Layouts, limits and simulated topics for the tests of ``quotaplane.enforce``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from quotaplane.enforce.part_usage import PartUsage
from quotaplane.enforce.rate_writes import Moves, plan
from quotaplane.enforce.rates_in_force import RatesInForce
from quotaplane.enforce.subdivide import Divide, Subdivision, subdivide
from quotaplane.model import FloatArray
from quotaplane.topics.topic_layout import Layout


def layout_of(topics: Mapping[str, str | Sequence[str]], group: str | Mapping[str, str]) -> Layout:
    """A layout from topics and their broker, or the brokers of their partitions; "" = no broker."""
    names = tuple(sorted(topics))
    parts: list[tuple[str, int, str]] = []
    for index, name in enumerate(names):
        where = topics[name]
        if isinstance(where, str):
            parts.append((name, index, where))
        else:
            parts += [(f"{name}-partition-{n}", index, broker) for n, broker in enumerate(where)]
    parts.sort()
    group_of = dict.fromkeys(names, group) if isinstance(group, str) else group
    groups = tuple(sorted(set(group_of.values())))
    brokers = tuple(sorted({broker for _, _, broker in parts if broker}))
    return Layout(
        brokers,
        groups,
        names,
        np.array([groups.index(group_of[name]) for name in names], np.int64),
        tuple(name for name, _, _ in parts),
        np.array([topic for _, topic, _ in parts], np.int64),
        np.array([brokers.index(b) if b else -1 for _, _, b in parts], np.int64),
    )


class Cluster:
    """Topics with demand for publish messages that obey the rates written on them.

    ``wants`` is the demand by part. In every round each part uses what its rate allows.
    """

    def __init__(
        self,
        layout: Layout,
        limits: Sequence[float],
        wants: Mapping[str, float],
        *,
        law: Divide = "max_min",
        significant_change: float = 0.05,
        patient: bool = False,
        fresh: bool = True,
    ) -> None:
        self.layout, self.law, self.significant_change = layout, law, significant_change
        self.patient = patient
        self.limits = only_messages(limits)
        self.wants = np.array([wants.get(name, 0.0) for name in layout.parts])
        self.topic_rates, self.usage = RatesInForce(), PartUsage(lag_s=0.0)
        self.topic_rates.carry(layout)
        self.usage.carry(layout)
        self.now_s = 0.0
        self.written: list[tuple[str, int, float]] = []
        self.failing: set[str] = set()
        self.sums: list[FloatArray] = []
        if fresh:
            for name in layout.topics:
                for kind in (0, 1):
                    self.topic_rates.confirmed(name, kind, np.array([np.inf, np.inf]), wrote=True)

    def rates(self) -> dict[str, float]:
        """The rate in force on each topic."""
        return dict(zip(self.layout.topics, self.topic_rates.in_force[:, 0].tolist(), strict=True))

    def used(self) -> FloatArray:
        """(p,) usage of each part."""
        return np.minimum(self.wants, np.nan_to_num(self._of_parts(), nan=np.inf))

    def _of_parts(self) -> FloatArray:
        rates: FloatArray = self.topic_rates.in_force[self.layout.topic, 0]
        return rates

    def measure(self) -> None:
        """Take a sample of all parts."""
        used = np.zeros((len(self.layout.parts), 4))
        used[:, 0] = self.used()
        self.usage.add_sample(np.arange(len(used)), used)

    def divided(self) -> Subdivision:
        usage = self.usage
        return subdivide(self.layout, self.limits, usage.usage, usage.saturated, law=self.law)

    def planned(self) -> Moves:
        return plan(
            self.layout,
            self.limits,
            self.divided(),
            self.topic_rates.rates(self.now_s),
            significant_change=self.significant_change,
            patient=self.patient,
        )

    def tick(self, most: int = 1000) -> Moves:
        """One tick: plan, write, and confirm the writes or let them fail."""
        self.now_s += 1.0
        self.usage.note_rates(self.topic_rates.in_force, self.now_s)
        moves = self.planned()
        self.topic_rates.note_wanted(self.divided().rates, self.now_s)
        count = min(most, len(moves.topic))
        self.topic_rates.start(moves, count, self.now_s)
        for topic, kind, rates in zip(
            moves.topic[:count], moves.kind[:count].tolist(), moves.rates[:count], strict=True
        ):
            name = self.layout.topics[topic]
            if name in self.failing:
                self.topic_rates.failed(name, kind, self.now_s, wrote=True)
                continue
            self.written.append((name, kind, float(rates[0])))
            self.topic_rates.confirmed(name, kind, rates, wrote=True)
        self.usage.note_rates(self.topic_rates.in_force, self.now_s)
        self.sums.append(self.sum_in_force())
        return moves

    def sum_in_force(self) -> FloatArray:
        """Sum of the rates of each pair's topics; only for topics without partitions."""
        pairs = self.layout.pairs
        rates = self._of_parts()[pairs.parts]
        return np.add.reduceat(rates, pairs.starts[:-1])

    def settle(self, rounds: int = 12) -> None:
        """Rounds of a sample and two ticks each."""
        for _ in range(rounds):
            self.measure()
            self.tick()
            self.tick()


def only_messages(limits: Sequence[float]) -> FloatArray:
    """(k, 4): publish messages are limited, nothing else is."""
    rates = np.full((len(limits), 4), np.inf)
    rates[:, 0] = limits
    return rates
