"""The working set of a round: a shard's groups, brokers and leases, in the same dimensions.

Leases always have the first four dimensions. They get another one with the first quota or ceiling
in it, and lose it once an unlimited rate was issued to the last broker. So a dimension that nobody
limits costs nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from quotaplane.arrays import find
from quotaplane.groups.hierarchy import even_shares
from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray, Mode
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.groups import Groups
from quotaplane.quota.leases import Leases

_MIXER: Final = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio, odd: multiplying by it mixes bits (Fibonacci hashing)."""


@dataclass(frozen=True)
class Shard:
    """Groups, brokers and leases; a lease holds the index of its group and of its broker."""

    groups: Groups
    brokers: Brokers
    leases: Leases

    def in_use(self, others: Set[int]) -> Shard:
        """The shard in the dimensions that leases must have, and in ``others``.

        They are the basic ones, and any in which a broker has a limit; indexes in
        ``model.DIMENSIONS``.
        """
        groups, leases, overrides = self.groups, self.leases, self.groups.overrides
        # A template's quota is never divided, so no lease needs a dimension that only it limits.
        divided = ~groups.template
        by_group = (np.isfinite(groups.quota) & divided).any(axis=1)
        by_broker = (np.isfinite(overrides.ceiling) & divided[overrides.group]).any(axis=1)
        needed = {*range(BASIC), *np.flatnonzero(by_group | by_broker).tolist(), *others}
        for index, dimension in enumerate(leases.dimensions[BASIC:], start=BASIC):
            if np.isfinite(leases.limit[index]).any():
                needed.add(dimension)
        dimensions = tuple(sorted(needed))
        return replace(
            self,
            groups=groups.narrowed(dimensions),
            leases=leases.in_dimensions(dimensions),
        )

    def find_leases(self, group: IntArray, broker: IntArray) -> IntArray:
        """(m,) the lease of each group and broker, all as indexes; -1: there is none.

        ``group`` and ``broker`` (m,) may be -1, too.
        """
        leases, size = self.leases, len(self.brokers)
        wanted = np.where((group >= 0) & (broker >= 0), group * size + broker, -1)
        return find(leases.group * size + leases.broker, wanted)

    def equal_shares(self, dimension: int) -> FloatArray:
        """(g,) see ``even_shares``; ``dimension``: its index among those of the shard."""
        groups = self.groups
        brokers = np.bincount(self.leases.group, minlength=len(groups))
        return even_shares(groups.parent, groups.tree_quota(dimension), brokers)

    def silent_ms(self, at_ms: int) -> tuple[IntArray, IntArray]:
        """(b,) how long no report of the broker was read, (n,) or none that names the group.

        For how long a broker's reports no longer name a group follows from their publish times:
        both are from one clock, whatever it shows. A group that light reports leave out is named.
        """
        brokers, leases = self.brokers, self.leases
        silent_ms = at_ms - brokers.read_at_ms
        unnamed_ms = np.maximum(brokers.seen_at_ms[leases.broker] - self.confirmed_at_ms(), 0)
        return silent_ms, silent_ms[leases.broker] + unnamed_ms

    def confirmed_at_ms(self) -> IntArray:
        """(n,) when the newest report was published that names the lease's group, or leaves it out
        because nothing changed: as light reports do, but for no longer than they may.
        """
        brokers, leases = self.brokers, self.leases
        leaves_out_ms = brokers.leaves_out_ms[leases.broker]
        if not leaves_out_ms.any():
            return leases.seen_at_ms
        newest_ms = np.maximum(brokers.seen_at_ms[leases.broker], leases.seen_at_ms)
        confirmed: IntArray = np.minimum(newest_ms, leases.seen_at_ms + leaves_out_ms)
        return confirmed

    def enforced(self) -> BoolArray:
        """(n,) whether each limit is enforced; else it is only computed and recorded.

        Limits of ``hard`` groups are enforced, on ``enforcement_percent`` of the brokers: those
        with the lowest hashes of group and broker. So each group starts with other brokers, and
        raising the percentage only adds brokers.
        """
        groups, leases = self.groups, self.leases
        hard = groups.mode == Mode.HARD
        if hard.all() and (groups.enforcement_percent >= 100.0).all():
            return np.ones(len(leases), np.bool_)
        digests = (hashlib.sha256(name.encode()).digest()[:8] for name in self.brokers.names)
        broker = np.array([int.from_bytes(digest, "big") for digest in digests], np.uint64)
        mixed = groups.ids.astype(np.uint64)[leases.group] * _MIXER ^ broker[leases.broker]
        mixed = (mixed ^ (mixed >> np.uint64(31))) * _MIXER
        percent = (mixed >> np.uint64(11)) * (100.0 / 2**53)
        most_percent = groups.enforcement_percent[leases.group]
        chosen: BoolArray = hard[leases.group] & (percent < most_percent)
        return chosen

    def without_brokers(self, gone: BoolArray) -> Shard:
        """The shard without the brokers ``gone`` (b,), none of which has a lease."""
        if not gone.any():
            return self
        brokers, new_index = self.brokers.without(gone)
        return replace(
            self,
            brokers=brokers,
            leases=replace(self.leases, broker=new_index[self.leases.broker]),
        )
