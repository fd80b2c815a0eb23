"""The simulated cluster: topics in bundles on brokers, with true rates; nothing is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from quotabalance.planning.policies import Policies
from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.topics.bundle_names import FULL_RANGE, BundleName

CAPACITY_BYTES_PER_S: Final = 400e6
"""In and out together, what keeps all cores of a machine of size 1 busy."""
NIC_BYTES_PER_S: Final = 1.25e9
"""Each way, of a machine of size 1: the processor is the scarcer resource."""
OFFLINE: Final = -1
"""Owner of a bundle that no broker serves at the moment."""
RETIRED: Final = -2
"""Owner of a bundle that was split."""


class _Sums(NamedTuple):
    of: FloatArray
    rates: FloatArray
    topics: IntArray


@dataclass
class World:
    """B brokers, T topics, N bundles; N grows when bundles are split.

    >>> from benchmarks.balance_arena.world import build
    >>> world = build(np.random.default_rng(0), brokers=2, namespaces=1, bundles_each=4)
    >>> rates = world.bundle_rates()
    >>> bool(np.isclose(rates.sum(), world.rates.sum())), len(world.split(0, ()))
    (True, 2)
    >>> bool(np.isclose(world.bundle_rates().sum(), rates.sum())), int(world.owner[0]) == RETIRED
    (True, True)
    """

    brokers: list[str]
    size: FloatArray
    """Shape (B,): capacity of each machine; 1 = ``CAPACITY_BYTES_PER_S``."""
    foreign: FloatArray
    """Shape (B,): part of the processor that other programs use."""
    alive: BoolArray
    """Shape (B,)."""
    hashes: IntArray
    """Shape (T,): each topic's place in its namespace's range."""
    rates: FloatArray
    """Shape (T, 4): true rates; columns as ``quotabalance.planning.cluster_load.RATES``. To be
    replaced, not changed in place."""
    bundle_of: IntArray
    """Shape (T,): the bundle of each topic."""
    bundles: list[BundleName]
    names: list[str]
    """The same as Pulsar writes them."""
    owner: IntArray
    """Shape (N,): broker, ``OFFLINE`` or ``RETIRED``."""
    policies: Policies = field(default_factory=Policies)
    """The policies in force; to be replaced, not changed."""
    _sums: _Sums | None = None

    def bundle_rates(self) -> FloatArray:
        """True rates of each bundle; shape (N, 4). Not to be changed."""
        return self._summed().rates

    def topics(self) -> IntArray:
        """Topics of each bundle; shape (N,). Not to be changed."""
        return self._summed().topics

    def _summed(self) -> _Sums:
        """Sums over topics, made again when there are other rates or bundles."""
        count = len(self.bundles)
        if not self._sums or self._sums.of is not self.rates or len(self._sums.topics) != count:
            columns = [np.bincount(self.bundle_of, column, count) for column in self.rates.T]
            topics = np.bincount(self.bundle_of, minlength=count)
            self._sums = _Sums(self.rates, np.stack(columns, axis=1), topics)
        return self._sums

    def use(self, bundle_bytes: FloatArray) -> FloatArray:
        """Part of each broker's capacity that is used, with foreign load; shape (B,).

        Args:
            bundle_bytes: Bytes per second of each bundle; shape (N,).
        """
        served = self.owner >= 0
        carried = np.bincount(self.owner[served], bundle_bytes[served], len(self.brokers))
        use: FloatArray = self.foreign + carried / (CAPACITY_BYTES_PER_S * self.size)
        return use

    def split(self, bundle: int, boundaries: Sequence[int]) -> list[int]:
        """Divide a bundle at boundaries (none: in the middle); its parts stay on its broker."""
        old = self.bundles[bundle]
        inside = boundaries or (old.low + (old.high - old.low) // 2,)
        edges = [old.low, *inside, old.high]
        first = len(self.bundles)
        for low, high in pairwise(edges):
            part = BundleName(old.namespace, low, high)
            self.bundles.append(part)
            self.names.append(str(part))
        parts = list(range(first, len(self.bundles)))
        mine = np.flatnonzero(self.bundle_of == bundle)
        place = np.searchsorted(np.array(edges[1:-1]), self.hashes[mine], side="right")
        self.bundle_of[mine] = first + place
        self.owner = np.concatenate([self.owner, np.full(len(parts), self.owner[bundle])])
        self.owner[bundle] = RETIRED
        return parts


def build(
    rng: np.random.Generator,
    brokers: int,
    namespaces: int,
    bundles_each: int,
    topics_each: int = 12,
    use: float = 0.5,
    tenants: Sequence[str] = ("acme",),
) -> World:
    """A cluster whose bundles' rates are log-normal; nothing is placed yet: broker 0 owns all.

    Args:
        rng: The source of all random numbers.
        brokers: Number of brokers, each of size 1.
        namespaces: Number of namespaces.
        bundles_each: Bundles of each namespace, of equal ranges.
        topics_each: Topics of each bundle, on average.
        use: Mean part of the capacity that is used.
        tenants: Of the namespaces, in turn.
    """
    names, all_bundles = [], []
    for namespace in range(namespaces):
        edges = [FULL_RANGE * part // bundles_each for part in range(bundles_each)] + [FULL_RANGE]
        for low, high in pairwise(edges):
            name = f"{tenants[namespace % len(tenants)]}/app{namespace:04d}"
            all_bundles.append(BundleName(name, low, high))
    names = [str(bundle) for bundle in all_bundles]
    count = len(all_bundles)
    total = rng.lognormal(0.0, 0.5, count)
    total *= use * brokers * CAPACITY_BYTES_PER_S / total.sum()
    topics = np.maximum(rng.poisson(topics_each, count), 2)
    bundle_of = np.repeat(np.arange(count), topics)
    share = rng.lognormal(0.0, 1.0, len(bundle_of))
    share /= np.bincount(bundle_of, share, count)[bundle_of]
    low = np.array([bundle.low for bundle in all_bundles])[bundle_of]
    high = np.array([bundle.high for bundle in all_bundles])[bundle_of]
    hashes = low + (rng.random(len(low)) * (high - low)).astype(np.int64)
    into = rng.uniform(0.33, 0.5, count)
    message_bytes = np.clip(rng.lognormal(np.log(4096.0), 0.6, count), 1024.0, None)
    in_bytes, out_bytes = total * into, total * (1.0 - into)
    of_bundle = np.stack(
        [in_bytes, out_bytes, in_bytes / message_bytes, out_bytes / message_bytes], axis=1
    )
    return World(
        brokers=[f"b{number:03d}" for number in range(brokers)],
        size=np.ones(brokers),
        foreign=np.zeros(brokers),
        alive=np.ones(brokers, dtype=np.bool_),
        hashes=hashes,
        rates=of_bundle[bundle_of] * share[:, None],
        bundle_of=bundle_of,
        bundles=all_bundles,
        names=names,
        owner=np.zeros(count, dtype=np.int64),
    )


def place_balanced(
    world: World, brokers: Sequence[int], bundles: IntArray | slice = slice(None)
) -> None:
    """The biggest bundle first, each to the one of these brokers that is then used least."""
    size = world.bundle_rates()[:, :2].sum(axis=1)
    use = world.foreign[list(brokers)].copy()
    chosen = np.arange(len(size))[bundles]
    for bundle in chosen[np.argsort(-size[chosen])]:
        target = int(np.argmin(use))
        world.owner[bundle] = brokers[target]
        use[target] += size[bundle] / (CAPACITY_BYTES_PER_S * world.size[brokers[target]])


def place_random(world: World, brokers: Sequence[int], rng: np.random.Generator) -> None:
    """Every bundle anywhere, whatever it carries."""
    world.owner[:] = rng.choice(np.asarray(brokers), len(world.bundles))


def heat(rng: np.random.Generator, world: World, pool: Sequence[int], to: float) -> None:
    """Bundles of a pool come to its first broker until it carries so many times the pool's mean."""
    size = world.bundle_rates()[:, :2].sum(axis=1)
    for bundle in rng.permutation(np.flatnonzero(np.isin(world.owner, pool))):
        use = world.use(size)[list(pool)]
        if use[0] >= to * use.mean():
            return
        world.owner[bundle] = pool[0]
