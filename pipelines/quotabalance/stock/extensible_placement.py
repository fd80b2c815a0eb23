"""Where Pulsar's extensible manager places bundles: its filters, and its one strategy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from quotabalance.planning.policies import Policies
from quotabalance.stock.interface import StockRound
from quotabalance.stock.java import spread, string_hashes
from quotabalance.stock.placements import below_mean
from quotabalance.stock.stock_settings import StockSettings
from quotabalance.stock.transfer_loads import BrokerAverages
from quotabalance.stock.transfer_policies import TransferRules
from quotaplane.model import FloatArray, IntArray


class ExtensiblePlacement:
    """``LeastResourceUsageWithWeight`` of the extensible manager: brokers whose moving average is
    far enough below the mean; if none is, any.

    State: the moving averages; each ``begin`` is one measurement. Later placements do
    not count, so every lookup between two reports sees the same averages.

    >>> from quotabalance.planning.cluster_load import ClusterLoad
    >>> usage, limit = np.array([[90.0] * 5, [10.0] * 5]), np.full((2, 5), 100.0)
    >>> load = ClusterLoad(("b1:1", "b2:1"), usage, limit, (), np.zeros(0, int), np.zeros((0, 4)))
    >>> placement = ExtensiblePlacement(StockSettings())
    >>> placement.begin(StockRound(load, load.rates, load.rates, np.zeros(0, bool), 0.0))
    >>> placement.choices("acme/orders/0x00000000_0xffffffff")
    ['b2:1']
    """

    def __init__(self, settings: StockSettings, policies: Policies | None = None) -> None:
        self._settings, self._policies = settings, policies
        self._averages = BrokerAverages()

    def __getstate__(self) -> dict[str, object]:
        """Without the round."""
        return {name: self.__dict__[name] for name in ("_settings", "_policies", "_averages")}

    def begin(self, round_: StockRound) -> None:
        """New reports have arrived."""
        load, settings = round_.load, self._settings
        self._usage: FloatArray = self._averages.reported(round_, settings).use
        self._brokers = list(load.brokers)
        self._rules = TransferRules(load, settings, self._policies)
        self._order = _map_order(self._brokers)

    def choices(self, bundle: str, excluded: Collection[str] = ()) -> list[str]:
        """All brokers that Pulsar draws from, sorted; [] = none may have the bundle.

        Args:
            bundle: its name; it need not be reported by any broker.
            excluded: brokers that may not get it (the source of an unload).
        """
        available = np.array([broker not in excluded for broker in self._brokers], np.bool_)
        candidates = self._rules.candidates(bundle, available)
        listed = self._order[candidates[self._order]]
        if not len(listed):
            return []
        found = below_mean(listed, self._usage[listed], len(listed), self._settings)
        return sorted(self._brokers[index] for index in found.tolist())

    def place(
        self, bundle: str, draw: Callable[[Sequence[str]], str], excluded: Collection[str] = ()
    ) -> str | None:
        """Choose a broker; None = no broker may have the bundle."""
        choices = self.choices(bundle, excluded)
        return draw(choices) if choices else None


def _map_order(brokers: Sequence[str]) -> IntArray:
    """The order of a ``ConcurrentHashMap`` that is copied from a map of the brokers: the last bits
    of their mean depend on it.
    """
    capacity = 16
    while capacity < len(brokers) + len(brokers) // 2 + 1:
        capacity *= 2
    buckets = spread(string_hashes(brokers)) & np.uint32(capacity - 1)
    return np.argsort(buckets, kind="stable").astype(np.int64)
