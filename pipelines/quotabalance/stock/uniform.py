"""UniformLoadShedder: the broker with the most traffic loses bundles if the gap is too wide."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from quotabalance.planning.decisions import Decisions, Skip
from quotabalance.stock.bundle_ranking import (
    BrokerTraffic,
    Ranking,
    SelectedBundles,
    short_term_bytes,
    short_term_messages,
    too_few_bundles,
    traffic_of,
)
from quotabalance.stock.interface import StockRound
from quotabalance.stock.java import INT_MAX, to_int, wrap_int
from quotabalance.stock.leader_maps import LeaderMaps
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.model import FloatArray, IntArray

DELTA: Final = 1000
"""Added to what is still to be moved before a bundle is compared with it, in 32 bits."""

_EPS: Final = 1e-6


class _Extremes(NamedTuple):
    """The brokers with the most and the least traffic."""

    most: float
    least: float
    broker: int
    """The one with the most."""

    def gap_to_move(self, share: float) -> int:
        """The amount that is to leave the broker: cut to a whole number, at most 2^31 - 1."""
        return to_int((self.most - self.least) * share)


class _Excess(NamedTuple):
    """The traffic that is too unequal: messages or bytes, and the least that is worth an unload."""

    found: _Extremes
    unit: str
    minimum: int
    """The least load that leaves the broker."""
    values: FloatArray
    """Shape (N,): the same of each bundle."""
    why: str


class UniformLoadShedder:
    """Compares the brokers with the most and the least message rate, and throughput. Keeps no state
    but the order of maps.
    """

    def __init__(self, settings: StockSettings) -> None:
        self._settings = settings
        self._maps = LeaderMaps()
        self._selected = SelectedBundles()

    def shed(self, round_: StockRound) -> Decisions:
        """See ``Shedder``."""
        load = round_.load
        self._maps.begin(load)
        if not len(load.brokers):
            return Decisions((), (), [Skip("", "NoBrokers", "there is no broker", 0)])
        traffic = traffic_of(load)
        excess = self._excess(round_, traffic)
        if isinstance(excess, Skip):
            return Decisions((), (), [excess])
        broker = excess.found.broker
        if traffic.bundles[broker] <= 1:
            skip = too_few_bundles(load.brokers[broker], int(traffic.bundles[broker]))
            return Decisions((), (), [skip])
        return self._unload(round_, excess)

    def _excess(self, round_: StockRound, traffic: BrokerTraffic) -> _Excess | Skip:
        """Message rates decide first, bytes only if those are near enough to each other."""
        settings = self._settings
        messages = self._extremes(traffic.messages_per_s)
        throughput = self._extremes(traffic.bytes_per_s)
        percent = (messages.most - messages.least) * 100 / messages.least
        ratio = throughput.most / throughput.least
        most_percent = settings.loadBalancerMsgRateDifferenceShedderThreshold
        most_ratio = settings.loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold
        if most_percent > 0 and percent > most_percent:
            why = f"{percent:.4g} % more than the least, threshold {most_percent:g} %"
            minimum, values = settings.minUnloadMessage, short_term_messages(round_)
            return _Excess(messages, "messages/s", minimum, values, why)
        if most_ratio > 0 and ratio > most_ratio:
            why = f"{ratio:.4g} times the least, threshold {most_ratio:g}"
            minimum, values = settings.minUnloadMessageThroughput, short_term_bytes(round_)
            return _Excess(throughput, "bytes/s", minimum, values, why)
        reason = (
            f"the most messages/s are {percent:.4g} % above the least (threshold"
            f" {most_percent:g} %), the most bytes/s {ratio:.4g} times the least (threshold"
            f" {most_ratio:g})"
        )
        return Skip("", "Balanced", reason, 0)

    def _unload(self, round_: StockRound, excess: _Excess) -> Decisions:
        brokers, settings = round_.load.brokers, self._settings
        found, unit = excess.found, excess.unit
        name, need = brokers[found.broker], found.gap_to_move(settings.maxUnloadPercentage)
        if need < excess.minimum:
            reason = f"{need} {unit} would leave it, less than the minimum of {excess.minimum}"
            return Decisions((), (), [Skip(name, "BelowMinimum", reason, 0)])
        sheds = np.zeros(len(brokers), np.bool_)
        sheds[found.broker] = True
        ranking = Ranking(round_, self._maps, sheds, excess.values)
        able = ranking.of(found.broker)
        most = settings.maxUnloadBundleNumPerShedding
        taken = able[_that_fit(excess.values[able], need, most)]
        skips = list(ranking.left_out(found.broker))
        if not len(taken):
            reason = f"none of its {len(able)} bundles that may leave fits in {need} {unit}"
            skips.append(Skip(name, "NoBundles", reason, len(able)))
            return Decisions((), (), skips)
        reason = f"{name} has {found.most:.6g} {unit}, {excess.why}: {need} {unit} leave it"
        chosen = {found.broker: (taken, "Overloaded", reason)}
        return Decisions(self._selected.moves(round_, self._maps, chosen), (), skips)

    def _extremes(self, traffic: FloatArray) -> _Extremes:
        """First ones in the order of the map. The least begins at 2^31 - 1, and 0 counts as 1."""
        listed = self._maps.brokers()
        most = int(listed[traffic[listed].argmax()])
        least = min(float(traffic.min()), float(INT_MAX))
        if abs(least) <= _EPS:
            least = 1.0
        return _Extremes(float(traffic[most]), least, most)


def _that_fit(values: FloatArray, need: int, most: int) -> IntArray:
    """Places of the bundles that are taken, in 32-bit arithmetic as Pulsar's."""
    taken: list[int] = []
    for place, value in enumerate(values.tolist()):
        if most != -1 and len(taken) >= most:
            break
        if value <= wrap_int(need + DELTA):
            taken.append(place)
            need = wrap_int(need + to_int(-value))
    return np.array(taken, np.int64)
