"""Broker terms: the weight, priority, floor and ceiling of each lease, from a group's overrides."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrow import indices_of
from quotaplane.model import FloatArray, IntArray
from quotaplane.quota.shard import Shard


class LeaseTerms(NamedTuple):
    """The terms on which n leases share quotas; None: all have the default."""

    weight: FloatArray | None = None
    """(n,) default 1."""
    priority: IntArray | None = None
    """(n,) default 0."""
    floor: FloatArray | None = None
    """(d, n) per second; default 0."""
    ceiling: FloatArray | None = None
    """(d, n) per second; default +inf."""


def lease_terms(shard: Shard) -> LeaseTerms:
    """The terms of each lease; only ``group`` and ``broker`` of the leases are read.

    Terms of a named broker override those of all brokers ("*"), field by field and dimension by
    dimension. A floor above its ceiling is lowered to it.

    >>> from quotaplane.quota.group_changes import change_groups
    >>> from quotaplane.quota.state import ShardState
    >>> from quotaplane.quota.leases import fresh_leases
    >>> change = {"group": ["g"], "group_id": [7], "deleted": [False], "version": [1]}
    >>> change["brokers"] = ['{"b1": {"weight": 2}, "*": {"weight": 3}}']
    >>> groups = change_groups(ShardState(), pa.table(change)).groups
    >>> zeros = np.zeros(2, np.int64)
    >>> from quotaplane.quota.brokers import Brokers
    >>> brokers = Brokers(("b0", "b1"), *[zeros] * 4, zeros > 0, zeros > 0, *[zeros] * 4)
    >>> terms = lease_terms(Shard(groups, brokers, fresh_leases(zeros, np.array([0, 1]))))
    >>> terms.weight.tolist(), terms.ceiling
    ([3.0, 2.0], None)
    """
    overrides = shard.groups.overrides
    if not len(overrides):
        return LeaseTerms()
    spread = _Spread(shard)
    weight = spread(overrides.weight, 1.0)
    priority = spread(overrides.priority, 0.0)
    floor = spread.by_dimension(overrides.floor, 0.0)
    ceiling = spread.by_dimension(overrides.ceiling, np.inf)
    if floor is not None and ceiling is not None:
        floor = np.minimum(floor, ceiling)
    return LeaseTerms(
        weight, None if priority is None else priority.astype(np.int64), floor, ceiling
    )


class _Spread:
    """Spreads values of overrides (NaN: not given) over the leases that they apply to."""

    def __init__(self, shard: Shard) -> None:
        self._overrides = shard.groups.overrides
        self._groups, self._leases = len(shard.groups), shard.leases
        self._for_all = np.asarray(pc.equal(self._overrides.broker, "").to_numpy(False))
        broker = indices_of(self._overrides.broker, pa.array(shard.brokers.names, pa.string()))
        index = shard.find_leases(self._overrides.group, np.where(self._for_all, -1, broker))
        self._named = np.flatnonzero(index >= 0)
        self._lease_index = index[self._named]

    def __call__(self, values: FloatArray, default: float) -> FloatArray | None:
        """(n,) from (overrides,); None: no value is given."""
        given = ~np.isnan(values)
        if not given.any():
            return None
        for_all = given & self._for_all
        if for_all.any():
            by_group = np.full(self._groups, default)
            by_group[self._overrides.group[for_all]] = values[for_all]
            spread = by_group[self._leases.group]
        else:
            spread = np.full(len(self._leases), default)
        use = given[self._named]
        spread[self._lease_index[use]] = values[self._named[use]]
        return spread

    def by_dimension(self, values: FloatArray, default: float) -> FloatArray | None:
        """(d, n) from (d, overrides); None: no value is given."""
        vectors = [self(vector, default) for vector in values]
        if all(vector is None for vector in vectors):
            return None
        n = len(self._leases)
        return np.stack([np.full(n, default) if v is None else v for v in vectors])
