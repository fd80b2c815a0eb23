"""On what terms each broker shares its group's quota: overrides spread over a shard's rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import FloatArray, IntArray
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.groups import Groups, Overrides
from quotaplane.quota.leases import Leases


class LeaseTerms(NamedTuple):
    """Of n rows: ``weight`` and ``priority`` (n,), ``floor`` and ``ceiling`` (d, n) per second.

    None is the default of all rows: 1, 0, 0 and no ceiling (+inf).
    """

    weight: FloatArray | None = None
    priority: IntArray | None = None
    floor: FloatArray | None = None
    ceiling: FloatArray | None = None


def lease_terms(groups: Groups, brokers: Brokers, rows: Leases) -> LeaseTerms:
    """The terms of each row, of which only ``group`` and ``broker`` are read, in their order.

    What is given for the named broker goes before what is given for all ("*"), field by field and
    dimension by dimension. A floor is never above its ceiling.

    >>> from quotaplane.quota.group_changes import change_groups
    >>> from quotaplane.quota.state import ShardState
    >>> from quotaplane.quota.leases import fresh_leases
    >>> change = {"group": ["g"], "group_id": [7], "deleted": [False], "version": [1]}
    >>> change["brokers"] = ['{"b1": {"weight": 2}, "*": {"weight": 3}}']
    >>> groups = change_groups(ShardState(), pa.table(change)).groups
    >>> no = np.zeros(2, np.int64)
    >>> brokers = Brokers(("b0", "b1"), no, no, no, no > 0, no > 0)
    >>> terms = lease_terms(groups, brokers, fresh_leases(group=no, broker=np.array([0, 1])))
    >>> terms.weight.tolist(), terms.ceiling
    ([3.0, 2.0], None)
    """
    overrides = groups.overrides
    if not len(overrides):
        return LeaseTerms()
    spread = _Spread(groups, brokers, rows)
    weight = spread(overrides.weight, 1.0)
    priority = spread(overrides.priority, 0.0)
    floor = spread.each(overrides.floor, 0.0)
    ceiling = spread.each(overrides.ceiling, np.inf)
    if floor is not None and ceiling is not None:
        floor = np.minimum(floor, ceiling)
    return LeaseTerms(
        weight, None if priority is None else priority.astype(np.int64), floor, ceiling
    )


class _Spread:
    """Values of overrides (NaN: not given) to values of rows."""

    def __init__(self, groups: Groups, brokers: Brokers, rows: Leases) -> None:
        self._overrides: Overrides = groups.overrides
        self._groups, self._rows = len(groups), rows
        self._for_all = np.asarray(pc.equal(self._overrides.broker, "").to_numpy(False))
        names = pa.array(brokers.names, pa.string())
        broker = pc.index_in(self._overrides.broker, value_set=names).fill_null(-1).to_numpy()
        named = np.flatnonzero(~self._for_all & (broker >= 0))
        # Leases are sorted by group, then broker: so are these keys.
        keys = rows.group * len(names) + rows.broker
        wanted = self._overrides.group[named] * len(names) + broker[named]
        row = np.searchsorted(keys, wanted)
        there = np.zeros(len(named), bool)
        inside = row < len(keys)
        there[inside] = keys[row[inside]] == wanted[inside]
        self._named, self._row = named[there], row[there]

    def __call__(self, values: FloatArray, default: float) -> FloatArray | None:
        given = ~np.isnan(values)
        if not given.any():
            return None
        for_all = given & self._for_all
        if for_all.any():
            by_group = np.full(self._groups, default)
            by_group[self._overrides.group[for_all]] = values[for_all]
            spread = by_group[self._rows.group]
        else:
            spread = np.full(len(self._rows), default)
        use = given[self._named]
        spread[self._row[use]] = values[self._named[use]]
        return spread

    def each(self, values: FloatArray, default: float) -> FloatArray | None:
        """The same by dimension: (d, overrides) to (d, rows)."""
        by_dimension = [self(one, default) for one in values]
        if all(one is None for one in by_dimension):
            return None
        n = len(self._rows)
        return np.stack([np.full(n, default) if o is None else o for o in by_dimension])
