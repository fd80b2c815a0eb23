"""Pulsar's leader as a whole: each round it sheds, places what it sheds, and splits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from quotabalance.planning.decisions import Decisions, Move, Skip, Split
from quotabalance.planning.planner import BalanceRound
from quotabalance.planning.policies import Policies
from quotabalance.stock.average_shedder import AvgShedder
from quotabalance.stock.extensible_placement import ExtensiblePlacement
from quotabalance.stock.interface import StockRound
from quotabalance.stock.leader import Leader, shed_round, switched_off
from quotabalance.stock.leader_memory import memory_of, with_memory
from quotabalance.stock.leader_placement import LeaderPlacement, draw_first
from quotabalance.stock.placements import AvgPlacement, new_placement
from quotabalance.stock.shedders import EXTENSIBLE_SHEDDERS, new_shedder
from quotabalance.stock.split_algorithms import range_equally_divide
from quotabalance.stock.split_triggers import BundleSplitterTask, ExtensibleSplitter
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.topics.bundle_names import BundleName, parse_bundle

_RANGE: Final = "range_equally_divide"


class StockLeader:
    """One strategy of Pulsar's with the placement and the splits of its load manager.

    State: all that the leader and, of the extensible manager, each broker remembers. Where Pulsar
    draws a broker, it is the first by name.

    >>> import numpy as np
    >>> from quotabalance.planning.cluster_load import ClusterLoad
    >>> bundles = tuple(f"acme/orders/0x{i:08x}_0x{i + 1:08x}" for i in range(4))
    >>> usage, limit = np.array([[95.0] * 5, [10.0] * 5]), np.full((2, 5), 100.0)
    >>> load = ClusterLoad(("b1", "b2"), usage, limit, bundles, np.zeros(4, int), np.ones((4, 4)))
    >>> leader = StockLeader("OverloadShedder", StockSettings(), Policies())
    >>> round_ = BalanceRound(load, 0.0, np.zeros(2), np.zeros(2, bool))
    >>> [(move.source, move.target) for move in leader.decide(round_).moves]
    [('b1', 'b2')]
    """

    def __init__(self, name: str, settings: StockSettings, policies: Policies) -> None:
        """Begin without memories.

        Raises:
            InputError: Pulsar has no such strategy, or no such placement.
        """
        self._name, self._settings = name.rpartition(".")[2], settings
        self._leader = Leader(settings)
        self._shedder = new_shedder(name, settings, policies)
        self._proposed: dict[str, str] = {}
        self._placement: _Modular | _Extensible
        if self._name in EXTENSIBLE_SHEDDERS:
            self._placement = _Extensible(settings, policies)
        elif isinstance(self._shedder, AvgShedder):
            chooser = AvgPlacement(settings, self._shedder.targets)
            self._placement = _Modular(LeaderPlacement(chooser, settings, policies), settings)
        else:
            strategy = new_placement(settings.loadBalancerLoadPlacementStrategy, settings)
            self._placement = _Modular(LeaderPlacement(strategy, settings, policies), settings)

    def decide(self, round_: BalanceRound, *, proposed: bool = False) -> Decisions:
        """Decide one round.

        Args:
            round_: what is known now; numbers of all ages count, as in Pulsar.
            proposed: moves wait for an approval, so a bundle counts as unloaded when another broker
                reports it.
        """
        load, now_s = round_.load, round_.now_s
        self._note_carried_out(round_)
        seen = self._leader.round(load, now_s)._replace(report_age_s=round_.age_s)
        self._placement.begin(seen)
        decided = shed_round(self._shedder, seen, self._settings, fewest=2)
        moves, skips = self._placed(decided.moves)
        if proposed:
            self._proposed = {move.bundle: move.source for move in moves}
        else:
            self._leader.note_unloaded([move.bundle for move in moves], now_s)
        splits = self._split(seen, {move.bundle for move in moves})
        drains = int(round_.draining.sum())
        if drains:
            text = f"{drains} brokers are to be drained, which {self._name} does not do"
            skips.append(Skip("", "Drain", text))
        return Decisions(moves, splits.splits, [*decided.skips, *skips, *splits.skips])

    def to_bytes(self) -> bytes:
        """Its memory; settings and policies are not in it."""
        return memory_of(self)

    @classmethod
    def from_bytes(cls, memory: bytes, settings: StockSettings, policies: Policies) -> StockLeader:
        """A leader that goes on with a memory.

        Raises:
            ConfigError: these bytes are no memory, or of another version.
        """
        return with_memory(cls, memory, settings, policies)

    def _note_carried_out(self, round_: BalanceRound) -> None:
        """Bundles that left the brokers that they were proposed to leave count as unloaded."""
        load = round_.load
        owner = dict(zip(load.bundles, load.owner.tolist(), strict=True)) if self._proposed else {}
        left = [
            bundle
            for bundle, source in self._proposed.items()
            if bundle in owner and load.brokers[owner[bundle]] != source
        ]
        self._leader.note_unloaded(left, round_.now_s)

    def _placed(self, moves: Iterable[Move]) -> tuple[list[Move], list[Skip]]:
        """Moves with a target, and what stays."""
        kept: list[Move] = []
        skips: list[Skip] = []
        for move in moves:
            if move.target:
                kept.append(move)
                continue
            target, label, why = self._placement.place(move.bundle, move.source)
            if target:
                kept.append(move._replace(target=target))
            else:
                skips.append(Skip(move.bundle, label, why))
        return kept, skips

    def _split(self, seen: StockRound, moved: set[str]) -> Decisions:
        off = switched_off(self._settings, "loadBalancerAutoBundleSplitEnabled", "nothing is split")
        if off:  # the switch of the whole balancer is in the skips already
            return Decisions(skips=(off,) if self._settings.loadBalancerEnabled else ())
        found = self._placement.split(seen)
        splits = [
            split._replace(boundaries=self._boundaries(split.bundle))
            for split in found.splits
            if split.bundle not in moved
        ]
        return found._replace(splits=splits)

    def _boundaries(self, bundle: str) -> tuple[int, ...]:
        """The middle of the range; () if Pulsar would look at the topics, as the executor does."""
        by_range = self._settings.defaultNamespaceBundleSplitAlgorithm == _RANGE
        return range_equally_divide(parse_bundle(bundle)) if by_range else ()


class _Modular:
    """Placement and splits of the modular manager's leader."""

    def __init__(self, placement: LeaderPlacement, settings: StockSettings) -> None:
        self._placement, self._splitter = placement, BundleSplitterTask(settings)

    def begin(self, seen: StockRound) -> None:
        self._placement.begin(seen)

    def place(self, bundle: str, source: str) -> tuple[str, str, str]:
        """The target; or "", a label and why the bundle stays."""
        if not self._placement.may_leave(bundle, source):
            return "", "Policy", "isolation or anti-affinity keeps it on its broker"
        target = self._placement.place(bundle, remember=False)
        if target is None or target == source:
            return "", "NoTarget", "the placement finds no other broker for it"
        return target, "", ""

    def split(self, seen: StockRound) -> Decisions:
        if len(seen.load.brokers) < 2:
            return Decisions(skips=(Skip("", "NoBrokers", "one broker alone splits nothing"),))
        return self._splitter.find(seen)


class _Extensible:
    """Placement and splits of the extensible manager. Each broker splits its own bundles."""

    def __init__(self, settings: StockSettings, policies: Policies) -> None:
        self._settings = settings
        self._placement = ExtensiblePlacement(settings, policies)
        self._splitters: dict[str, ExtensibleSplitter] = {}

    def begin(self, seen: StockRound) -> None:
        self._placement.begin(seen)

    def place(self, bundle: str, source: str) -> tuple[str, str, str]:
        """As of ``_Modular``."""
        target = self._placement.place(bundle, draw_first, (source,))
        return (target, "", "") if target else ("", "NoTarget", "no other broker may have it")

    def split(self, seen: StockRound) -> Decisions:
        load = seen.load
        splits: list[Split] = []
        skips: list[Skip] = []
        found: dict[str, ExtensibleSplitter] = {}
        for index, broker in enumerate(load.brokers):
            splitter = self._splitters.get(broker) or ExtensibleSplitter(self._settings, _OneCut())
            found[broker] = splitter
            decided = splitter.find(load, index)
            splits += decided.splits
            skips += decided.skips
        self._splitters = found
        return Decisions((), splits, skips)


class _OneCut:
    """The one boundary that the extensible manager needs; a class, so it may be in a memory."""

    def __call__(self, bundle: BundleName) -> tuple[int, ...]:
        return range_equally_divide(bundle)
