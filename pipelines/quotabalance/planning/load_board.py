"""The load of every broker once all orders are done; it changes with each decision of a round."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np

from quotabalance.planning.load_model import Workload
from quotabalance.planning.pool_means import Pools, broker_means
from quotaplane.model import BoolArray, FloatArray, IntArray

OVERLOADED_SHARE: Final = 0.85
"""A broker that uses more than this of a resource starts to give bundles away at ``stop_below``."""


class LoadBoard:
    """Predicted use of B brokers. N bundles, R resources.

    A broker's ratio is its use of the resource that is used most, relative to the mean of the
    scarcest resource: of the whole cluster, or of the brokers that its bundles could be divided
    among (``pool_means``). Moves do not change that mean.
    """

    def __init__(
        self,
        work: Workload,
        owner: IntArray,
        under_way: FloatArray,
        gives: BoolArray,
        takes: BoolArray,
        pools: Pools,
    ) -> None:
        """Add up.

        Args:
            work: needs, foreign load and capacities.
            owner: shape (N,): where each bundle will be.
            under_way: shape (B, R): needs of bundles that no broker reports at the moment.
            gives: shape (B,): brokers whose bundles count.
            takes: shape (B,): brokers that may get bundles; the mean is over their capacity.
            pools: brokers that bundles may be on.
        """
        self.need, self.owner = work.need, owner.copy()
        self.capacity = np.where(work.capacity > 0, work.capacity, np.inf)
        self.takes = takes
        self.has_limits = work.has_limits
        self._rooms: dict[float, FloatArray] = {}
        brokers = len(takes)
        own = np.stack(
            [np.bincount(owner, column, brokers) for column in work.need.T], axis=1
        ).reshape(brokers, work.need.shape[1])
        self.foreign = work.foreign
        self.idle = work.idle
        self.used: FloatArray = own + under_way + work.foreign
        means = broker_means(work, owner, own + under_way, gives | takes, takes, pools)
        self.mean = means.of_brokers
        """Shape (B,): what each broker is compared with."""
        self.mean_of_cluster = means.of_cluster
        self._ratio: list[float] = self.ratios().tolist()
        self._heap = [(self._ratio[b], b) for b in np.flatnonzero(takes).tolist()]
        heapify(self._heap)

    def ratios(self) -> FloatArray:
        """Shape (B,)."""
        most: FloatArray = (self.used / self.capacity).max(axis=1)
        return np.divide(most, self.mean, out=np.zeros(len(most)), where=self.mean > 0)

    def ratio(self, broker: int) -> float:
        """The ratio of one broker."""
        return self._ratio[broker]

    def least_used(self, count: int) -> Iterator[int]:
        """The brokers that take bundles, those with the lowest ratio first; at most ``count``."""
        shown: list[tuple[float, int]] = []
        seen: set[int] = set()
        try:
            while self._heap and len(shown) < count:
                entry = heappop(self._heap)
                ratio, broker = entry
                if ratio == self._ratio[broker] and broker not in seen:
                    seen.add(broker)
                    shown.append(entry)
                    yield broker
        finally:
            for entry in shown:
                heappush(self._heap, entry)

    def scarcest(self, broker: int) -> int:
        """The resource that the broker uses most."""
        return int((self.used[broker] / self.capacity[broker]).argmax())

    def absolute(self) -> FloatArray:
        """Each machine's use of what it has, idle use included; shape (B,)."""
        share: FloatArray = ((self.used + self.idle) / self.capacity).max(axis=1)
        return share

    def room(self, above: float) -> FloatArray:
        """The load that each broker can take up to (1 + above) times the mean; shape (B, R).

        The array is kept up to date; do not change it.
        """
        if above not in self._rooms:
            # a hair more than fits is rounding, not load
            free: FloatArray = (1 + above + 1e-9) * self.mean[:, None] * self.capacity - self.used
            free[~self.takes] = -np.inf
            self._rooms[above] = free
        return self._rooms[above]

    def excess(self, broker: int, above: float) -> FloatArray:
        """The broker's load above (1 + above) times the mean; shape (R,)."""
        most = (1 + above) * self.mean[broker] * self.capacity[broker]
        over: FloatArray = self.used[broker] - most
        return over

    def after(self, need: FloatArray, brokers: IntArray) -> FloatArray:
        """Ratios of brokers if they got one more bundle that needs ``need``."""
        most: FloatArray = ((self.used[brokers] + need) / self.capacity[brokers]).max(axis=-1)
        mean = self.mean[brokers]
        return np.divide(most, mean, out=np.zeros(len(most)), where=mean > 0)

    def move(self, bundle: int, target: int) -> None:
        """A bundle goes to another broker."""
        source = int(self.owner[bundle])
        need = self.need[bundle]
        self.owner[bundle] = target
        for broker, change in ((source, -need), (target, need)):
            self.used[broker] += change
            for room in self._rooms.values():
                room[broker] -= change
            most = max((self.used[broker] / self.capacity[broker]).tolist())
            mean = float(self.mean[broker])
            self._ratio[broker] = most / mean if mean > 0 else 0.0
            if self.takes[broker]:
                heappush(self._heap, (self._ratio[broker], broker))
