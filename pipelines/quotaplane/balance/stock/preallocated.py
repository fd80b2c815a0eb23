"""Bundles that the leader has placed since the last reports, and what it counts for them."""

from __future__ import annotations

import numpy as np

from quotaplane.balance.stock.java import ConcurrentMapOrder
from quotaplane.model import FloatArray, IntArray


class Preallocated:
    """What has been placed on each broker of a round.

    Pulsar forgets all of it with the next reports, also what a broker has not taken over yet (only
    bundles that the leader itself serves are remembered longer).
    """

    def __init__(self, brokers: int) -> None:
        self.target: dict[str, int] = {}
        """Broker of each bundle."""
        self.topics: IntArray = np.zeros(brokers, np.int64)
        self._sums: FloatArray = np.zeros(brokers)
        self._bundles: dict[int, dict[str, float]] = {}
        self._orders: dict[int, ConcurrentMapOrder] = {}
        self._whole = np.ones(brokers, np.bool_)
        self._of_namespace: dict[str, list[tuple[int, str]]] = {}

    def add(self, bundle: str, broker: int, messages_per_s: float, topics: int) -> None:
        """A bundle was placed."""
        self.target[bundle] = broker
        self.topics[broker] += topics
        namespace = bundle.rpartition("/")[0]
        self._of_namespace.setdefault(namespace, []).append((broker, bundle))
        rates = self._bundles.setdefault(broker, {})
        rates[bundle] = messages_per_s
        self._whole[broker] &= messages_per_s.is_integer()
        if self._whole[broker]:  # then the order does not matter
            self._sums[broker] += messages_per_s
            return
        order = self._orders.setdefault(broker, ConcurrentMapOrder())
        values, total = list(rates.values()), 0.0
        for place in order.replace(list(rates)).tolist():
            total += values[place]
        self._sums[broker] = total

    def message_rates(self) -> FloatArray:
        """Long-term messages per second that were placed on each broker; shape (B,)."""
        return self._sums

    def of_namespace(self, namespace: str) -> list[tuple[int, str]]:
        """Brokers and bundles of one namespace."""
        return self._of_namespace.get(namespace, [])
