"""The mean that each broker is compared with, where not every bundle may be on every broker."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

import numpy as np

from quotabalance.planning.load_model import Workload
from quotaplane.model import BoolArray, FloatArray, IntArray

_ROUNDING: Final = 1e-9
"""A smaller part of the load is rounding."""


class Pools(NamedTuple):
    """The brokers that bundles may be on. P pools, which may overlap, B brokers, N bundles."""

    open_to: BoolArray
    """Shape (P, B)."""
    of_bundle: IntArray
    """Shape (N,): the bundle's pool."""

    def within(self, other: Pools) -> Pools:
        """The pools of brokers that both allow."""
        both, of_bundle = np.unique(
            np.stack((self.of_bundle, other.of_bundle)), axis=1, return_inverse=True
        )
        return Pools(self.open_to[both[0]] & other.open_to[both[1]], of_bundle.reshape(-1))

    def most(self, room: FloatArray, bundles: IntArray) -> FloatArray:
        """The most of each resource that brokers of the bundles' pools have room for.

        Args:
            room: shape (B, R): of each broker.
            bundles: shape (n,): their places.

        Returns:
            Shape (n, R).
        """
        of_pools: FloatArray = np.array(
            [room[brokers].max(axis=0, initial=-np.inf) for brokers in self.open_to]
        )
        return of_pools[self.of_bundle[bundles]]


class BrokerMeans(NamedTuple):
    """Means that brokers are compared with: of the resource whose mean is highest."""

    of_brokers: FloatArray
    """Shape (B,); for brokers that take no bundles that of the cluster."""
    of_cluster: float


def broker_means(
    work: Workload,
    owner: IntArray,
    carried: FloatArray,
    counts: BoolArray,
    takes: BoolArray,
    pools: Pools,
) -> BrokerMeans:
    """The mean use that each broker could have if loads were divided as evenly as pools allow.

    Bundles that no broker of their pool can take stay where they are, as do foreign load and
    bundles under way: these count for all brokers of the same pools as theirs.

    Args:
        work: needs, foreign load and capacities.
        owner: shape (N,).
        carried: shape (B, R): needs of each broker's bundles, with those under way.
        counts: shape (B,): brokers whose bundles count.
        takes: shape (B,): brokers that may get bundles; only their capacity counts.
        pools: of the bundles.
    """
    room = np.where(takes[:, None], work.capacity, 0).sum(axis=0)
    all_use = carried[counts].sum(axis=0) + work.foreign[takes].sum(axis=0)
    means = np.divide(all_use, room, out=np.zeros_like(all_use), where=room > 0)
    of_cluster = float(means.max()) if takes.any() else 0.0
    mean = np.full(len(takes), of_cluster)
    if pools.open_to[:, takes].all():
        return BrokerMeans(mean, of_cluster)
    open_to = pools.open_to[:, takes]
    somewhere = np.asarray(open_to.any(axis=1))
    free = counts[owner] & somewhere[pools.of_bundle]
    kinds, kind = np.unique(open_to, axis=1, return_inverse=True)
    alike = kind.reshape(-1) == np.arange(kinds.shape[1])[:, None]
    brokers = np.concatenate((open_to, alike))
    of_resources = []
    for column, need in enumerate(work.need.T):
        moves = np.bincount(owner[free], need[free], len(takes))
        fixed = carried[:, column] - moves + work.foreign[:, column]
        load = np.bincount(pools.of_bundle[free], need[free], len(open_to))
        loads = np.concatenate((load, alike @ np.maximum(fixed[takes], 0)))
        of_resources.append(pool_means(loads, brokers, work.capacity[takes, column]))
    mean[takes] = np.max(of_resources, axis=0)
    return BrokerMeans(mean, of_cluster)


def pool_means(load: FloatArray, pools: BoolArray, capacity: FloatArray) -> FloatArray:
    """Use of each broker by its capacity if loads were divided as evenly as their pools allow.

    That division makes the highest use as low as possible, then the next highest, and so on. The
    highest use is that of the loads whose brokers together have least capacity for them; without
    these loads and brokers the rest is divided in the same way.

    Source: decomposition of a polymatroid's base (Fujishige 1980); the loads with least capacity
    are found by Dinkelbach's method with a minimum cut (Goldberg 1984).

    Args:
        load: shape (P,): of each pool, at least 0.
        pools: shape (P, B): brokers that the load may be on; each pool with load has some.
        capacity: shape (B,): above 0.

    Returns:
        Shape (B,).

    Two brokers are reserved for a load of 6, which may use nothing else; a load of 3 may use the
    third and fourth broker, a load of 4 all but the reserved ones:

    >>> pools = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 1, 1, 1]], bool)
    >>> pool_means(np.array([6.0, 3, 4]), pools, np.ones(5)).round(3).tolist()
    [3.0, 3.0, 2.333, 2.333, 2.333]
    >>> pool_means(np.array([6.0, 9, 1]), pools, np.ones(5)).tolist()
    [3.0, 3.0, 4.5, 4.5, 1.0]
    """
    kinds, kind = np.unique(pools, axis=1, return_inverse=True)
    kind = kind.reshape(-1)  # numpy 2.0 returned another shape
    room = np.bincount(kind, capacity, kinds.shape[1]).astype(np.float64)
    mean = np.zeros(len(room))
    open_, left = np.ones(len(room), np.bool_), load > 0
    while left.any():
        tight = _tightest(np.where(left, load, 0), kinds & open_, room)
        brokers = kinds[tight].any(axis=0) & open_
        mean[brokers] = load[tight].sum() / room[brokers].sum()
        open_ &= ~brokers
        # a load without brokers now is one that rounding kept out of the tightest
        left &= ~tight & (kinds & open_).any(axis=1)
    found: FloatArray = mean[kind]
    return found


def _tightest(load: FloatArray, pools: BoolArray, room: FloatArray) -> BoolArray:
    """The loads that have most for each unit of their brokers' capacity together; shape (P,)."""
    chosen: BoolArray = load > 0
    while True:
        most = load[chosen].sum() / room[pools[chosen].any(axis=0)].sum()
        denser = _above(load, pools, most * room)
        gain = load[denser].sum() - most * room[pools[denser].any(axis=0)].sum()
        if gain <= _ROUNDING * load.sum() or (denser == chosen).all():
            return chosen
        chosen = denser


def _above(load: FloatArray, pools: BoolArray, room: FloatArray) -> BoolArray:
    """The loads that exceed the room of their brokers by most; shape (P,).

    They are what a maximum flow from loads to brokers leaves reachable (Edmonds and Karp 1972).
    """
    count, brokers = pools.shape
    source, sink = count + brokers, count + brokers + 1
    free = np.zeros((sink + 1, sink + 1))
    free[source, :count] = load
    free[:count, count:source] = np.where(pools, np.inf, 0)
    free[count:source, sink] = room
    least = _ROUNDING * load.sum()
    while True:
        before = _reached(free, source, least)
        if before[sink] < 0:
            return before[:count] >= 0
        path = [sink]
        while path[-1] != source:
            path.append(int(before[path[-1]]))
        steps = list(zip(path[1:], path[:-1], strict=True))
        flow = min(free[step] for step in steps)
        for begin, end in steps:
            free[begin, end] -= flow
            free[end, begin] += flow


def _reached(free: FloatArray, source: int, least: float) -> IntArray:
    """From where each node is reached first, by edges with more than ``least``; -1 = not."""
    before = np.full(len(free), -1)
    before[source] = source
    queue = deque([source])
    while queue:
        node = queue.popleft()
        for other in np.flatnonzero((free[node] > least) & (before < 0)).tolist():
            before[other] = node
            queue.append(other)
    return before
