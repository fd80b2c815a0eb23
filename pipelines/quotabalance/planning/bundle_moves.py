"""Takes bundles off overloaded brokers: single moves first, then swaps, then a split."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from quotabalance.planning.bundle_choice import cheapest_cover
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import Move
from quotabalance.planning.load_board import OVERLOADED_SHARE, LoadBoard
from quotabalance.planning.options import BalanceOptions
from quotabalance.planning.placement_rules import PlacementRules
from quotaplane.model import BoolArray, FloatArray, IntArray


@dataclass
class RoundBudget:
    """The moves and bytes per second that a round has left."""

    moves: int
    bytes_per_s: float
    refused: int = 0
    """Moves that did not fit any more."""
    begun: bool = False

    @classmethod
    def of(
        cls, options: BalanceOptions, brokers: int, cluster_bytes: float, under_way: int
    ) -> RoundBudget:
        """The budget at the beginning of a round; orders under way count as its moves."""
        most = options.max_bytes_share_per_round * cluster_bytes
        return cls(max(options.moves_in_a_round(brokers) - under_way, 0), most)

    def allows(self, bytes_per_s: float, moves: int = 1) -> bool:
        """Whether this much more may be moved. The round's first move may exceed the bytes."""
        fits = self.moves >= moves and (not self.begun or self.bytes_per_s >= bytes_per_s)
        self.refused += not fits
        return fits

    def spend(self, bytes_per_s: float) -> None:
        """A move was decided."""
        self.moves -= 1
        self.bytes_per_s -= bytes_per_s
        self.begun = True


TRIES: Final = 12
"""How often bundles are chosen again because some found no target."""

NEAREST: Final = 8
"""Number of least used brokers that are tried before all are."""


class HeldBack(NamedTuple):
    """Restrictions of a round that follow from earlier orders."""

    why: Mapping[int, str]
    """Bundles that must not be moved, and the label that says why."""
    avoids: Mapping[int, int]
    """By bundle whose move was missed: the target that did not get it."""


class MovePlanner:
    """Decides moves one broker after the other, on a board that always shows the result so far."""

    def __init__(
        self,
        board: LoadBoard,
        load: ClusterLoad,
        bytes_per_s: FloatArray,
        error: FloatArray,
        rules: PlacementRules,
        held_back: HeldBack,
        budget: RoundBudget,
        options: BalanceOptions,
    ) -> None:
        """Prepare.

        Args:
            board: what brokers will carry.
            load: has the names, sorted.
            bytes_per_s: shape (N,).
            error: shape (N,): a bundle must fit even if it carries this part more.
            rules: where bundles may be.
            held_back: what earlier orders forbid.
            budget: of this round.
            options: of the strategy.
        """
        self.board, self.rules, self.budget, self.options = board, rules, budget, options
        self.bundles, self.brokers = tuple(load.bundles), tuple(load.brokers)
        self.bytes_per_s = bytes_per_s
        self.resting, self.avoids = held_back.why, held_back.avoids
        self._fit = board.need * (1 + error[:, None])
        order = np.argsort(board.owner, kind="stable")
        self._ends = np.searchsorted(board.owner[order], np.arange(len(self.brokers) + 1))
        self._order = order
        self.moves: list[Move] = []
        self.why_not: dict[int, str] = {}
        """Bundles that could not leave the broker that is being relieved, and the labels that say
        why."""
        self._moved = np.zeros(len(self.bundles), np.bool_)
        self._rests = np.zeros(len(self.bundles), np.bool_)
        self._rests[list(self.resting)] = True

    def held(self, broker: int) -> IntArray:
        """Bundles that were on a broker when the round began, and still are."""
        mine = self._order[self._ends[broker] : self._ends[broker + 1]]
        held: IntArray = mine[~self._moved[mine]]
        return held

    def movable(self, broker: int, drained: bool = False) -> IntArray:
        """The broker's bundles that may be moved now; counts the others in ``why_not``."""
        mine = self.held(broker)
        free = ~self._rests[mine]
        for place in np.flatnonzero(~free).tolist():
            label = self.resting[int(mine[place])]
            free[place] = drained and label == "Grace"
            if not free[place]:
                self.why_not[int(mine[place])] = label
        pinned = self.rules.pinned(drained)[mine] & free
        self.why_not |= dict.fromkeys(mine[pinned].tolist(), "Policy")
        free &= ~pinned
        found: IntArray = mine[free]
        return found

    def spent(self, source: int) -> bool:
        """Say that there are no moves left for a broker in this round; returns False."""
        self.why_not |= dict.fromkeys(self.held(source).tolist(), "Budget")
        self.budget.refused += 1
        return False

    def relieve(self, source: int, until: float, fill: float, label: str) -> bool:
        """Move the cheapest bundles off a broker until it carries (1 + until) times the mean.

        Nobody gets more than (1 + fill) times the mean. Returns whether it was reached.
        """
        failed: set[int] = set()
        candidates = self.movable(source)
        for _ in range(TRIES):
            excess = self.board.excess(source, until)
            column = int((excess / self.board.capacity[source]).argmax())
            if excess[column] <= 1e-9 * self.board.used[source, column]:
                return True
            left_over = candidates[~self._moved[candidates]]
            if failed:
                left_over = left_over[~np.isin(left_over, list(failed))]
            if len(left_over):
                most = self.rules.pools.most(self.board.room(fill), left_over)
                fits = (self._fit[left_over] <= most).all(axis=1)
                unfit = dict.fromkeys(left_over[~fits].tolist(), "NoTarget")
                self.why_not = unfit | self.why_not
                left_over = left_over[fits & (self.board.need[left_over, column] > 0)]
            if not len(left_over):
                return False
            gain = self.board.need[left_over, column]
            chosen = left_over[
                cheapest_cover(gain, self.bytes_per_s[left_over], float(excess[column]))
            ]
            for bundle in chosen[np.argsort(-self.board.need[chosen, column], kind="stable")]:
                if not self._place(int(bundle), source, fill, label):
                    failed.add(int(bundle))
                    if self.budget.refused:
                        return False
        return False

    def _place(self, bundle: int, source: int, fill: float, label: str) -> bool:
        target = self.target(bundle, source, fill)
        if target < 0:
            return False
        before = self.board.ratio(source)
        if not self.order_move(
            bundle,
            target,
            label,
            lambda: (
                f"{self.brokers[source]} would carry {before:.2f} x the mean; without it"
                f" {self.board.ratio(source):.2f}, and the target {self.board.ratio(target):.2f}"
            ),
        ):
            self.why_not[bundle] = "Budget"
            return False
        return True

    def target(self, bundle: int, source: int, fill: float) -> int:
        """The least used broker of those that the bundle fits on; -1 = none.

        A bundle with an anti-affinity group goes where Pulsar would place it, if it fits there.
        """
        need = self._fit[bundle]
        room = self.board.room(fill)
        open_: BoolArray | None = None
        if self.rules.restricts or bundle in self.avoids:
            open_ = self.open_to(bundle, source)
        needs = need.tolist()
        nearest = () if self.rules.group_of(bundle) else self.board.least_used(NEAREST)
        for target in nearest:
            if target != source and (open_ is None or open_[target]):
                free = room[target].tolist()
                if all(one <= other for one, other in zip(needs, free, strict=True)):
                    return target
        fits = (room >= need).all(axis=1)
        if open_ is None:
            open_ = self.open_to(bundle, source)
        if not (fits & open_).any():
            fits[source] = False
            self.why_not[bundle] = "Policy" if (fits & ~open_).any() else "NoTarget"
            return -1
        places = np.flatnonzero(self.rules.apart(bundle, fits & open_))
        return int(places[self.board.after(need, places).argmin()])

    def open_to(self, bundle: int, source: int) -> BoolArray:
        mask = self.board.takes & self.rules.allowed(bundle, source)
        mask[source] = False
        if bundle in self.avoids and mask.sum() > 1:
            mask[self.avoids[bundle]] = False
        return mask

    def order_move(self, bundle: int, target: int, label: str, reason: Callable[[], str]) -> bool:
        name = self.bundles[bundle]
        load = float(self.bytes_per_s[bundle])
        if not self.budget.allows(load):
            return False
        source = int(self.board.owner[bundle])
        self.budget.spend(load)
        self.board.move(bundle, target)
        self.rules.moved(bundle, source, target)
        self._moved[bundle] = True
        self.why_not.pop(bundle, None)
        names = self.brokers[source], self.brokers[target]
        self.moves.append(Move(name, *names, load, label, reason()))
        return True

    def drain(self, source: int) -> int:
        """Move everything off a broker that is taken out, the biggest first; returns how many stay.

        A bundle goes where it fits; if that is nowhere, to the broker that then carries least,
        unless it would use more than ``OVERLOADED_SHARE`` of its machine.
        """
        mine = self.movable(source, drained=True)
        stay = len(self.held(source)) - len(mine)
        size = (self.board.need[mine] / self.board.capacity[source]).max(axis=1)
        for bundle in mine[np.argsort(-size, kind="stable")].tolist():
            stay += not self._move_out(bundle, "Drain", f"{self.brokers[source]} is taken out")
        return stay

    def move_misplaced(self, bundles: IntArray) -> None:
        """Move bundles off brokers where the policies forbid them, to wherever they may be.

        The next one always leaves the most loaded of these brokers. So those that gain and lose
        bundles by a new policy stay even, wherever the round's budget ends.
        """
        for _ in range(TRIES):
            moved = len(self.moves)
            self._move_each(bundles)
            if len(self.moves) == moved:
                return
            # those that found no room may find that of others that have left
            bundles = bundles[[self.why_not.get(one) == "NoTarget" for one in bundles.tolist()]]

    def _move_each(self, bundles: IntArray) -> None:
        waiting: dict[int, list[int]] = {}
        for bundle in bundles.tolist():
            if self.resting.get(bundle, "Grace") == "Grace" and not self._moved[bundle]:
                waiting.setdefault(int(self.board.owner[bundle]), []).append(bundle)
        ratio = np.full(len(self.brokers), -np.inf)
        ratio[list(waiting)] = [self.board.ratio(source) for source in waiting]
        for left in waiting.values():
            left.reverse()
        while waiting:
            source = int(ratio.argmax())
            bundle = waiting[source].pop()
            if self.budget.moves <= 0:
                self.why_not[bundle] = "Budget"
                self.budget.refused += 1
            else:
                text = f"an isolation policy forbids it on {self.brokers[source]}"
                self._move_out(bundle, "Policy", text)
            if not waiting[source]:
                del waiting[source]
                ratio[source] = -np.inf
            for broker in {source, int(self.board.owner[bundle])} & waiting.keys():
                ratio[broker] = self.board.ratio(broker)

    def _move_out(self, bundle: int, label: str, why: str) -> bool:
        """Move a bundle that must leave, wherever it fits best; returns whether it was moved."""
        source = int(self.board.owner[bundle])
        open_ = self.open_to(bundle, source)
        target = self._roomiest(bundle, open_)
        if target < 0:
            self.why_not[bundle] = "NoTarget" if open_.any() else "Policy"
            return False
        done = self.order_move(
            bundle,
            target,
            label,
            lambda: f"{why}; the target then carries {self.board.ratio(target):.2f} x the mean",
        )
        if not done:
            self.why_not[bundle] = "Budget"
        return done

    def _roomiest(self, bundle: int, open_: BoolArray) -> int:
        """The broker that takes a bundle which must leave: with room for it, if possible, and never
        one whose machine would use more than ``OVERLOADED_SHARE``; -1 = none.
        """
        board, options = self.board, self.options
        need = board.need[bundle]
        shares = (board.used + need + board.idle) / board.capacity
        if board.has_limits:
            open_ = open_ & ~((shares > OVERLOADED_SHARE) & (need > 0)).any(axis=1)
        if not open_.any():
            return -1
        for fill in (options.stop_below, options.start_above):
            room = (board.room(fill) >= self._fit[bundle]).all(axis=1)
            fits = np.flatnonzero(self.rules.apart(bundle, open_ & room))
            if len(fits):
                return int(fits[board.after(need, fits).argmin()])
        places = np.flatnonzero(open_)
        return int(places[shares[places].max(axis=1).argmin()])
