"""Two moves that help where none alone does: making room on a broker, or an exchange."""

from __future__ import annotations

from typing import Final

import numpy as np

from quotabalance.planning.bundle_moves import MovePlanner
from quotaplane.model import FloatArray, IntArray

SWAP_WORTH: Final = 0.02
"""The least gain of a swap, as a part of the mean load, unless the excess is smaller."""

SWAP_TARGETS: Final = 8
"""Number of least used brokers that swaps are tried with."""


class SwapPlanner:
    """Finds pairs of moves; ``mover`` checks and orders them."""

    def __init__(self, mover: MovePlanner) -> None:
        """Prepare."""
        self._mover, self._board, self._options = mover, mover.board, mover.options

    def make_room(self, source: int, until: float) -> bool:
        """Move a bundle off a second broker to a third one, so that one of ``source`` fits there.

        Returns whether that was done. It is cheaper than a swap, as nothing comes back.
        """
        excess = self._board.excess(source, until)
        column = int((excess / self._board.capacity[source]).argmax())
        mine = self._mover.movable(source)
        if excess[column] <= 0 or not len(mine) or self._mover.budget.moves < 2:
            return False
        room, need = self._board.room(self._options.stop_below), self._board.need
        best: tuple[float, int, int, int] | None = None
        for target in self._roomiest(source, column):
            theirs = self._theirs(target)
            elsewhere = np.delete(room, [source, target], axis=0)
            if not len(theirs) or not len(elsewhere):
                continue
            theirs = theirs[(need[theirs] <= elsewhere.max(axis=0)).all(axis=1)]
            shortage = need[mine] - room[target]
            fits = (need[theirs][None] >= shortage[:, None]).all(axis=2)
            gain = np.minimum(need[mine, column], excess[column])[:, None]
            fits &= gain >= self._least(source, excess, column)
            score = np.full(fits.shape, np.inf)
            cost = self._mover.bytes_per_s[mine][:, None] + self._mover.bytes_per_s[theirs]
            np.divide(cost, gain, out=score, where=fits)
            if score.size and score.min() < (best[0] if best else np.inf):
                row, other = divmod(int(score.argmin()), len(theirs))
                best = (float(score.min()), int(mine[row]), int(theirs[other]), target)
        return best is not None and self._pass_on(*best[1:], source)

    def _pass_on(self, bundle: int, other: int, target: int, source: int) -> bool:
        both = float(self._mover.bytes_per_s[bundle] + self._mover.bytes_per_s[other])
        third = self._mover.target(other, target, self._options.stop_below)
        if third < 0 or not self._mover.open_to(bundle, source)[target]:
            return False
        if not self._mover.budget.allows(both, 2):
            return False
        before = self._board.ratio(source)
        text = (
            f"{self._mover.brokers[source]} carries {before:.2f} x the mean;"
            f" {self._mover.bundles[other]} makes room on {self._mover.brokers[target]}"
            f" for {self._mover.bundles[bundle]}"
        )
        self._both((other, third), (bundle, target), text)
        return True

    def _both(self, first: tuple[int, int], second: tuple[int, int], text: str) -> None:
        """Two moves, each a bundle and its target, that are useless without each other."""
        for bundle, target in (first, second):
            self._mover.budget.begun = False  # both fit, as was asked
            self._mover.order_move(bundle, target, "Swap", lambda: text)

    def _theirs(self, target: int) -> IntArray:
        """Bundles of another broker; why some stay there is not why the source keeps its own."""
        why_not = self._mover.why_not.copy()
        theirs = self._mover.movable(target)
        self._mover.why_not = why_not
        return theirs

    def _roomiest(self, source: int, column: int) -> list[int]:
        """Brokers with most room."""
        room = self._board.room(self._options.stop_below)
        others = self._board.takes & self._mover.rules.neighbours(source)
        others[source] = False
        open_ = np.flatnonzero(others)
        nearest: list[int] = open_[np.argsort(-room[open_, column], kind="stable")].tolist()
        return nearest[:SWAP_TARGETS]

    def _least(self, source: int, excess: FloatArray, column: int) -> float:
        """The least gain of two moves."""
        worth = SWAP_WORTH * self._board.mean[source] * self._board.capacity[source, column]
        return min(float(worth), float(excess[column]))

    def swap(self, source: int, until: float) -> bool:
        """Exchange a bundle for a smaller one of another broker; returns whether one was found."""
        excess = self._board.excess(source, until)
        column = int((excess / self._board.capacity[source]).argmax())
        mine = self._mover.movable(source)
        if excess[column] <= 0 or not len(mine) or self._mover.budget.moves < 2:
            return False
        room = self._board.room(self._options.stop_below)
        least = self._least(source, excess, column)
        best: tuple[float, int, int, int] | None = None
        for target in self._roomiest(source, column):
            theirs = self._theirs(target)
            found = self._pair(mine, theirs, room[target], (float(excess[column]), least), column)
            if found and (best is None or found[0] < best[0]):
                best = (*found, target)
        if best is None:
            return False
        _, out, back, target = best
        return self._exchange(out, back, source, target)

    def _pair(
        self,
        mine: IntArray,
        theirs: IntArray,
        room: FloatArray,
        wanted: tuple[float, float],
        column: int,
    ) -> tuple[float, int, int] | None:
        """The cheapest pair that brings the whole excess, or the least for its bytes that brings
        at least the second of ``wanted``: its cost for the whole excess, and the two bundles.
        """
        excess, least = wanted
        if not len(theirs):
            return None
        need = self._board.need
        lighter = need[mine][:, None] - need[theirs][None]
        fits = (lighter <= room).all(axis=2)
        gain = lighter[:, :, column]
        enough = fits & (gain >= excess)
        cost = self._mover.bytes_per_s[mine][:, None] + self._mover.bytes_per_s[theirs]
        if enough.any():
            score = np.where(enough, cost, np.inf)
        else:
            # a part of the excess, if it is worth two moves
            worth = fits & (gain >= least)
            score = np.full(gain.shape, np.inf)
            np.divide(cost * excess, gain, out=score, where=worth)
        best = int(score.argmin())
        row, other = divmod(best, len(theirs))
        if not np.isfinite(score[row, other]):
            return None
        return float(score[row, other]), int(mine[row]), int(theirs[other])

    def _exchange(self, out: int, back: int, source: int, target: int) -> bool:
        if (
            not self._mover.open_to(out, source)[target]
            or not self._mover.open_to(back, target)[source]
        ):
            self._mover.why_not[out] = "Policy"
            return False
        both = float(self._mover.bytes_per_s[out] + self._mover.bytes_per_s[back])
        if not self._mover.budget.allows(both, 2):
            self._mover.why_not[out] = "Budget"
            return False
        text = (
            f"no single bundle fits anywhere; {self._mover.brokers[source]} carries"
            f" {self._board.ratio(source):.2f} x the mean, so {self._mover.bundles[out]} goes to"
            f" {self._mover.brokers[target]}, {self._mover.bundles[back]} comes back"
        )
        self._both((out, target), (back, source), text)
        return True
