"""The working set of a round: a shard's groups, brokers and leases, in the same dimensions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from quotaplane.model import BoolArray
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
