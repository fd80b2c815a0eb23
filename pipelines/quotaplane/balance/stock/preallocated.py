"""Bundles that the leader has placed since the last reports, and their assumed load."""

from __future__ import annotations

import numpy as np

from quotaplane.balance.stock.java import ConcurrentMapOrder
from quotaplane.model import FloatArray, IntArray
from quotaplane.topics.bundle_names import namespace_of


class Preallocated:
    """The bundles that have been placed on each broker of a round.

    Pulsar forgets all of it with the next reports, also what a broker has not taken over yet (only
    bundles that the leader itself serves are remembered longer).
    """

    def __init__(self, brokers: int) -> None:
        self.target: dict[str, int] = {}
        """Broker of each bundle."""
        self.topics: IntArray = np.zeros(brokers, np.int64)
        self._sums: FloatArray = np.zeros(brokers)
        self._bundles: dict[int, dict[str, float]] = {}
        self._exact: dict[int, float] = {}
        self._of_namespace: dict[str, list[tuple[int, str]]] = {}

    def add(self, bundle: str, broker: int, messages_per_s: float, topics: int) -> None:
        """A bundle was placed."""
        self.target[bundle] = broker
        self.topics[broker] += topics
        namespace = namespace_of(bundle)
        self._of_namespace.setdefault(namespace, []).append((broker, bundle))
        rates = self._bundles.setdefault(broker, {})
        rates[bundle] = messages_per_s
        self._sums[broker] += messages_per_s
        self._exact.pop(broker, None)

    def message_rates(self) -> FloatArray:
        """Long-term messages per second that were placed on each broker; shape (B,). The last bits
        are not Pulsar's; see ``exact_rate``.
        """
        return self._sums

    def exact_rate(self, broker: int) -> float:
        """The broker's rate, added up in the order of Pulsar's map."""
        if broker not in self._exact:
            rates, total = self._bundles.get(broker, {}), 0.0
            values = list(rates.values())
            order = (
                ConcurrentMapOrder().replace(list(rates)) if len(rates) > 2 else range(len(rates))
            )
            for place in order:
                total += values[place]
            self._exact[broker] = total
        return self._exact[broker]

    def of_namespace(self, namespace: str) -> list[tuple[int, str]]:
        """Brokers and bundles of one namespace."""
        return self._of_namespace.get(namespace, [])
