"""TransferShedder's choice of bundles for one pair of brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from quotabalance.stock.transfer_view import TransferView
from quotaplane.model import FloatArray

_ENOUGH: Final = 0.75
"""A swap is good enough when it leaves the fullest broker less than this share."""


class TransferPair(NamedTuple):
    """The fullest and the emptiest broker that are left."""

    fullest: int
    emptiest: int
    label: str
    target: float
    """Bytes per second that are to leave the fullest broker; may be no number."""


class PairMoves:
    """The bundles that have been chosen for a pair so far."""

    def __init__(self) -> None:
        self.moves: list[tuple[int, int, int]] = []
        """Bundle, source, target; as Pulsar decides them, swapped ones first."""
        self.offload = 0.0
        self.gain = 0.0
        """Bytes per second that come back; Pulsar counts them only in debug mode."""


class PairChooser:
    """Chooses bundles of one pair."""

    def __init__(self, view: TransferView, pair: TransferPair) -> None:
        self._view, self._pair = view, pair
        # One pass over the emptiest broker's bundles for all swaps of the pair.
        self._swaps: Iterator[int] = iter(view.reported(pair.emptiest))
        self._full = float(view.throughput[pair.fullest])
        self._empty = float(view.throughput[pair.emptiest])

    def choose(self, reported: list[int]) -> PairMoves:
        """Take bundles in the order of the report until one does not fit."""
        view, chosen = self._view, PairMoves()
        fullest, emptiest = self._pair.fullest, self._pair.emptiest
        left = len(reported)
        for bundle in reported:
            if view.recent[bundle] or not self._may_go(bundle, fullest, emptiest):
                continue
            if left <= 1:
                break
            size = float(view.bytes_per_s[bundle])
            if chosen.offload - chosen.gain + size > self._pair.target:
                swapped = self._swap(size, chosen)
                if not swapped:
                    break
                chosen.moves += [(other, emptiest, fullest) for other in swapped]
                if view.settings.loadBalancerDebugModeEnabled:
                    chosen.gain += _total(view.bytes_per_s[swapped])
            chosen.moves.append((bundle, fullest, emptiest))
            chosen.offload += size
            left -= 1
        return chosen

    def _may_go(self, bundle: int, source: int, target: int) -> bool:
        return self._view.rules.is_transferable(self._view.load.bundles[bundle], source, target)

    def _swap(self, size: float, chosen: PairMoves) -> list[int]:
        """Bundles of the emptiest broker to give in exchange; [] = there are none."""
        view, swapped = self._view, list[int]()
        if not view.settings.loadBalancerTransferEnabled:
            return swapped
        full = self._full - chosen.offload + chosen.gain - size
        empty = self._empty + chosen.offload - chosen.gain + size
        for bundle in self._swaps:
            if not self._may_go(bundle, self._pair.emptiest, self._pair.fullest):
                continue
            back = float(view.bytes_per_s[bundle])
            if back == 0:
                continue
            if full + back < self._full and empty - back < self._full:
                swapped.append(bundle)
                full, empty = full + back, empty - back
                if empty <= full and full < self._full * _ENOUGH:
                    return swapped
        return []


def _total(amounts: FloatArray) -> float:
    """Added up one after the other, as Java does (Python's and numpy's sums do not)."""
    total = 0.0
    for amount in amounts.tolist():
        total += amount
    return total
