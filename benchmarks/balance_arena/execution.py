"""Carries orders out as a cluster does: bundles are off line for a while, lookups place them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from benchmarks.balance_arena.world import OFFLINE, RETIRED, World
from quotaplane.model import FloatArray

CLOSE_S: Final = 0.2
"""The least time of an unload, and of loading on the other side as well."""
TOPIC_S: Final = 0.01
"""The time that each topic of the bundle adds to either."""
LOOKUP_AFTER_S: Final = 0.5
"""Clients look up an unloaded topic so much later."""
SESSION_S: Final = 30.0
"""A dead broker is noticed when its session expires."""
_AGAIN_S: Final = 5.0


class Order(NamedTuple):
    """A bundle is to leave its broker."""

    bundle: int
    source: int
    target: int


class Moved(NamedTuple):
    """A bundle that a strategy moved."""

    ordered_s: float
    online_s: float
    bundle: int
    source: int
    wished: int
    target: int
    bytes_per_s: float
    """True rate, in and out together, when it left."""


class Outage(NamedTuple):
    """A bundle that was off line."""

    seconds: float
    topics: int
    bytes_per_s: float
    ordered: bool
    """Because of a strategy; otherwise because its broker was gone."""


class Execution:
    """Events of the cluster in their order."""

    def __init__(
        self,
        world: World,
        lanes: int,
        wish: Callable[[int, int], None] | None,
        place: Callable[[int], int],
        touched: Callable[[int, int], None],
    ) -> None:
        """Nothing is under way yet.

        Args:
            world: The cluster.
            lanes: So many unloads are under way at once; the next begins when one has ended.
            sequential: See above.
            wish: Stores the target of an unload, for its lookup to find; None: targets are kept.
            place: The broker that a lookup of a bundle without a target finds; -1 = none yet.
            touched: Called with a bundle and its broker when it leaves or arrives.
        """
        self._world = world
        self._wish, self._place, self._touched = wish, place, touched
        self._events: list[tuple[float, int, str, int]] = []
        self._count = 0
        self._free_s = [0.0] * lanes
        self._range_free_s: dict[tuple[int, int], float] = {}
        self._under_way: dict[int, tuple[float, Order, float]] = {}
        self._target: dict[int, int] = {}
        self._left_s: dict[int, float] = {}
        self.moved: list[Moved] = []
        self.outages: list[Outage] = []
        self.refused = 0
        """Orders for a bundle that was not where the strategy thought, or already under way."""

    def order(self, orders: Sequence[Order], now_s: float) -> None:
        """Begin to carry out a round's orders.

        Where targets are kept, a bundle waits until another one of its range has been looked up.
        """
        for one in orders:
            if self._world.owner[one.bundle] != one.source or one.bundle in self._under_way:
                self.refused += 1
                continue
            self._under_way[one.bundle] = (now_s, one, 0.0)
            hashes = self._world.bundles[one.bundle][1:]
            begin = max(now_s, heapq.heappop(self._free_s))
            if not self._wish:
                begin = max(begin, self._range_free_s.get(hashes, 0.0))
            end = begin + self._handling_s(one.bundle)
            self._range_free_s[hashes] = end + LOOKUP_AFTER_S
            heapq.heappush(self._free_s, end)
            self._push(begin, "unload", one.bundle)

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
        if self._wish:
            self._wish(bundle, order.target)
        else:
            self._target[bundle] = order.target
        self._leave(bundle, at)
        self._push(at + self._handling_s(bundle) + LOOKUP_AFTER_S, "lookup", bundle)

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
        topics = int(self._world.topics()[bundle])
        self.outages.append(Outage(seconds, topics, size, begun is not None))
        self._touched(bundle, target)
        if begun:
            ordered_s, order, left = begun
            self.moved.append(
                Moved(ordered_s, at, bundle, order.source, order.target, target, left)
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
