"""The common part of Pulsar's shedders: usage, traffic and bundles of brokers, biggest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from quotabalance.planning.cluster_load import RESOURCES, ClusterLoad
from quotabalance.planning.decisions import Move, Skip
from quotabalance.stock.interface import StockRound
from quotabalance.stock.java import HashMapOrder, percent_usage
from quotabalance.stock.leader_maps import LeaderMaps
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.model import BoolArray, FloatArray, IntArray

MB: Final = 1024 * 1024


def max_usage(load: ClusterLoad, settings: StockSettings) -> FloatArray:
    """``LocalBrokerData.getMaxResourceUsageWithWeight`` of each broker; 1 = the whole limit.

    Memory does not count. With all weights 0 it is 0.
    """
    usage: FloatArray = np.full(len(load.brokers), -np.inf)
    percent = percent_usage(load.usage, load.limit)
    for name, weight in (
        ("cpu", settings.loadBalancerCPUResourceWeight),
        ("directMemory", settings.loadBalancerDirectMemoryResourceWeight),
        ("bandwidthIn", settings.bandwidth_in_weight),
        ("bandwidthOut", settings.bandwidth_out_weight),
    ):
        with np.errstate(invalid="ignore", over="ignore"):
            weighted = percent[:, RESOURCES.index(name)] * weight
        usage = np.where(weighted > usage, weighted, usage)
    return usage / 100


class BrokerTraffic(NamedTuple):
    """Sums over the bundles in each broker's report; shape (B,) each."""

    bytes_per_s: FloatArray
    messages_per_s: FloatArray
    bundles: IntArray


def traffic_of(load: ClusterLoad, rates: FloatArray | None = None) -> BrokerTraffic:
    """Sums over each broker's bundles, added in the order in which its report lists them.

    In and out are added up apart from each other, as Pulsar does it; the last bits depend on it.

    Args:
        load: says which broker has which bundle.
        rates: what is added up, shape (N, 4); None = the rates of the load.
    """
    brokers = len(load.brokers)
    added = load.rates if rates is None else rates
    sums = [
        np.bincount(load.owner, added[:, column], brokers).astype(np.float64) for column in range(4)
    ]
    return BrokerTraffic(
        sums[0] + sums[1],
        sums[2] + sums[3],
        np.bincount(load.owner, minlength=brokers).astype(np.int64),
    )


def short_term_bytes(round_: StockRound) -> FloatArray:
    """Bytes per second of each bundle, of its short average; shape (N,)."""
    total: FloatArray = round_.short_term[:, 0] + round_.short_term[:, 1]
    return total


def short_term_messages(round_: StockRound) -> FloatArray:
    """Messages per second, as ``short_term_bytes``."""
    total: FloatArray = round_.short_term[:, 2] + round_.short_term[:, 3]
    return total


class Ranking:
    """Bundles that may leave some brokers, biggest first; equal ones as Java's map lists them."""

    def __init__(
        self, round_: StockRound, maps: LeaderMaps, sheds: BoolArray, value: FloatArray
    ) -> None:
        """
        Args:
            round_: the round.
            maps: the leader's maps, in this round.
            sheds: shape (B,): brokers that bundles are to leave.
            value: shape (N,): what is compared.
        """
        owner = round_.load.owner
        leaving = np.flatnonzero(sheds[owner])
        never = maps.never_shed()[leaving]
        recent = round_.recent[leaving] & ~never
        brokers = len(sheds)
        self._recent = np.bincount(owner[leaving[recent]], minlength=brokers)
        self._never = np.bincount(owner[leaving[never]], minlength=brokers)
        able = leaving[~never & ~recent]
        order = np.lexsort((-value[able], owner[able]))
        ranked = able[order]
        same = (value[ranked[1:]] == value[ranked[:-1]]) & (owner[ranked[1:]] == owner[ranked[:-1]])
        if same.any():
            ranked = able[np.lexsort((maps.bundle_places(able), -value[able], owner[able]))]
        self._ranked = ranked.astype(np.int64)
        self._start = np.searchsorted(owner[ranked], np.arange(brokers + 1))
        self._brokers = round_.load.brokers

    def of(self, broker: int) -> IntArray:
        """Indices of the bundles that may leave the broker, biggest first."""
        able: IntArray = self._ranked[self._start[broker] : self._start[broker + 1]]
        return able

    def leaving(self, broker: int, bundles: int) -> tuple[IntArray, list[Skip]]:
        """The bundles that may leave a broker, biggest first, and the reasons why others stay."""
        name = self._brokers[broker]
        if bundles <= 1:
            return np.zeros(0, np.int64), [too_few_bundles(name, bundles)]
        able, skips = self.of(broker), list(self.left_out(broker))
        if not len(able):
            skips.append(Skip(name, "NoBundles", "no bundle may leave it now", bundles))
        return able, skips

    def left_out(self, broker: int) -> Iterator[Skip]:
        """Why other bundles of the broker may not leave it."""
        recent, never = int(self._recent[broker]), int(self._never[broker])
        if recent:
            reason = f"{recent} bundles were unloaded less than the grace period ago"
            yield Skip(self._brokers[broker], "CoolDown", reason, recent)
        if never:
            reason = f"{never} bundles are of heartbeat or SLA namespaces, which stay"
            yield Skip(self._brokers[broker], "NoBundles", reason, never)


def first_until(values: FloatArray, amount: float) -> int:
    """How many of the first values are taken: until their sum reaches the amount, at least one.

    >>> first_until(np.array([5.0, 3.0, 1.0]), 6.0), first_until(np.array([5.0]), 0.0)
    (2, 1)
    """
    if not len(values):
        return 0
    return 1 + int((np.cumsum(values[:-1]) < amount).sum())


def too_few_bundles(broker: str, bundles: int) -> Skip:
    """The skip of a broker that has one bundle or none."""
    if bundles == 1:
        return Skip(broker, "NoBundles", "its only bundle overloads it; only a split can help")
    return Skip(broker, "NoBundles", "it is overloaded without any bundle", 0)


class SelectedBundles:
    """The answer of Pulsar's strategies: a multimap from broker to bundles."""

    def __init__(self) -> None:
        self._map_order = HashMapOrder()

    def moves(
        self, round_: StockRound, maps: LeaderMaps, chosen: dict[int, tuple[IntArray, str, str]]
    ) -> Sequence[Move]:
        """Moves in the order in which the leader walks the multimap.

        Args:
            round_: the round.
            maps: the leader's maps, in this round.
            chosen: for each broker, in order of insertion: bundles, label and reason.
        """
        brokers = np.array(list(chosen), np.int64)
        load, size = round_.load, short_term_bytes(round_)
        moves: list[Move] = []
        for broker in brokers[self._map_order.order(maps.broker_spreads()[brokers])].tolist():
            bundles, label, reason = chosen[broker]
            source = load.brokers[broker]
            moves += [
                Move(load.bundles[bundle], source, "", bytes_per_s, label, reason)
                for bundle, bytes_per_s in zip(
                    bundles.tolist(), size[bundles].tolist(), strict=True
                )
            ]
        return moves
