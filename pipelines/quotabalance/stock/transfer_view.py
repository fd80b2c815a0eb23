"""The cluster as TransferShedder's leader sees it in one round."""

from __future__ import annotations

import numpy as np

from quotabalance.stock.bundle_ranking import traffic_of
from quotabalance.stock.interface import StockRound
from quotabalance.stock.java import ConcurrentMapOrder, HashArray, spread, string_hashes
from quotabalance.stock.stock_policies import StockPolicies
from quotabalance.stock.stock_settings import StockSettings
from quotabalance.stock.top_bundles import grouped, load_classes, reported_bundles
from quotabalance.stock.transfer_loads import BrokerAverages, weighted_max
from quotabalance.stock.transfer_policies import TransferRules
from quotaplane.model import FloatArray, IntArray


class TransferView:
    """The input of a cycle: averages of brokers, the bundles that they report, policies."""

    def __init__(
        self,
        round_: StockRound,
        averages: BrokerAverages,
        settings: StockSettings,
        policies: StockPolicies | None,
        map_order: IntArray,
    ) -> None:
        load = round_.load
        self.load, self.settings, self.recent = load, settings, round_.recent
        self.rules = TransferRules(load, settings, policies)
        self.throughput = traffic_of(load).bytes_per_s
        self.bytes_per_s = load.throughput()
        self.use, self.smooth_throughput = averages.update(
            load.brokers,
            weighted_max(load, settings),
            self.throughput,
            settings.loadBalancerHistoryResourcePercentage,
        )
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
