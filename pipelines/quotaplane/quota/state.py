"""What one shard remembers between rounds.

Everything is a numpy array so that a round costs a handful of array operations, however many
groups the shard holds. Arrays over the dimensions have shape (d, n): one contiguous vector per
dimension, which is also how Arrow stores them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quotaplane.model import DIMENSIONS
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.deleted_groups import DeletedReservations
from quotaplane.quota.groups import Groups, plain_groups
from quotaplane.quota.learning import Learning
from quotaplane.quota.leases import Leases, fresh_leases
from quotaplane.quota.undefined_groups import UndefinedGroups


def _none(dtype: type = np.int64) -> npt.NDArray[Any]:
    return np.empty(0, dtype)


def _no_groups() -> Groups:
    return plain_groups(_none(), pa.array([], pa.string()), np.empty((len(DIMENSIONS), 0)))


def _no_brokers() -> Brokers:
    return Brokers((), _none(), _none(), _none(), _none(bool), _none(bool))


@dataclass(frozen=True)
class ShardState:
    """All that one shard knows. Immutable: a step returns a new one and shares what it can."""

    groups: Groups = field(default_factory=_no_groups)
    brokers: Brokers = field(default_factory=_no_brokers)
    leases: Leases = field(default_factory=lambda: fresh_leases(_none(), _none()))
    learning: Learning = field(default_factory=Learning)
    deleted: DeletedReservations = field(default_factory=DeletedReservations)
    undefined: UndefinedGroups = field(default_factory=UndefinedGroups)
    rounds: int = 0
    """Rounds this shard took part in: which groups' limits are due to be renewed turns with it."""
