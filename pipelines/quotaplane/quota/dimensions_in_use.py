"""The dimensions that a shard's leases have; and totals, computed from their parts.

Leases always have the first four dimensions. They get another one with the first quota or ceiling
in it, and lose it once an unlimited rate was issued to the last broker. So a dimension that nobody
limits costs nothing.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from quotaplane.model import BASIC, LIMIT_COLUMNS, PARTS, FloatArray, IntArray
from quotaplane.quota.groups import Groups
from quotaplane.quota.leases import Leases


def in_use(groups: Groups, leases: Leases) -> tuple[int, ...]:
    """The dimensions that leases must have: the basic ones, and any in which a broker has a limit.

    >>> from quotaplane.quota.state import ShardState
    >>> state = ShardState()
    >>> in_use(state.groups, state.leases)
    (0, 1, 2, 3)
    """
    # A template's quota is never divided, so no lease needs a dimension that only it limits.
    divided = ~groups.template
    by_group = (np.isfinite(groups.quota) & divided).any(axis=1)
    overrides = groups.overrides
    by_broker = (np.isfinite(overrides.ceiling) & divided[overrides.group]).any(axis=1)
    needed = {*range(BASIC), *np.flatnonzero(by_group | by_broker).tolist()}
    for index, dimension in enumerate(leases.dimensions[BASIC:], start=BASIC):
        if np.isfinite(leases.limit[index]).any():
            needed.add(dimension)
    return tuple(sorted(needed))


def reported_limits(entries: pa.Table) -> set[int]:
    """The dimensions beyond the basic ones in which brokers report a limit."""
    return {
        dimension
        for dimension, name in enumerate(LIMIT_COLUMNS)
        if dimension >= BASIC
        and name in entries.column_names
        and np.isfinite(entries[name].to_numpy()).any()
    }


def with_totals(
    usage: FloatArray, throttled: FloatArray, leases: Leases, lease_index: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Usage and throttled (d, m) of m entries, with totals where the reports have none.

    A total is the sum of its parts as soon as one part is reported; a part that is "unchanged"
    counts with its last usage and refusals. What was throttled of a total is known if it is known
    of all parts. NaN: unchanged, or not reported.

    Args:
        usage: as reported.
        throttled: as reported.
        leases: before these reports; their ``dimensions`` are the d.
        lease_index: (m,) each entry's lease, ascending; entries of one lease are sorted by time.
    """
    totals = [
        (index, list(PARTS[dimension]))
        for index, dimension in enumerate(leases.dimensions)
        if dimension in PARTS
    ]
    if not totals:
        return usage, throttled
    usage, throttled = usage.copy(), throttled.copy()
    for index, parts in totals:
        changed, counted = ~np.isnan(usage[parts]), ~np.isnan(throttled[parts])
        used = _last_values(usage[parts], leases.usage[parts], lease_index)
        missing = np.isnan(usage[index]) & changed.any(axis=0)
        usage[index] = np.where(missing, used.sum(axis=0), usage[index])
        missing = np.isnan(throttled[index]) & counted.any(axis=0)
        if not missing.any():
            continue
        reported = np.where(changed & ~counted, np.inf, throttled[parts])
        refused = _last_values(reported, _refused(leases, parts), lease_index).sum(axis=0)
        throttled[index] = np.where(missing & np.isfinite(refused), refused, throttled[index])
    return usage, throttled


def _refused(leases: Leases, parts: list[int]) -> FloatArray:
    """(k, n) what is refused per second of each of the k ``parts``; inf: not known."""
    usage, demand, distrust = (
        rates[parts] for rates in (leases.usage, leases.track.demand, leases.track.distrust)
    )
    # Without a claim the demand differs from the last usage by noise only, not by refusals.
    claimed = (distrust % 2 == 1) | np.isinf(demand)
    return np.where(claimed, np.maximum(demand - usage, 0.0), 0.0)


def _last_values(values: FloatArray, before: FloatArray, lease_index: IntArray) -> FloatArray:
    """(k, m) the ``values`` of entries; NaN is replaced by the last value of the same lease.

    ``before`` (k, n): the values that the leases had before.
    """
    if not np.isnan(values).any():
        return values
    last = np.take_along_axis(values, last_reported(values, lease_index), axis=1)
    return np.where(np.isnan(last), before[:, lease_index], last)


def last_reported(values: FloatArray, lease_index: IntArray) -> IntArray:
    """(k, m) for each entry, the position of the last value up to it that is not NaN.

    Only entries of the same lease count; without any value it is the position of the first of
    these. Entries are sorted by lease.

    >>> lease_index = np.array([0, 0, 1, 1, 1])
    >>> last_reported(np.array([[1.0, np.nan, np.nan, 4.0, np.nan]]), lease_index)
    array([[0, 0, 2, 3, 3]])
    """
    positions = np.arange(len(lease_index))
    first = np.where(np.diff(lease_index, prepend=-1) != 0, positions, 0)
    return np.maximum.accumulate(np.where(np.isnan(values), first, positions), axis=1)
