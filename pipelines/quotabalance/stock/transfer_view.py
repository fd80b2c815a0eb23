"""The cluster as TransferShedder's leader sees it in one round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.policies import Policies
from quotabalance.stock.interface import StockRound
from quotabalance.stock.java import ConcurrentMapOrder, HashArray, spread, string_hashes
from quotabalance.stock.stock_settings import StockSettings
from quotabalance.stock.transfer_loads import BrokerAverages
from quotabalance.stock.transfer_policies import TransferRules
from quotaplane.model import FloatArray, IntArray

_BYTES_STEP: Final = 1e5
_MESSAGES_STEP: Final = 100.0
_CONNECTIONS_STEP: Final = 500
_MOST: Final = 2.0**63


def load_classes(load: ClusterLoad) -> FloatArray:
    """The steps by which Pulsar compares two bundles' loads; shape (N, 4), the first column first.

    Steps of 100 KB/s in, of 100 KB/s out, of 100 messages per second, of 500 topics and clients.
    Bundles in the same steps count as equal (``NamespaceBundleStats.compareTo``).
    """
    topics = load.topics if len(load.topics) else np.zeros(len(load.bundles), np.int64)
    sessions = load.sessions if len(load.sessions) else np.zeros(len(load.bundles), np.int64)
    return np.column_stack(
        (
            _rounded(load.rates[:, 0] / _BYTES_STEP),
            _rounded(load.rates[:, 1] / _BYTES_STEP),
            _rounded((load.rates[:, 2] + load.rates[:, 3]) / _MESSAGES_STEP),
            ((topics + sessions) // _CONNECTIONS_STEP).astype(np.float64),
        )
    )


def _rounded(values: FloatArray) -> FloatArray:
    """``Math.round``: halves go up."""
    below = np.floor(values)
    found: FloatArray = np.minimum(below + (values - below >= 0.5), _MOST)
    return found


def reported_bundles(bundles: Sequence[int], classes: FloatArray, most: int) -> list[int]:
    """The bundles that a broker reports: the ``most`` biggest, *the smallest of them first*.

    Args:
        bundles: the broker's bundles that may be reported, in the order of its map.
        classes: of all bundles (``load_classes``).
        most: ``loadBalancerMaxNumberOfBundlesInBundleLoadReport``.

    Pulsar (``TopKBundles``) sorts only as much as it needs. Which of equal bundles are reported
    depends on how it does that, so this does the same.

    >>> classes = np.array([[5.0, 0, 0, 0], [9, 0, 0, 0], [1, 0, 0, 0]])
    >>> reported_bundles([0, 1, 2], classes, 2)
    [0, 1]
    """
    most = min(most, len(bundles))
    if most <= 0:
        return []
    keys = [tuple(row) for row in classes[np.asarray(bundles, np.int64)].tolist()]
    order = list(range(len(bundles)))
    end = _biggest_first(order, keys, most)
    order[:end] = sorted(order[:end], key=keys.__getitem__, reverse=True)
    return [bundles[place] for place in reversed(order[:most])]


def _biggest_first(order: list[int], keys: list[tuple[float, ...]], most: int) -> int:
    """Put the ``most`` biggest first (quickselect on thirds); returns how many are to be sorted."""
    start, end, target = 0, len(order) - 1, most - 1
    while start < end:
        bigger, at, smaller = start, start, end
        pivot = keys[order[end]]
        while at <= smaller:
            key = keys[order[at]]
            if key > pivot:
                order[bigger], order[at] = order[at], order[bigger]
                bigger += 1
                at += 1
            elif key < pivot:
                order[at], order[smaller] = order[smaller], order[at]
                smaller -= 1
            else:
                at += 1
        if bigger <= target < at:
            return bigger
        if target < bigger:
            end = bigger - 1
        else:
            start = at
    return end


def grouped(owner: IntArray, brokers: int) -> tuple[IntArray, IntArray]:
    """Bundles by broker: their indices, and where each broker's begin; shapes (N,), (B + 1,)."""
    order = np.argsort(owner, kind="stable")
    return order, np.searchsorted(owner[order], np.arange(brokers + 1))


class TransferView:
    """The input of a cycle: averages of brokers, the bundles that they report, policies."""

    def __init__(
        self,
        round_: StockRound,
        averages: BrokerAverages,
        settings: StockSettings,
        policies: Policies | None,
        map_order: IntArray,
    ) -> None:
        load = round_.load
        self.load, self.settings, self.recent = load, settings, round_.recent
        self.rules = TransferRules(load, settings, policies)
        self.bytes_per_s = load.throughput()
        self.use, self.smooth_throughput, self.throughput = averages.reported(round_, settings)
        self.map_order = map_order
        self._classes: FloatArray | None = None
        self._spreads: HashArray = np.zeros(0, np.uint32)
        self._grouped: tuple[IntArray, IntArray] | None = None
        self._reported: dict[int, list[int]] = {}

    def sorted_brokers(self) -> list[int]:
        """All brokers, the least loaded first; equals in the order of Pulsar's map."""
        order = self.map_order
        found: list[int] = order[np.argsort(self.use[order], kind="stable")].tolist()
        return found

    def reported(self, broker: int) -> list[int]:
        """The bundles that the broker reports, in the order of its report."""
        if broker not in self._reported:
            self._reported[broker] = self._report(broker)
        return self._reported[broker]

    def _report(self, broker: int) -> list[int]:
        if self._classes is None or self._grouped is None:
            self._classes = load_classes(self.load)
            self._grouped = grouped(self.load.owner, len(self.load.brokers))
            self._spreads = spread(string_hashes(self.load.bundles))
        order, begins = self._grouped
        own = order[begins[broker] : begins[broker + 1]]
        own = own[self.bytes_per_s[own] != 0]
        classes, bundles = self._classes[own], self.load.bundles
        if len(set(map(tuple, classes.tolist()))) < len(own):  # the order decides between equals
            own = order[begins[broker] : begins[broker + 1]]
            own = own[ConcurrentMapOrder().listed(self._spreads[own])]
        reportable = [
            index
            for index in own.tolist()
            if self.bytes_per_s[index] != 0 and self.rules.is_reported(bundles[index])
        ]
        most = self.settings.loadBalancerMaxNumberOfBundlesInBundleLoadReport
        return reported_bundles(reportable, self._classes, most)
