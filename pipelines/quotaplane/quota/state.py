"""The state of one shard, kept from one round to the next.

It consists of numpy arrays, so a round costs a fixed number of array operations, however many
groups the shard has. Arrays over the dimensions have shape (d, n): one contiguous vector per
dimension, which is also how Arrow stores them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quotaplane.model import DIMENSIONS, IntArray
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.deleted_groups import DeletedReservations
from quotaplane.quota.groups import Groups, plain_groups
from quotaplane.quota.learning import Learning
from quotaplane.quota.leases import Leases, fresh_leases
from quotaplane.quota.observed_pairs import ObservedPairs
from quotaplane.quota.overuse import Overuse
from quotaplane.quota.undefined_groups import UndefinedGroups


def _empty(dtype: type = np.int64) -> npt.NDArray[Any]:
    return np.empty(0, dtype)


def _no_groups() -> Groups:
    return plain_groups(_empty(), pa.array([], pa.string()), np.empty((len(DIMENSIONS), 0)))


def _no_brokers() -> Brokers:
    times = (_empty(), _empty(), _empty(), _empty())
    known = _empty(np.uint64)
    return Brokers((), *times, _empty(bool), _empty(bool), known, _empty(), _empty())


@dataclass(frozen=True)
class ShardState:
    """The state of one shard. Immutable: a step returns a new one that shares unchanged arrays."""

    groups: Groups = field(default_factory=_no_groups)
    brokers: Brokers = field(default_factory=_no_brokers)
    leases: Leases = field(default_factory=lambda: fresh_leases(_empty(), _empty()))
    learning: Learning = field(default_factory=Learning)
    deleted: DeletedReservations = field(default_factory=DeletedReservations)
    undefined: UndefinedGroups = field(default_factory=UndefinedGroups)
    overuse: Overuse = field(default_factory=Overuse)
    observed: ObservedPairs = field(default_factory=ObservedPairs)
    renewed_at_ms: IntArray = field(default_factory=_empty)
    """(t,) when the groups of each turn were last published, those whose id modulo t is the turn's
    number (``renewals``); the latest is the time of the last round. () = no round yet."""
    snapshot_at_ms: int = 0
    """When the history got the leases last."""
    recorded_at_ms: int = 0
    """When the history got the state last, for replays."""

    @property
    def last_round_ms(self) -> int:
        """The time of the last round; 0: there was none."""
        return int(self.renewed_at_ms.max(initial=0))

    def check(self) -> None:
        """Assert the invariants that the step relies on; tests call it after every step.

        Raises:
            AssertionError: an invariant does not hold; the message names it.
        """
        groups, brokers, leases = self.groups, self.brokers, self.leases
        d, n = len(leases.dimensions), len(leases)
        assert list(leases.dimensions) == sorted({*leases.dimensions}), "dimensions ascend"
        assert (np.diff(groups.ids) > 0).all(), "group ids ascend"
        assert len(groups.names) == len(groups.ids), "each group has a name"
        assert ((groups.parent >= -1) & (groups.parent < len(groups))).all(), "parents exist"
        assert len({*brokers.names}) == len(brokers), "broker names differ"
        assert ((leases.group >= 0) & (leases.group < len(groups))).all(), "leases have groups"
        assert ((leases.broker >= 0) & (leases.broker < len(brokers))).all(), "leases have brokers"
        pair = leases.group * max(len(brokers), 1) + leases.broker
        assert (np.diff(pair) > 0).all(), "leases are sorted by group, then broker, each pair once"
        names = ("usage", "limit", "previous_limit", "max_in_force")
        all_rates = {
            "demand": leases.estimates.demand,
            **{each: getattr(leases, each) for each in names},
        }
        for name, rates in all_rates.items():
            assert rates.shape == (d, n), f"{name} has shape {rates.shape}, not {(d, n)}"
            assert (rates >= 0.0).all(), f"{name} is at least 0"
        assert np.isfinite(leases.usage).all(), "usage is finite"
        assert (leases.max_in_force >= leases.limit)[:, leases.enforced].all(), (
            "max_in_force is too low"
        )
        distrust = leases.estimates.distrust
        assert ((distrust >= 0) & (distrust <= 255)).all(), "distrust fits a byte"
        observed = self.observed
        pair = np.stack([observed.group_id, observed.broker])
        assert (np.lexsort(pair[::-1]) == np.arange(len(observed))).all(), "observed pairs ascend"
        assert np.isfinite(observed.units).all(), "observed usage is finite"
        assert (self.overuse.debt >= 0.0).all(), "debts are at least 0"
        young = leases.issued_seq >= 0
        assert (young == (leases.issued_at_ms >= 0)).all(), "young limits have a seq and a time"
        assert leases.has_limit[young].all(), "young limits were issued"
