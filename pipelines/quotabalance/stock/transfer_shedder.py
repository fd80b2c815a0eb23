"""TransferShedder, the shedder of Pulsar's extensible manager."""

from __future__ import annotations

import numpy as np

from quotabalance.planning.decisions import Decisions, Move, Skip
from quotabalance.planning.policies import Policies
from quotabalance.stock.interface import StockRound
from quotabalance.stock.java import ConcurrentMapOrder
from quotabalance.stock.stock_settings import StockSettings
from quotabalance.stock.transfer_loads import BrokerAverages, LoadSpread, divide
from quotabalance.stock.transfer_pairs import PairChooser, PairMoves, TransferPair
from quotabalance.stock.transfer_view import TransferView
from quotaplane.model import IntArray


class TransferShedder:
    """Moves bundles from the fullest to the emptiest brokers, pair by pair.

    State: the moving averages of brokers, and in how many rounds in a row something was wrong. Each
    call of ``shed`` is one measurement of every broker *and* one cycle of the leader.

    >>> from quotabalance.planning.cluster_load import ClusterLoad
    >>> bundles = tuple(f"acme/orders/0x{i:08x}_0x{i + 1:08x}" for i in range(4))
    >>> usage, limit = np.array([[90.0] * 5, [10.0] * 5]), np.full((2, 5), 100.0)
    >>> owner, rates = np.zeros(4, int), np.full((4, 4), 1e6)
    >>> load = ClusterLoad(("b1:1", "b2:1"), usage, limit, bundles, owner, rates)
    >>> shedder = TransferShedder(StockSettings())
    >>> round_ = StockRound(load, rates, rates, np.zeros(4, bool), 0.0)
    >>> [shedder.shed(round_).skips[-1].label for _ in range(3)]
    ['HitCount', 'HitCount', 'HitCount']
    >>> [(move.source, move.target, move.label) for move in shedder.shed(round_).moves]
    [('b1:1', 'b2:1', 'Overloaded')]
    """

    def __init__(self, settings: StockSettings, policies: Policies | None = None) -> None:
        self._settings = settings
        self.policies = policies
        """May be replaced between rounds."""
        self._averages = BrokerAverages()
        self._map = ConcurrentMapOrder()
        self._hits = 0

    def shed(self, round_: StockRound) -> Decisions:
        """Decide which bundles are transferred (``findBundlesForUnloading``).

        With ``loadBalancerTransferEnabled`` = false moves have no target.
        """
        map_order = self._map.replace(round_.load.brokers)
        view = TransferView(round_, self._averages, self._settings, self.policies, map_order)
        fresh, skip = self._fresh_brokers(view, round_)
        if skip:
            return Decisions(skips=(skip,))
        spread = LoadSpread(view.use[fresh].tolist())
        cycle = _Cycle(view, spread)
        if cycle.reason():
            self._hits += 1
        else:
            self._hits = 0
        needed = self._settings.loadBalancerSheddingConditionHitCountThreshold
        if self._hits <= needed:
            text = (
                f"brokers must be out of balance in more than {needed} rounds in a row, and were in"
                f" {self._hits}; standard deviation {spread.deviation:.3f}"
            )
            return Decisions(skips=(Skip("", "HitCount", text),))
        decided = cycle.run()
        if decided.moves:
            self._hits = 0
        return decided

    def _fresh_brokers(
        self, view: TransferView, round_: StockRound
    ) -> tuple[IntArray, Skip | None]:
        """Brokers whose reports count, in the order of Pulsar's map; or why it skips."""
        brokers, settings = view.load.brokers, self._settings
        age = np.zeros(len(brokers)) if round_.report_age_s is None else round_.report_age_s
        is_fresh = age <= settings.loadBalancerBrokerLoadDataTTLInSeconds
        if round_.since_unload_s is not None:
            hot = is_fresh & (round_.since_unload_s < settings.loadBalanceSheddingDelayInSeconds)
            if hot.any():
                text = (
                    f"{np.count_nonzero(hot)} of {len(brokers)} brokers unloaded a bundle less than"
                    f" {settings.loadBalanceSheddingDelayInSeconds} s before their reports"
                )
                return view.map_order, Skip(brokers[int(hot.argmax())], "CoolDown", text)
        fresh = view.map_order[is_fresh[view.map_order]]
        if not len(fresh):
            if len(brokers):
                oldest = settings.loadBalancerBrokerLoadDataTTLInSeconds
                return fresh, Skip("", "OutDatedData", f"all reports are older than {oldest} s")
            return fresh, Skip("", "NoBrokers", "no broker has sent a report")
        if round_.missing:
            text = f"{len(round_.missing)} brokers have sent no report"
            return fresh, Skip(min(round_.missing), "NoLoadData", text)
        return fresh, None


class _Cycle:
    """One cycle: pairs of brokers, from the outside inwards."""

    def __init__(self, view: TransferView, spread: LoadSpread) -> None:
        self._view, self._spread = view, spread
        self._brokers = view.sorted_brokers()
        self._low, self._high = 0, len(self._brokers) - 1
        self._shed = 0
        self._skips: list[Skip] = []
        self._moves: list[Move] = []

    def reason(self) -> str:
        """The label of what is wrong with the cluster now; "" = nothing."""
        settings = self._view.settings
        if self._spread.deviation > settings.loadBalancerBrokerLoadTargetStd:
            return "Overloaded"
        if self._is_underloaded(self._brokers[self._low]):
            return "Underloaded"
        return "Overloaded" if self._is_overloaded(self._brokers[self._high]) else ""

    def _is_underloaded(self, broker: int) -> bool:
        half = self._view.settings.loadBalancerBrokerLoadTargetStd / 2
        share = min(0.5, max(0.0, half))
        if self._view.use[broker] < self._spread.average * share:
            return True
        throughput = self._view.smooth_throughput
        return bool(throughput[broker] < throughput[self._brokers[self._high]] * share)

    def _is_overloaded(self, broker: int) -> bool:
        settings = self._view.settings
        use = self._view.use[broker]
        limit = settings.loadBalancerBrokerOverloadedThresholdPercentage / 100.0
        above = self._spread.average + settings.loadBalancerBrokerLoadTargetStd
        return bool(use > limit and use > above)

    def run(self) -> Decisions:
        """Shed from the fullest brokers until the cluster is balanced or the cycle's share done."""
        most = self._view.settings.loadBalancerMaxNumberOfBrokerSheddingPerCycle
        while self._shed < most and self._low < self._high:
            label = self.reason()
            if not label:
                break
            fullest, emptiest = self._brokers[self._high], self._brokers[self._low]
            self._high -= 1
            self._shed_pair(fullest, emptiest, label)
        if not self._moves:
            self._skips.append(self._why_nothing())
        return Decisions(self._moves, (), self._skips)

    def _shed_pair(self, fullest: int, emptiest: int, label: str) -> None:
        view = self._view
        use, throughput = view.use, view.throughput
        high, low = float(use[fullest]), float(use[emptiest])
        target = divide(float(throughput[fullest]) * ((high - low) / 2), high)
        pair = TransferPair(fullest, emptiest, label, target)
        reported = view.reported(fullest)
        if len(reported) < 2:
            self._skip_broker(fullest, len(reported))
            return
        chosen = PairChooser(view, pair).choose(reported)
        self._record(pair, chosen)
        if chosen.offload > 0:
            moved = divide((chosen.offload - chosen.gain) * high, float(throughput[fullest]))
            self._spread.offload(high, low, moved)
            self._shed += 1
            self._low += 1
        else:
            text = (
                f"none of its {len(reported)} reported bundles can go to"
                f" {view.load.brokers[emptiest]}: {target:,.0f} bytes/s should leave it"
            )
            self._skips.append(Skip(view.load.brokers[fullest], "NoBundles", text))

    def _skip_broker(self, broker: int, reported: int) -> None:
        label, text = "NoLoadData", "it reports no bundle with traffic that may be moved"
        if reported:
            label, text = "NoBundles", "it reports only one bundle with traffic"
        self._skips.append(Skip(self._view.load.brokers[broker], label, text))

    def _record(self, pair: TransferPair, chosen: PairMoves) -> None:
        load, view = self._view.load, self._view
        use = f"{view.use[pair.fullest]:.1%} and {view.use[pair.emptiest]:.1%}"
        names = f"{load.brokers[pair.fullest]} and {load.brokers[pair.emptiest]}"
        text = (
            f"averages of {names} are {use}; {pair.target:,.0f} bytes/s should go from the first to"
            f" the second"
        )
        transfer = view.settings.loadBalancerTransferEnabled
        for bundle, source, target in chosen.moves:
            self._moves.append(
                Move(
                    load.bundles[bundle],
                    load.brokers[source],
                    load.brokers[target] if transfer else "",
                    float(view.bytes_per_s[bundle]),
                    pair.label,
                    text if source == pair.fullest else f"{text}; this one comes back in exchange",
                )
            )

    def _why_nothing(self) -> Skip:
        """Pulsar's label of a cycle that decided nothing."""
        labels = [skip.label for skip in self._skips]
        if "NoLoadData" in labels:
            text = f"{labels.count('NoLoadData')} full brokers report no bundle that may be moved"
            return Skip("", "NoLoadData", text)
        if labels:
            text = f"{len(labels)} full brokers have no bundle that fits"
            return Skip("", "NoBundles", text)
        return Skip("", "HitCount", "no pair of brokers may shed in this round")
