"""Carries orders out as a cluster does: bundles are off line for a while, lookups place them."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np

from benchmarks.balance_arena.world import OFFLINE, RETIRED, World
from quotaplane.model import BoolArray, FloatArray

CLOSE_S: Final = 0.2
"""The least time of an unload, and of loading on the other side as well."""
TOPIC_S: Final = 0.01
"""The time that each topic of the bundle adds to either."""
LOOKUP_AFTER_S: Final = 0.5
"""Clients look up an unloaded topic so much later."""
CLAIM_AFTER_S: Final = 0.1
"""Time until a bundle that is handed over has its new broker. quotaplane's executor asks the
target to claim it every 0.05 s; brokers of the extensible manager notify the target themselves."""
SESSION_S: Final = 30.0
"""A dead broker is noticed when its session expires."""
_AGAIN_S: Final = 5.0


class Order(NamedTuple):
    """A bundle is to leave its broker."""

    bundle: int
    source: int
    target: int
    forced: bool = False
    """An isolation policy forbids its broker."""


class Handover(NamedTuple):
    """How the orders of a strategy are carried out."""

    at_once: int
    """Number of unloads under way at once; the next begins when one has ended."""
    keeps_target: bool
    """The target gets the bundle; otherwise the first lookup of the bundle's range gets the wish,
    and any other lookup places its bundle."""
    one_of_a_range: bool = False
    """A bundle waits until another one of its range has its new broker."""

    @property
    def lookup_after_s(self) -> float:
        """From the end of an unload until a broker is found."""
        return CLAIM_AFTER_S if self.keeps_target else LOOKUP_AFTER_S


class Player(Protocol):
    """A contender at work in one run. By default it does nothing."""

    handover: Handover

    def measured(self, due: BoolArray) -> None:
        """Brokers have new numbers."""

    def check(self, now_s: float) -> None:
        """Five seconds are over."""

    def round(self, now_s: float) -> tuple[list[Order], list[tuple[int, tuple[int, ...]]]]:
        """A minute is over: moves, and bundles to split with the boundaries."""

    def wish(self, bundle: int, broker: int) -> None:
        """An unload with a target begins."""

    def place(self, bundle: int) -> int:
        """A client looks a bundle up."""

    def touched(self, bundle: int, broker: int) -> None:
        """A bundle left a broker or arrived."""

    def registered(self) -> None:
        """Brokers came or went."""


class Moved(NamedTuple):
    """A bundle that a strategy moved."""

    ordered_s: float
    bundle: int
    source: int
    wished: int
    target: int
    bytes_per_s: float
    """True rate, in and out together, when it left."""
    forced: bool = False
    """As of the order."""


class Outage(NamedTuple):
    """A bundle that was off line."""

    seconds: float
    bytes_per_s: float
    ordered: bool
    """Because of a strategy; otherwise because its broker was gone."""


class Execution:
    """Events of the cluster in their order."""

    def __init__(
        self,
        world: World,
        handover: Handover,
        wish: Callable[[int, int], None],
        place: Callable[[int], int],
        touched: Callable[[int, int], None],
    ) -> None:
        """Nothing is under way yet.

        Args:
            world: The cluster.
            handover: How orders are carried out.
            wish: Stores the target of an unload, for its lookup to find, if it is not kept.
            place: The broker that a lookup of a bundle without a target finds; -1 = none yet.
            touched: Called with a bundle and its broker when it leaves or arrives.
        """
        self._world, self._handover = world, handover
        self._wish, self._place, self._touched = wish, place, touched
        self._events: list[tuple[float, int, str, int]] = []
        self._count = 0
        self._free_s = [0.0] * handover.at_once
        self._range_free_s: dict[object, float] = {}
        self._under_way: dict[int, tuple[float, Order, float]] = {}
        self._target: dict[int, int] = {}
        self._left_s: dict[int, float] = {}
        self._parted: dict[int, int] = {}
        self.moved: list[Moved] = []
        self.parted: list[Moved] = []
        """Parts of bundles that were split, which lookups placed on another broker."""
        self.outages: list[Outage] = []
        self.refused = 0
        """Orders for a bundle that was not where the strategy thought, or already under way."""

    def order(self, orders: Sequence[Order], now_s: float) -> None:
        """Begin to carry out a round's orders."""
        waiting: dict[object, deque[tuple[int, int]]] = {}
        for place, one in enumerate(orders):
            if self._world.owner[one.bundle] != one.source or one.bundle in self._under_way:
                self.refused += 1
                continue
            self._under_way[one.bundle] = (now_s, one, 0.0)
            range_ = self._world.bundles[one.bundle][1:] if self._handover.one_of_a_range else None
            waiting.setdefault(range_, deque()).append((place, one.bundle))
        while waiting:
            self._begin(waiting, now_s)

    def _begin(self, waiting: dict[object, deque[tuple[int, int]]], now_s: float) -> None:
        """The next unload: the first order whose range is free when an unload may begin."""
        begin = max(now_s, heapq.heappop(self._free_s))
        begin = max(begin, min(self._range_free_s.get(range_, 0.0) for range_ in waiting))
        free = [range_ for range_ in waiting if self._range_free_s.get(range_, 0.0) <= begin]
        range_ = min(free, key=lambda one: waiting[one][0])
        _, bundle = waiting[range_].popleft()
        if not waiting[range_]:
            del waiting[range_]
        end = begin + self._handling_s(bundle)
        if range_ is not None:
            end += self._handover.lookup_after_s  # the executor sees the new broker
            self._range_free_s[range_] = end
        heapq.heappush(self._free_s, end)
        self._push(begin, "unload", bundle)

    def part(self, parts: Sequence[int], lookup_s: float, now_s: float) -> None:
        """The parts of a bundle that was split lose their broker."""
        for bundle in parts:
            self._parted[bundle] = int(self._world.owner[bundle])
        self.release(parts, lookup_s, now_s)

    def release(self, bundles: Sequence[int], lookup_s: float, now_s: float) -> None:
        """Bundles lose their broker; clients look them up at ``lookup_s``."""
        for bundle in bundles:
            self._under_way.pop(bundle, None)
            self._leave(bundle, now_s)
            self._push(lookup_s, "lookup", bundle)

    def run_until(self, now_s: float) -> None:
        """Let everything happen that is due."""
        while self._events and self._events[0][0] <= now_s:
            at, _, what, bundle = heapq.heappop(self._events)
            if self._world.owner[bundle] == RETIRED:
                continue
            if what == "unload":
                self._unload(bundle, at)
            elif self._world.owner[bundle] != OFFLINE:
                continue
            elif what == "lookup":
                self._look_up(bundle, at)
            else:
                self._arrive(bundle, at)

    def _unload(self, bundle: int, at: float) -> None:
        begun = self._under_way.get(bundle)
        if begun is None:
            return
        ordered_s, order, _ = begun
        if self._world.owner[bundle] != order.source:
            self._under_way.pop(bundle)
            self.refused += 1
            return
        size = float(_bytes(self._world)[bundle])
        self._under_way[bundle] = (ordered_s, order, size)
        if self._handover.keeps_target:
            self._target[bundle] = order.target
        else:
            self._wish(bundle, order.target)
        self._leave(bundle, at)
        found = at + self._handling_s(bundle) + self._handover.lookup_after_s
        self._push(found, "lookup", bundle)

    def _leave(self, bundle: int, at: float) -> None:
        owner = int(self._world.owner[bundle])
        if owner >= 0:
            self._left_s[bundle] = at
            self._world.owner[bundle] = OFFLINE
            self._touched(bundle, owner)

    def _look_up(self, bundle: int, at: float) -> None:
        target = self._target.pop(bundle, -1)
        if target < 0 or not self._world.alive[target]:
            target = self._place(bundle)
        if target < 0 or not self._world.alive[target]:
            self._push(at + _AGAIN_S, "lookup", bundle)
            return
        self._target[bundle] = target
        self._push(at + self._handling_s(bundle), "online", bundle)

    def _arrive(self, bundle: int, at: float) -> None:
        target = self._target.pop(bundle)
        if not self._world.alive[target]:
            self._push(at + _AGAIN_S, "lookup", bundle)
            return
        self._world.owner[bundle] = target
        begun = self._under_way.pop(bundle, None)
        size = float(_bytes(self._world)[bundle])
        seconds = at - self._left_s.pop(bundle)
        self.outages.append(Outage(seconds, size, begun is not None))
        self._touched(bundle, target)
        source = self._parted.pop(bundle, target)
        if source != target:
            left_s = at - seconds
            self.parted.append(Moved(left_s, bundle, source, target, target, size))
        if begun:
            ordered_s, order, left = begun
            self.moved.append(
                Moved(ordered_s, bundle, order.source, order.target, target, left, order.forced)
            )

    def _handling_s(self, bundle: int) -> float:
        return CLOSE_S + TOPIC_S * float(self._world.topics()[bundle])

    def _push(self, at: float, what: str, bundle: int) -> None:
        self._count += 1
        heapq.heappush(self._events, (at, self._count, what, bundle))


def _bytes(world: World) -> FloatArray:
    rates = world.bundle_rates()
    total: FloatArray = np.asarray(rates[:, 0] + rates[:, 1])
    return total
