"""Which bundles are split: those above a limit, and those that no move can help with."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from quotabalance.planning.above_limits import AboveLimit
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import Skip, Split
from quotabalance.planning.load_board import LoadBoard
from quotabalance.planning.options import BalanceOptions
from quotabalance.planning.placement_rules import PlacementRules, namespace_of
from quotaplane.errors import InputError
from quotaplane.model import BoolArray
from quotaplane.topics.bundle_names import parse_bundle

MOST_SPLITS: Final = 10
"""Most splits of a round."""

MOST_PARTS: Final = 16
"""Most parts that a bundle is split into at once."""

PART_OF_ROOM: Final = 0.7
"""The share of a broker's room that a part should need, as parts are unequal."""

UNSURE_PART: Final = 0.1
"""The part of a big bundle's load, or of what a broker may carry, that may be noise."""


class SplitPlanner:
    """Asks for splits, and says why one is not possible."""

    def __init__(
        self,
        board: LoadBoard,
        load: ClusterLoad,
        rules: PlacementRules,
        resting: Mapping[int, str],
        guessed: BoolArray,
        above: Sequence[AboveLimit],
        options: BalanceOptions,
    ) -> None:
        """Prepare, and ask for splits of bundles that have more than a bundle may have.

        Args:
            board: what brokers will carry.
            load: sorted by name.
            rules: where bundles may be.
            resting: as in ``HeldBack``.
            guessed: shape (N,): parts of a split that were not measured yet.
            above: bundles above a limit.
            options: of the strategy.
        """
        self._board, self._load, self._rules = board, load, rules
        self.resting, self._options = dict(resting), options
        """Bundles that are not moved or split in this round, and the labels that say why."""
        self._more: Counter[str] = Counter()
        self._refused: set[int] = set()
        self.splits: list[Split] = []
        self.skips: list[Skip] = []
        self._divide(above)
        self._waits = self._are_unsure(guessed)

    def waits(self, source: int) -> bool:
        """Whether a bundle of the broker is being split, or its parts were not measured yet: they
        decide what is to be moved.
        """
        return bool(self._waits[source])

    def too_big(self, source: int) -> bool:
        """Ask for a split if the broker's biggest bundle is more than any broker may carry."""
        bundle = self._biggest(source)
        if bundle < 0:
            return False
        board, options = self._board, self._options
        mean = board.mean[:, None]
        most = (1 + options.stop_below) * mean * board.capacity - board.foreign
        fits = (most >= board.need[bundle]).all(axis=1)
        if (fits & board.takes & self._rules.allowed(bundle, source)).any():
            return False
        column = board.scarcest(source)
        share = board.need[bundle, column] / (board.mean[source] * board.capacity[source, column])
        return self._ask(
            bundle,
            source,
            f"the bundle alone is {share:.2f} x the mean load of a broker, no broker may carry it"
            f" and stay below {1 + options.stop_below:.2f}",
        )

    def dominated(self, source: int) -> bool:
        """Whether one bundle is half of what the broker may carry and fits nowhere, and without it
        the others are not enough: moving them away first would be for nothing.
        """
        bundle, board, options = self._biggest(source), self._board, self._options
        column = board.scarcest(source)
        excess = float(board.excess(source, options.stop_below)[column])
        most = (1 + options.start_above) * board.mean[source] * board.capacity[source, column]
        if bundle < 0 or excess <= 0 or board.need[bundle, column] < most / 2:
            return False
        if self._load_refusal(bundle, source):
            return False
        mine = np.flatnonzero(board.owner == source)
        room = self._rules.pools.most(board.room(options.stop_below), mine)
        fits = (board.need[mine] <= room).all(axis=1)
        spare = board.need[mine[fits], column].sum() - excess
        return bool(spare < UNSURE_PART * board.need[bundle, column])

    def too_coarse(self, source: int) -> bool:
        """Ask for a split of the broker's biggest bundle because none fits anywhere."""
        bundle = self._biggest(source)
        excess = self._board.excess(source, self._options.stop_below)
        if bundle < 0 or not (self._board.need[bundle] >= 0.1 * np.maximum(excess, 0)).all():
            return False
        return self._ask(
            bundle,
            source,
            f"{self._load.brokers[source]} carries {self._board.ratio(source):.2f} x the mean,"
            " and no move or swap of its bundles brings it lower",
        )

    def _divide(self, above: Sequence[AboveLimit]) -> None:
        why_not: dict[tuple[str, str], list[int]] = {}
        for bundle, times, label, text in above:
            refusal = self._refusal(bundle)
            if refusal:
                why_not.setdefault(refusal, []).append(bundle)
                continue
            owner = self._load.brokers[self._load.owner[bundle]]
            self._add(bundle, owner, self._parts(bundle, times), label, f"it has {text}")
            self.resting[bundle] = "InFlight"
        for (label, text), bundles in why_not.items():
            name, count = self._load.bundles[bundles[0]], len(bundles)
            reason = f"{count} bundles, as {name}, have more than a bundle may have; {text}"
            self.skips.append(Skip("", label, reason, count))

    def _are_unsure(self, guessed: BoolArray) -> BoolArray:
        """Brokers of whose load a part is unsure; shape (B,)."""
        board, load, unsure = self._board, self._load, guessed.copy()
        for bundle, label in self.resting.items():
            if label == "InFlight" and board.owner[bundle] == load.owner[bundle]:
                unsure[bundle] = True
        at = np.flatnonzero(unsure)
        brokers = load.owner[at]
        share = board.need[at] / board.capacity[brokers]
        sums = np.bincount(brokers, share.max(axis=1, initial=0.0), len(load.brokers))
        return np.asarray(sums > UNSURE_PART * board.mean)

    def _biggest(self, source: int) -> int:
        mine = np.flatnonzero(self._board.owner == source)
        column = self._board.scarcest(source)
        order = mine[np.argsort(-self._board.need[mine, column], kind="stable")]
        for bundle in order[:1].tolist():
            if not self._rules.stays(self._load.bundles[bundle], False):
                return int(bundle)
        return -1

    def _ask(self, bundle: int, source: int, reason: str) -> bool:
        name = self._load.bundles[bundle]
        if bundle in self._refused:
            return False
        refusal = self._load_refusal(bundle, source)
        if refusal:
            self._refused.add(bundle)
            self.skips.append(Skip(name, *refusal))
            return False
        parts = self._parts(bundle, self._parts_that_fit(bundle, source))
        self._add(bundle, self._load.brokers[source], parts, "TooBig", reason)
        return True

    def _add(
        self, bundle: int, owner: str, boundaries: tuple[int, ...], label: str, reason: str
    ) -> None:
        name = self._load.bundles[bundle]
        self.splits.append(Split(name, owner, boundaries, label, reason))
        self._more[namespace_of(name)] += max(len(boundaries), 1)

    def _parts_that_fit(self, bundle: int, source: int) -> float:
        """How many equal parts are enough for each to fit on a broker."""
        board = self._board
        column = board.scarcest(source)
        room = board.room(self._options.stop_below)[self._receivers(bundle, source), column]
        room = room[room > 0]
        part = PART_OF_ROOM * float(np.median(room)) if len(room) else 0.0
        return float(board.need[bundle, column]) / part if part > 0 else 2.0

    def _parts(self, bundle: int, parts: float) -> tuple[int, ...]:
        """Boundaries of this many equal parts, or as many as there may be; () = of two."""
        parsed = parse_bundle(self._load.bundles[bundle])
        count = bundles_of(self._load.bundles, parsed.namespace) + self._more[parsed.namespace]
        most = min(MOST_PARTS, self._options.max_bundles_per_namespace - count + 1)
        if len(self._load.topics):
            most = min(most, int(self._load.topics[bundle]))
        return equal_boundaries(parsed.low, parsed.high, parts, most)

    def _receivers(self, bundle: int, source: int) -> BoolArray:
        """Brokers that parts of the bundle may go to; shape (B,)."""
        open_ = self._board.takes & self._rules.allowed(bundle, source)
        open_[source] = False
        return open_

    def _load_refusal(self, bundle: int, source: int) -> tuple[str, str] | None:
        """Label and reason, if the bundle is not split to relieve its broker."""
        if self._rules.restricts and not self._receivers(bundle, source).any():
            broker = self._load.brokers[source]
            return "Policy", f"a split would not help: policies keep its parts on {broker}"
        return self._refusal(bundle)

    def _refusal(self, bundle: int) -> tuple[str, str] | None:
        options, load, name = self._options, self._load, self._load.bundles[bundle]
        if not options.allow_splits:
            return "TooBig", "a split would help, but splits are switched off"
        if self.resting.get(bundle) in ("InFlight", "Missed"):
            return self.resting[bundle], "a split would help, but an order for it is not settled"
        if len(load.topics) and load.topics[bundle] == 1:
            return "TooBig", "a split would help, but the bundle has one topic"
        try:
            parsed = parse_bundle(name)
        except InputError:
            return "TooBig", "a split would help, but the name does not tell its hash range"
        if parsed.high - parsed.low < 2:
            return "TooBig", "a split would help, but its hash range has one place"
        if len(self.splits) >= MOST_SPLITS:
            return "Budget", f"a split would help, but {len(self.splits)} are enough for one round"
        count = bundles_of(load.bundles, parsed.namespace) + self._more[parsed.namespace]
        if count >= options.max_bundles_per_namespace:
            most = options.max_bundles_per_namespace
            return "TooBig", f"a split would help, but its namespace has {count} of {most} bundles"
        return None


def bundles_of(sorted_bundles: Sequence[str], namespace: str) -> int:
    """How many bundles a namespace has.

    >>> bundles_of(("a/b/0x0_0x1", "a/b/0x1_0x2", "a/bc/0x0_0x2"), "a/b")
    2
    """
    first = bisect_left(sorted_bundles, f"{namespace}/")
    return bisect_left(sorted_bundles, f"{namespace}0", first) - first


def equal_boundaries(low: int, high: int, parts: float, most: int) -> tuple[int, ...]:
    """Boundaries that divide a range into equal parts: the next power of two from ``parts`` on that
    is neither above ``most`` nor above the width of the range.

    Returns:
        () = two parts, whose boundary may be chosen better.

    >>> equal_boundaries(0, 0x1000, 3.5, most=16)
    (1024, 2048, 3072)
    >>> equal_boundaries(0, 0x1000, 3.5, most=3)
    ()
    """
    count = 2
    while count < parts and 2 * count <= min(most, high - low):
        count *= 2
    width = high - low
    return tuple(low + width * part // count for part in range(1, count)) if count > 2 else ()
