"""ThresholdShedder: brokers above the mean usage by a threshold lose bundles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import Decisions, Skip
from quotabalance.stock.bundle_ranking import (
    MB,
    BrokerTraffic,
    Ranking,
    SelectedBundles,
    first_until,
    max_usage,
    short_term_bytes,
    traffic_of,
)
from quotabalance.stock.interface import StockRound
from quotabalance.stock.leader_maps import LeaderMaps
from quotabalance.stock.overload import MARGIN
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.model import BoolArray, FloatArray, IntArray

LOWER_BOUNDARY_MARGIN: Final = 0.5
"""``LOWER_BOUNDARY_THRESHOLD_MARGIN``: the share of the threshold that a round moves."""

Chosen = dict[int, tuple[IntArray, str, str]]


class ThresholdShedder:
    """Sheds from brokers whose smoothed usage is >= mean + threshold: the biggest bundles, until
    their sum reaches throughput * (usage - mean - threshold + 0.05). State: smoothed usages.
    """

    def __init__(self, settings: StockSettings) -> None:
        self._settings = settings
        self._maps = LeaderMaps()
        self._selected = SelectedBundles()
        self._history: dict[str, float] = {}

    def active_brokers(self, brokers: Sequence[str]) -> None:
        """See ``ForgetsBrokers``."""
        gone = self._history.keys() - set(brokers)
        for broker in gone:
            del self._history[broker]

    def shed(self, round_: StockRound) -> Decisions:
        """See ``Shedder``."""
        load, settings = round_.load, self._settings
        self._maps.begin(load)
        threshold = settings.loadBalancerBrokerThresholdShedderPercentage / 100.0
        smoothed, mean = self._next_usage(load)
        if mean == 0:
            skip = Skip("", "Balanced", "the mean usage of all brokers is 0", 0)
            return Decisions((), (), [skip])
        traffic = traffic_of(load)
        with np.errstate(invalid="ignore", over="ignore"):
            over = ~(smoothed < mean + threshold)
            amount = traffic.bytes_per_s * (smoothed - mean - threshold + MARGIN)
        reasons = {
            broker: f"{load.brokers[broker]} uses {smoothed[broker]:.1%} (smoothed), mean"
            f" {mean:.1%} + threshold {threshold:.1%}: at least {amount[broker] / MB:.4g} MB/s"
            " leave it"
            for broker in np.flatnonzero(over).tolist()
        }
        chosen, skips = self._choose(round_, over, amount, traffic, "Overloaded", reasons)
        calm = len(load.brokers) - len(reasons)
        if calm:
            reason = (
                f"{calm} of {len(load.brokers)} brokers use less than {mean + threshold:.1%}"
                " (smoothed)"
            )
            skips.append(Skip("", "Balanced", reason, 0))
        if not chosen and settings.lowerBoundarySheddingEnabled:
            chosen, more = self._fill_the_lowest(round_, threshold, traffic)
            skips.extend(more)
        return Decisions(self._selected.moves(round_, self._maps, chosen), (), skips)

    def _next_usage(self, load: ClusterLoad) -> tuple[FloatArray, float]:
        """Smooth the usage with this round's; returns it for each broker, and its mean."""
        keep = self._settings.loadBalancerHistoryResourcePercentage
        usage = max_usage(load, self._settings)
        known = np.array([name in self._history for name in load.brokers], np.bool_)
        before = np.array([self._history.get(name, 0.0) for name in load.brokers], np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            smoothed = np.where(known, before * keep + (1 - keep) * usage, usage)
            # Added one by one in the order of the map; cumsum does just that.
            total = np.cumsum(smoothed[self._maps.brokers()])
        self._history.update(zip(load.brokers, smoothed.tolist(), strict=True))
        return smoothed, float(total[-1]) / len(total) if len(total) else 0.0

    def _choose(
        self,
        round_: StockRound,
        over: BoolArray,
        amount: FloatArray,
        traffic: BrokerTraffic,
        label: str,
        reasons: dict[int, str],
    ) -> tuple[Chosen, list[Skip]]:
        """The biggest bundles of these brokers, until their sum reaches the amount."""
        least = self._settings.loadBalancerBundleUnloadMinThroughputThreshold * MB
        load, maps, size = round_.load, self._maps, short_term_bytes(round_)
        enough = over & ~(amount < least)
        ranking = Ranking(round_, maps, enough & (traffic.bundles > 1), size)
        chosen: Chosen = {}
        skips: list[Skip] = []
        listed = maps.brokers()
        for broker in listed[over[listed]].tolist():
            name = load.brokers[broker]
            if not enough[broker]:
                skips.append(_below_minimum(name, float(amount[broker]), least))
                continue
            able, stay = ranking.leaving(broker, int(traffic.bundles[broker]))
            skips.extend(stay)
            if not len(able):
                continue
            taken = able[: first_until(size[able], float(amount[broker]))]
            chosen[broker] = taken, label, reasons[broker]
        return chosen, skips

    def _fill_the_lowest(
        self, round_: StockRound, threshold: float, traffic: BrokerTraffic
    ) -> tuple[Chosen, list[Skip]]:
        """``tryLowerBoundaryShedding``. Smooths a second time in this round, as Pulsar does."""
        load, listed = round_.load, self._maps.brokers()
        smoothed, mean = self._next_usage(load)
        floor = mean - threshold
        low = np.flatnonzero(smoothed < floor)
        if not len(low):
            reason = f"no broker uses less than mean {mean:.1%} - threshold {threshold:.1%}"
            return {}, [Skip("", "Balanced", reason, 0)]
        able = listed[(smoothed[listed] > floor) & (traffic.bundles[listed] > 1)]
        if not len(able):
            reason = f"no broker above {floor:.1%} has more than one bundle"
            return {}, [Skip("", "NoBundles", reason, 0)]
        highest = int(able[smoothed[able].argmax()])
        amount = traffic.bytes_per_s * threshold * LOWER_BOUNDARY_MARGIN
        reason = (
            f"{len(low)} brokers use less than mean {mean:.1%} - threshold {threshold:.1%}"
            f" (smoothed); {load.brokers[highest]} uses {smoothed[highest]:.1%}, most of all:"
            f" at least {amount[highest] / MB:.4g} MB/s leave it"
        )
        over = np.zeros(len(load.brokers), np.bool_)
        over[highest] = True
        return self._choose(round_, over, amount, traffic, "Underloaded", {highest: reason})


def _below_minimum(broker: str, amount: float, least: float) -> Skip:
    reason = f"{amount / MB:.4g} MB/s would leave it, less than the minimum of {least / MB:.4g}"
    return Skip(broker, "BelowMinimum", reason, 0)
