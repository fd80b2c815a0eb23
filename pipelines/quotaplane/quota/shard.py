"""What a round works on: a shard's groups, brokers and leases, of the same dimensions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from quotaplane.model import BoolArray
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.groups import Groups
from quotaplane.quota.leases import Leases


@dataclass(frozen=True)
class Shard:
    """Groups, brokers and leases; a lease has indexes of its group and its broker."""

    groups: Groups
    brokers: Brokers
    leases: Leases

    def in_dimensions(self, dimensions: tuple[int, ...]) -> Shard:
        """The same with these dimensions alone, as indexes in ``model.DIMENSIONS``."""
        return replace(
            self,
            groups=self.groups.narrowed(dimensions),
            leases=self.leases.carrying(dimensions),
        )

    def without_brokers(self, gone: BoolArray) -> Shard:
        """Without brokers (b,) that have no lease."""
        if not gone.any():
            return self
        brokers, place = self.brokers.without(gone)
        return replace(
            self,
            brokers=brokers,
            leases=replace(self.leases, broker=place[self.leases.broker]),
        )
