"""AvgShedder (PIP-364): pairs of a hot and a cold broker, and a remembered target for bundles."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import Decisions, Skip
from quotabalance.stock.bundle_ranking import (
    BrokerTraffic,
    Ranking,
    SelectedBundles,
    max_usage,
    short_term_bytes,
    short_term_messages,
    traffic_of,
)
from quotabalance.stock.interface import StockRound
from quotabalance.stock.java import HashMapOrder
from quotabalance.stock.leader_maps import LeaderMaps
from quotabalance.stock.remembered_targets import RememberedTargets
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.model import FloatArray, IntArray


class _Pair(NamedTuple):
    """A broker that may lose bundles to another one; indices."""

    low: int
    high: int


class _Offload(NamedTuple):
    """The amount that is to leave the pair's higher broker."""

    amount: float
    of_messages: bool
    """The amount is messages per second; else bytes per second."""


class AvgShedder:
    """Pairs the broker of the i-th least score with that of the i-th most. A pair acts after its
    difference was too high often enough. State: hit counts, targets of bundles.
    """

    def __init__(self, settings: StockSettings) -> None:
        self._settings = settings
        self._maps = LeaderMaps()
        self._score_order = HashMapOrder()
        self._low_hits: Counter[str] = Counter()
        self._high_hits: Counter[str] = Counter()
        self.targets = RememberedTargets()

    def shed(self, round_: StockRound) -> Decisions:
        """See ``Shedder``. Targets are in ``targets``, not in the moves: whether a bundle gets
        there depends on the cluster's placement (``AvgPlacement`` follows them).
        """
        load, maps = round_.load, self._maps
        maps.begin(load)
        self.targets.begin(round_)
        scores = max_usage(load, self._settings) * 100
        skips: list[Skip] = []
        pairs = self._pairs(load, self._sorted(scores), scores)
        if not pairs:
            self._low_hits.clear()
            self._high_hits.clear()
            reason = (
                f"no pair of brokers differs by"
                f" {self._settings.loadBalancerAvgShedderLowThreshold} points or more"
            )
            return Decisions((), (), [Skip("", "Balanced", reason, 0)])
        traffic = traffic_of(load)
        acting: dict[_Pair, _Offload] = {}
        for pair in pairs:
            if not self._has_hit(load, pair, scores, skips):
                continue
            offload = self._offload(load, pair, traffic, skips)
            if offload:
                acting[pair] = offload
        return self._choose(round_, acting, scores, skips)

    def _sorted(self, scores: FloatArray) -> list[int]:
        """Brokers by score, least first; equal ones as a ``HashMap`` lists them."""
        listed = self._maps.brokers()
        listed = listed[self._score_order.order(self._maps.broker_spreads()[listed])]
        # Java's order of doubles has -0 before 0.
        positive = ~np.signbit(scores[listed])
        by_score: list[int] = listed[np.lexsort((positive, scores[listed]))].tolist()
        return by_score

    def _pairs(self, load: ClusterLoad, brokers: list[int], scores: FloatArray) -> list[_Pair]:
        """Pairs whose difference is at least the low threshold; counts hits."""
        settings, pairs = self._settings, []
        for place in range((len(brokers) + 1) // 2):
            pair = _Pair(brokers[place], brokers[-1 - place])
            low, high = (load.brokers[broker] for broker in pair)
            with np.errstate(invalid="ignore"):
                difference = scores[pair.high] - scores[pair.low]
            if difference < settings.loadBalancerAvgShedderLowThreshold:
                self._forget_hits(low, high)
                continue
            pairs.append(pair)
            self._low_hits[low] += 1
            self._low_hits[high] += 1
            if difference < settings.loadBalancerAvgShedderHighThreshold:
                self._high_hits.pop(low, None)
                self._high_hits.pop(high, None)
            else:
                self._high_hits[low] += 1
                self._high_hits[high] += 1
        return pairs

    def _forget_hits(self, *brokers: str) -> None:
        for broker in brokers:
            self._low_hits.pop(broker, None)
            self._high_hits.pop(broker, None)

    def _has_hit(
        self, load: ClusterLoad, pair: _Pair, scores: FloatArray, skips: list[Skip]
    ) -> bool:
        """Whether the pair acts now; if so, its hits are forgotten."""
        low, high = (load.brokers[broker] for broker in pair)
        hits = max(self._low_hits[low], self._low_hits[high])
        high_hits = max(self._high_hits[low], self._high_hits[high])
        wanted = self._settings.loadBalancerAvgShedderHitCountLowThreshold
        high_wanted = self._settings.loadBalancerAvgShedderHitCountHighThreshold
        if hits >= wanted or high_hits >= high_wanted:
            self._forget_hits(low, high)
            return True
        reason = (
            f"score {scores[pair.high]:.1f}, {low} has {scores[pair.low]:.1f}:"
            f" {hits} of {wanted} hits, {high_hits} of {high_wanted} of the high threshold"
        )
        skips.append(Skip(high, "HitCount", reason, 0))
        return False

    def _offload(
        self, load: ClusterLoad, pair: _Pair, traffic: BrokerTraffic, skips: list[Skip]
    ) -> _Offload | None:
        settings, share = self._settings, self._settings.maxUnloadPercentage
        messages, size = traffic.messages_per_s, traffic.bytes_per_s
        rate = float((messages[pair.high] - messages[pair.low]) * share)
        amount = float((size[pair.high] - size[pair.low]) * share)
        if rate > settings.minUnloadMessage:
            return _Offload(rate, True)
        if amount > settings.minUnloadMessageThroughput:
            return _Offload(amount, False)
        reason = (
            f"{amount:.6g} bytes/s or {rate:.6g} messages/s would leave it for"
            f" {load.brokers[pair.low]}, not more than the minimum of"
            f" {settings.minUnloadMessageThroughput} or {settings.minUnloadMessage}"
        )
        skips.append(Skip(load.brokers[pair.high], "BelowMinimum", reason, 0))
        return None

    def _choose(
        self,
        round_: StockRound,
        acting: dict[_Pair, _Offload],
        scores: FloatArray,
        skips: list[Skip],
    ) -> Decisions:
        load = round_.load
        sheds = np.zeros(len(load.brokers), np.bool_)
        by_messages = np.zeros(len(load.brokers), np.bool_)
        for pair, offload in acting.items():
            sheds[pair.high], by_messages[pair.high] = True, offload.of_messages
        values = np.where(
            by_messages[load.owner], short_term_messages(round_), short_term_bytes(round_)
        )
        ranking = Ranking(round_, self._maps, sheds, values)
        chosen: dict[int, tuple[IntArray, str, str]] = {}
        for pair, offload in acting.items():
            low, high = (load.brokers[broker] for broker in pair)
            able = ranking.of(pair.high)
            taken = able[_that_fit(values[able], offload.amount)]
            unit = "messages/s" if offload.of_messages else "bytes/s"
            skips.extend(ranking.left_out(pair.high))
            if not len(taken):
                reason = f"none of its bundles fits in {offload.amount:.6g} {unit} for {low}"
                skips.append(Skip(high, "NoBundles", reason, len(able)))
                continue
            for bundle in taken.tolist():
                self.targets.put(round_, bundle, low)
            reason = (
                f"{high} has score {scores[pair.high]:.1f}, {low} {scores[pair.low]:.1f}:"
                f" at most {offload.amount:.6g} {unit} leave for {low}"
            )
            chosen[pair.high] = taken, "Overloaded", reason
        # Pulsar makes this multimap anew in each round.
        return Decisions(SelectedBundles().moves(round_, self._maps, chosen), (), skips)


def _that_fit(values: FloatArray, amount: float) -> IntArray:
    """Places of the values that are taken, each if it is within what remains."""
    taken: list[int] = []
    for place, value in enumerate(values.tolist()):
        if 0 < value <= amount:
            taken.append(place)
            amount += -value
    return np.array(taken, np.int64)
