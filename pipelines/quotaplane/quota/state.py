"""The state of one shard, kept from one round to the next.

It consists of numpy arrays, so a round costs a fixed number of array operations, however many
groups the shard has. Arrays over the dimensions have shape (d, n): one contiguous vector per
dimension, which is also how Arrow stores them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from quotaplane.model import DIMENSIONS, IntArray
from quotaplane.quota.brokers import Brokers, fresh_brokers
from quotaplane.quota.deleted_groups import DeletedReservations
from quotaplane.quota.groups import Groups, plain_groups
from quotaplane.quota.learning import Learning
from quotaplane.quota.leases import Leases, fresh_leases
from quotaplane.quota.observed_pairs import ObservedPairs
from quotaplane.quota.overuse import Overuse
from quotaplane.quota.undefined_groups import UndefinedGroups


def _empty() -> IntArray:
    return np.empty(0, np.int64)


def _no_groups() -> Groups:
    return plain_groups(_empty(), pa.array([], pa.string()), np.empty((len(DIMENSIONS), 0)))


@dataclass(frozen=True)
class ShardState:
    """The state of one shard. Immutable: a step returns a new one that shares unchanged arrays."""

    groups: Groups = field(default_factory=_no_groups)
    brokers: Brokers = field(default_factory=lambda: fresh_brokers(()))
    leases: Leases = field(default_factory=lambda: fresh_leases(_empty(), _empty()))
    learning: Learning = field(default_factory=Learning)
    deleted: DeletedReservations = field(default_factory=DeletedReservations)
    undefined: UndefinedGroups = field(default_factory=UndefinedGroups)
    overuse: Overuse = field(default_factory=Overuse)
    observed: ObservedPairs = field(default_factory=ObservedPairs)
    renewed_at_ms: IntArray = field(default_factory=_empty)
    """(t,) when the groups of each turn were last published, those whose id modulo t is the turn's
    number (``renewals``); the latest is the time of the last round. () = no round yet."""
    start: int = -1
    """The newest start of the job (``Events.start``) after which all limits were published."""
    snapshot_at_ms: int = 0
    """When the history got the leases last."""
    recorded_at_ms: int = 0
    """When the history got the state last, for replays."""

    @property
    def last_round_ms(self) -> int:
        """The time of the last round; 0: there was none."""
        return int(self.renewed_at_ms.max(initial=0))
