"""Pulsar's sets of candidates: which brokers are in, and in which order Java lists them."""

from __future__ import annotations

import numpy as np

from quotabalance.stock.java import HashArray, HashMapOrder
from quotaplane.model import BoolArray, IntArray


class CandidateSet:
    """A ``HashSet`` of brokers that is used again and again; its table never shrinks.

    >>> from quotabalance.stock.java import spread, string_hashes
    >>> found = CandidateSet()
    >>> found.spreads = spread(string_hashes(["b2", "b1", "b3"]))
    >>> found.add(np.arange(3))
    >>> found.brokers.tolist()
    [0, 2, 1]
    """

    def __init__(self) -> None:
        self.spreads: HashArray = np.zeros(0, np.uint32)
        """Mixed hashes of all brokers there are."""
        self.brokers: IntArray = np.zeros(0, np.int64)
        """The members, as Java lists them."""
        self._order = HashMapOrder()

    def clear(self) -> None:
        """Remove all."""
        self.brokers = np.zeros(0, np.int64)

    def add(self, brokers: IntArray) -> None:
        """Insert brokers in this order."""
        if len(self.brokers):
            new = brokers[~self.mask()[brokers]]
            brokers = np.concatenate((self.brokers, new))
        self.brokers = brokers[self._order.order(self.spreads[brokers])]

    def keep(self, wanted: BoolArray) -> None:
        """Remove the brokers that are not wanted; shape (B,)."""
        self.brokers = self.brokers[wanted[self.brokers]]

    def mask(self) -> BoolArray:
        """Whether each broker is in; shape (B,)."""
        found = np.zeros(len(self.spreads), np.bool_)
        found[self.brokers] = True
        return found


def copied_order(brokers: IntArray, spreads: HashArray) -> IntArray:
    """The order of ``new HashSet<>(brokers)``, whose table is made large enough at once."""
    capacity = 16
    while capacity < int(len(brokers) / 0.75) + 1:
        capacity *= 2
    return brokers[np.argsort(spreads[brokers] & np.uint32(capacity - 1), kind="stable")]
