"""TransferShedder's view of brokers: moving averages, and their spread over the cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from quotabalance.planning.cluster_load import RESOURCES, ClusterLoad
from quotabalance.stock.bundle_ranking import traffic_of
from quotabalance.stock.interface import BrokerLoads, StockRound
from quotabalance.stock.java import percent_usage
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.model import FloatArray


def weighted_max(load: ClusterLoad, settings: StockSettings) -> FloatArray:
    """The greatest weighted use of a resource, 1 = 100 %; shape (B,). Shares are 32-bit numbers.

    Unlike the modular manager's, it counts memory, too (by default with a weight of 0).
    ``BrokerLoadData.getMaxResourceUsageWithWeight``.
    """
    weights = {
        "cpu": settings.loadBalancerCPUResourceWeight,
        "memory": settings.loadBalancerMemoryResourceWeight,
        "directMemory": settings.loadBalancerDirectMemoryResourceWeight,
        "bandwidthIn": settings.bandwidth_in_weight,
        "bandwidthOut": settings.bandwidth_out_weight,
    }
    percents = percent_usage(load.usage, load.limit)
    columns = np.array([weights[name] for name in RESOURCES])
    found: FloatArray = (percents * columns).max(axis=1) / 100
    return found


class BrokerAverages:
    """Exponential moving averages of each broker's load (``BrokerLoadData.update``).

    A broker's first value counts as it is. A broker that is in no round any more is forgotten.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, float]] = {}

    def reported(self, round_: StockRound, settings: StockSettings) -> BrokerLoads:
        """The loads that brokers report; if the round has none, it is one measurement."""
        if round_.broker_loads:
            return round_.broker_loads
        load, history = round_.load, settings.loadBalancerHistoryResourcePercentage
        throughput = traffic_of(load).bytes_per_s
        use, smooth = self.update(load.brokers, weighted_max(load, settings), throughput, history)
        return BrokerLoads(use, smooth, throughput)

    def update(
        self, brokers: Sequence[str], use: FloatArray, throughput: FloatArray, history: float
    ) -> tuple[FloatArray, FloatArray]:
        """Take in one measurement of each broker, and return both averages; shapes (B,).

        Args:
            brokers: their names.
            use: the greatest weighted use, 1 = 100 %.
            throughput: bytes per second.
            history: weight of the average so far (``loadBalancerHistoryResourcePercentage``).

        >>> averages, of = BrokerAverages(), lambda value: np.array([value])
        >>> averages.update(["b1"], of(0.5), of(0.0), 0.9)[0].item()
        0.5
        >>> round(averages.update(["b1"], of(1.0), of(0.0), 0.9)[0].item(), 9)
        0.55
        """
        new = np.column_stack((use, throughput))
        nothing = (math.nan, math.nan)
        old = np.array([self._known.get(broker, nothing) for broker in brokers]).reshape(-1, 2)
        found = np.where(np.isnan(old), new, old * history + (1 - history) * new)
        self._known = dict(zip(brokers, map(tuple, found.tolist()), strict=True))
        return found[:, 0], found[:, 1]


class LoadSpread:
    """Mean and standard deviation of the brokers' load, also after bundles have been moved
    (``TransferShedder.LoadStats``).

    >>> spread = LoadSpread([0.75, 0.25])
    >>> spread.average, spread.deviation
    (0.5, 0.25)
    >>> spread.offload(0.75, 0.25, 0.25)
    >>> spread.deviation
    0.0
    """

    def __init__(self, loads: Sequence[float]) -> None:
        """``loads`` in the order of Pulsar's map: the last bits of the sums depend on it."""
        total = squares = 0.0
        for load in loads:
            total += load
            squares += load * load
        self._squares, self._brokers = squares, len(loads)
        self.average = total / len(loads)
        variance = squares / len(loads) - self.average * self.average
        # Rounding makes it negative sometimes. Java's root is then not a number, and greater than
        # nothing.
        self.deviation = math.sqrt(variance) if variance >= 0 else math.nan

    def offload(self, most: float, least: float, moved: float) -> None:
        """A broker with load ``most`` gave ``moved`` of it to one with load ``least``."""
        self._squares -= most * most + least * least
        most, least = max(0.0, most - moved), least + moved
        self._squares += most * most + least * least
        mean = self.average * self.average
        self.deviation = math.sqrt(abs(self._squares / self._brokers - mean))


def divide(numerator: float, denominator: float) -> float:
    """Java's division: by zero it gives an infinite number, or none (0 / 0)."""
    if denominator:
        return numerator / denominator
    return (
        math.nan if not numerator or math.isnan(numerator) else math.copysign(math.inf, numerator)
    )
