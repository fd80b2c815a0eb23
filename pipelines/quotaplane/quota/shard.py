"""The working set of a round: a shard's groups, brokers and leases, in the same dimensions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from quotaplane.model import BoolArray, IntArray
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.groups import Groups
from quotaplane.quota.leases import Leases


@dataclass(frozen=True)
class Shard:
    """Groups, brokers and leases; a lease holds the index of its group and of its broker."""

    groups: Groups
    brokers: Brokers
    leases: Leases

    def in_dimensions(self, dimensions: tuple[int, ...]) -> Shard:
        """The shard with only these dimensions (indexes in ``model.DIMENSIONS``)."""
        return replace(
            self,
            groups=self.groups.narrowed(dimensions),
            leases=self.leases.in_dimensions(dimensions),
        )

    def silent_ms(self, at_ms: int) -> tuple[IntArray, IntArray]:
        """(b,) how long no report of the broker was read, (n,) or none that names the group.

        For how long a broker's reports no longer name a group follows from their publish times:
        both are from one clock, whatever it shows.
        """
        brokers, leases = self.brokers, self.leases
        silent_ms = at_ms - brokers.read_at_ms
        unnamed_ms = np.maximum(brokers.seen_at_ms[leases.broker] - leases.seen_at_ms, 0)
        return silent_ms, silent_ms[leases.broker] + unnamed_ms

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
