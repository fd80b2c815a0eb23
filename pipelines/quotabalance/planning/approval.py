"""Which moves and splits of a plan may still be made: the check against the cluster now. Pure.

An administrator approves what was shown, so nothing else is done; what no longer fits is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from quotabalance.planning.cluster_load import RESOURCES, ClusterLoad
from quotabalance.planning.decisions import Decisions, Move
from quotabalance.planning.load_board import OVERLOADED_SHARE
from quotabalance.planning.placement_rules import PlacementRules
from quotabalance.planning.pool_means import Pools, pool_means
from quotaplane.model import BoolArray, FloatArray, IntArray

_LEAST_BYTES: Final = 1.0
"""Below this much traffic a change of it says nothing."""


class Tolerance(NamedTuple):
    """How far the load may have moved on since the plan."""

    changed_share: float = 0.5
    """Differences of the bundles' bytes per second from those in the plan, added up, as a part of
    the plan's."""
    receiver_share: float = 1.25
    """Highest load of a receiver after the plan, as a multiple of its mean."""


class ClusterNow(NamedTuple):
    """A cluster as it is now: B brokers."""

    load: ClusterLoad
    rules: Sequence[PlacementRules]
    """All must allow a move."""
    weights: FloatArray
    """Shape (B,): configured capacities."""
    drained: BoolArray
    """Shape (B,): brokers to be taken out."""
    resources: Sequence[str] = ()
    """Which of ``RESOURCES`` are balanced, those that decide first. A broker's capacity is its
    weight times its limit of the first one whose limits are all known."""


class PlanCheck(NamedTuple):
    """The answer of ``check_plan``."""

    refusals: tuple[str, ...]
    """Why nothing of the plan may be done, a sentence each."""
    of_moves: tuple[str, ...]
    """The reason why each move must not be made; "" = it may be, or is done."""
    of_splits: tuple[str, ...]
    done: BoolArray
    """(moves,) the receiver has the bundle already."""
    peak_before: float
    """Highest load of the brokers that the plan touches, as a multiple of their means."""
    peak_after: float
    """The same as predicted for the end of the plan."""


def check_plan(plan: Decisions, now: ClusterNow, tolerance: Tolerance) -> PlanCheck:
    """Check a plan against fresh owners and rates.

    Nothing is done if the traffic of the bundles that are not moved yet differs from the plan's by
    more than ``changed_share``. A move is refused, or the owner's split, if

    1. a broker that it names is not there, or the bundle is not where the plan takes it from, or is
       not there at all (it was split or deleted), or the plan does not say where it goes;
    2. a policy keeps the bundle away from the target, or it drains a broker that is not to be taken
       out;
    3. the bundle has to leave, because its broker is drained or a policy forbids it there, and the
       target would use more than ``OVERLOADED_SHARE`` of a balanced resource; where limits
       are not known, and for a drain, more than ``receiver_share`` times its mean;
    4. it only evens out load, and all such moves together would not help any more: the highest load
       among the brokers that they touch would not go down, nor does each bundle leave a fuller
       machine for a less full one;
    5. it only evens out load, and its receiver would carry more than ``receiver_share`` times its
       mean, and the plan would not halve the excess of the busiest broker over its mean, either:
       then the last such moves to it are refused;
    6. it is one of two moves of a swap, and the other one is refused.

    A broker's load is bytes per second by its capacity; its mean is ``pool_means``.

    >>> load = ClusterLoad(("b1", "b2"), np.zeros((2, 5)), np.zeros((2, 5)), ("t/n/0x0_0x1",),
    ...     np.array([1]), np.array([[3e6, 0, 0, 0]]))
    >>> now = ClusterNow(load, [], np.ones(2), np.zeros(2, bool))
    >>> plan = Decisions([Move("t/n/0x0_0x1", "b3", "b1", 3e6, "Overloaded", "")])
    >>> check_plan(plan, now, Tolerance()).of_moves
    ('broker b3 is not in the cluster any more',)
    """
    return _Check(plan, now, tolerance).answer()


class _Check:
    def __init__(self, plan: Decisions, now: ClusterNow, tolerance: Tolerance) -> None:
        self._plan, self._now, self._tolerance = plan, now, tolerance
        load = now.load
        self._broker_at = {name: at for at, name in enumerate(load.brokers)}
        self._bundle_at = {name: at for at, name in enumerate(load.bundles)}
        owners = [self._owner(move.bundle) for move in plan.moves]
        targets = [move.target for move in plan.moves]
        there = [bool(owner) and owner == to for owner, to in zip(owners, targets, strict=True)]
        self._done = np.array(there, np.bool_)
        self._why = [
            "" if done else self._gone(move.bundle, owner, move.source, move.target)
            for move, owner, done in zip(plan.moves, owners, self._done.tolist(), strict=True)
        ]
        self._capacity, self._fullness = _machines(now)
        self._carried = load.throughput_of_brokers()
        self._mean = self._means()

    def answer(self) -> PlanCheck:
        plan = self._plan
        refusals = self._changed(self._open())
        leave = self._must_leave()
        self._keep_to_policies()
        self._bound_those_that_leave(leave)
        self._even_out(~leave)
        self._keep_swaps_whole()
        before, after = self._peaks(self._open())
        of_splits = tuple(
            self._gone(split.bundle, self._owner(split.bundle), split.owner, split.owner)
            for split in plan.splits
        )
        return PlanCheck(refusals, tuple(self._why), of_splits, self._done, before, after)

    def _owner(self, bundle: str) -> str:
        at, load = self._bundle_at.get(bundle), self._now.load
        return "" if at is None else load.brokers[int(load.owner[at])]

    def _gone(self, bundle: str, owner: str, source: str, target: str) -> str:
        """Rule 1."""
        if not target:
            return f"the plan leaves it to Pulsar where bundle {bundle} goes"
        for name in (source, target):
            if name not in self._broker_at:
                return f"broker {name} is not in the cluster any more"
        if owner == source:
            return ""
        where = f"is at {owner} now" if owner else "has no owner, or was split or deleted"
        return f"bundle {bundle} {where}, not at {source}"

    def _open(self) -> IntArray:
        """Places of the moves that may still be made."""
        return np.flatnonzero(~self._done & ~np.array([bool(why) for why in self._why], np.bool_))

    def _bundles(self, moves: IntArray) -> IntArray:
        return np.array([self._bundle_at[self._plan.moves[i].bundle] for i in moves], np.int64)

    def _ends(self, moves: IntArray) -> tuple[IntArray, IntArray]:
        """Sources and targets."""
        chosen = [self._plan.moves[i] for i in moves]
        source = [self._broker_at[move.source] for move in chosen]
        return np.array(source, np.int64), np.array(
            [self._broker_at[move.target] for move in chosen], np.int64
        )

    def _rates(self, moves: IntArray) -> FloatArray:
        rates: FloatArray = self._now.load.throughput()[self._bundles(moves)]
        return rates

    def _means(self) -> FloatArray:
        """The mean of each broker, as a load by capacity; (B,)."""
        now, stays = self._now, ~self._now.drained
        everywhere = np.ones((1, len(stays)), np.bool_)
        pools = Pools(everywhere, np.zeros(len(now.load.bundles), np.int64))
        for rules in now.rules:
            pools = pools.within(rules.pools)
        usable = pools.open_to & stays
        load = np.bincount(pools.of_bundle, now.load.throughput(), len(usable)).astype(np.float64)
        load[~usable.any(axis=1)] = 0.0
        mean = np.full(len(stays), load.sum() / max(float(self._capacity[stays].sum()), 1e-9))
        if stays.any():
            mean[stays] = pool_means(load, usable[:, stays], self._capacity[stays])
        positive: FloatArray = np.maximum(mean, 1e-9)
        return positive

    def _shares(self, carried: FloatArray) -> FloatArray:
        shares: FloatArray = carried / self._capacity / self._mean
        return shares

    def _after(self, moves: IntArray) -> FloatArray:
        """Loads of brokers after these moves; (B,)."""
        source, target = self._ends(moves)
        rates, brokers = self._rates(moves), len(self._carried)
        after: FloatArray = (
            self._carried
            - np.bincount(source, rates, brokers)
            + np.bincount(target, rates, brokers)
        )
        return after

    def _peaks(self, moves: IntArray) -> tuple[float, float]:
        touched = np.unique(np.concatenate(self._ends(moves)))
        before, after = self._shares(self._carried), self._shares(self._after(moves))
        return float(before[touched].max(initial=0.0)), float(after[touched].max(initial=0.0))

    def _changed(self, moves: IntArray) -> tuple[str, ...]:
        rates = self._rates(moves)
        planned = np.array([self._plan.moves[i].bytes_per_s for i in moves])
        differing, total = float(np.abs(rates - planned).sum()), float(planned.sum())
        most = self._tolerance.changed_share
        if max(total, float(rates.sum())) < _LEAST_BYTES or differing <= most * total:
            return ()
        return (
            f"the bundles' traffic has changed by {differing / 1e6:.1f} MB/s since the plan, which"
            f" moves {total / 1e6:.1f} MB/s; {most:.0%} is allowed",
        )

    def _must_leave(self) -> BoolArray:
        """Moves whose bundle may not stay where it is; the label of a plan does not count, as every
        writer to the topic can write one; (moves,).
        """
        must = self._now.drained[self._now.load.owner]
        for rules in self._now.rules:
            must = must | rules.forbidden()
        leave, moves = np.zeros(len(self._plan.moves), np.bool_), self._open()
        leave[moves] = must[self._bundles(moves)]
        return leave

    def _keep_to_policies(self) -> None:
        """Rule 2."""
        moves = self._open()
        source, target = self._ends(moves)
        for move, bundle, begin, end in zip(
            moves, self._bundles(moves), source, target, strict=True
        ):
            one, rules = self._plan.moves[move], self._now.rules
            if any(not each.allowed(int(bundle), int(begin))[end] for each in rules):
                self._why[move] = f"a policy keeps bundle {one.bundle} away from {one.target}"
            elif one.label == "Drain" and not self._now.drained[begin]:
                self._why[move] = (
                    f"it takes out broker {one.source}, which neither balance.collect.draining nor"
                    " balance.policies.drained_brokers of the executor's own settings has"
                )
            else:
                for each in rules:
                    each.moved(int(bundle), int(begin), int(end))

    def _bound_those_that_leave(self, leave: BoolArray) -> None:
        """Rule 3, one move after the other."""
        load = self._now.load
        balanced = np.isin(RESOURCES, self._now.resources)  # a heap may be full of garbage
        usage, known = load.usage.copy(), (load.limit > 0) & (load.usage > 0) & balanced
        moves = self._open()
        moves = moves[leave[moves]]
        source, target = self._ends(moves)
        carried, most = self._carried.copy(), self._tolerance.receiver_share
        for move, begin, end, rate in zip(moves, source, target, self._rates(moves), strict=True):
            need = load.usage[begin] * rate / max(self._carried[begin], _LEAST_BYTES)
            asked = known[end] & (need > 0)
            of_limit = (usage[end] + need)[asked] / load.limit[end][asked]
            share = (carried[end] + rate) / self._capacity[end] / self._mean[end]
            name = load.brokers[end]
            if of_limit.max(initial=0.0) > OVERLOADED_SHARE:
                self._why[move] = (
                    f"broker {name} would use {of_limit.max():.0%} of its machine; at most"
                    f" {OVERLOADED_SHARE:.0%} is allowed"
                )
            elif self._now.drained[begin] and not known[end].any() and share > most:
                self._why[move] = self._above(int(end), share, most)
            else:
                usage[end] += need
                carried[end] += rate

    def _above(self, broker: int, share: float, most: float) -> str:
        return (
            f"broker {self._now.load.brokers[broker]} would carry {share:.2f} times its mean; at"
            f" most {most:.2f} is allowed"
        )

    def _even_out(self, evens: BoolArray) -> None:
        """Rules 4 and 5."""
        while True:
            moves = self._open()
            mine = moves[evens[moves]]
            if not len(mine):
                return
            source, target = self._ends(mine)
            touched = np.union1d(source, target)
            others = moves[~evens[moves]]
            start = self._shares(self._after(others))
            after = self._shares(self._after(moves))
            before, highest = float(start[touched].max()), float(after[touched].max())
            to_emptier = bool((self._fullness[source] > self._fullness[target]).all())
            if highest >= before and not to_emptier:
                for move in mine:
                    self._why[move] = (
                        "it would not help any more: the busiest broker that is touched has"
                        f" {before:.2f} times its mean, and would have {highest:.2f}"
                    )
                return
            most = max(self._tolerance.receiver_share, (1.0 + before) / 2.0)
            full = [at for at in np.unique(target) if after[at] > most]
            if not full:
                return
            for at in full:
                last = mine[np.flatnonzero(target == at)[-1]]
                self._why[last] = self._above(int(at), float(after[at]), most)

    def _keep_swaps_whole(self) -> None:
        """Rule 6; the two moves of a swap have one sentence."""
        moves = self._plan.moves
        broken = {
            move.reason for move, why in zip(moves, self._why, strict=True) if why and _swaps(move)
        }
        for place in self._open():
            if _swaps(moves[place]) and moves[place].reason in broken:
                self._why[place] = "it belongs to a swap whose other move is refused"


def _swaps(move: Move) -> bool:
    return move.label == "Swap" and bool(move.reason)


def _machines(now: ClusterNow) -> tuple[FloatArray, FloatArray]:
    """Capacities (B,), and what each machine uses of its fullest resource (B,)."""
    load = now.load
    known = [
        column
        for column in (RESOURCES.index(name) for name in now.resources)
        if (load.limit[:, column] > 0).all()
    ]
    if not known:
        return now.weights, np.zeros(len(now.weights))
    shares = load.usage[:, known] / load.limit[:, known]
    return now.weights * load.limit[:, known[0]], shares.max(axis=1)
