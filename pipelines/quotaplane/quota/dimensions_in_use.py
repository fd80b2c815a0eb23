"""Which dimensions a shard's rows have, and totals made of their parts.

A dimension beyond the first few costs nothing where nobody limits anybody in it: rows do not have
it then. It comes with the first quota or ceiling, and goes when the last broker was told that it is
no longer limited.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from quotaplane.model import BASIC, LIMIT_COLUMNS, PARTS, FloatArray, IntArray
from quotaplane.quota.groups import Groups
from quotaplane.quota.leases import Leases


def in_use(groups: Groups, rows: Leases) -> tuple[int, ...]:
    """The dimensions that rows must have: the basic ones, and where somebody is or was limited.

    >>> from quotaplane.quota.state import ShardState
    >>> state = ShardState()
    >>> in_use(state.groups, state.leases)
    (0, 1, 2, 3)
    """
    # Of a template nothing is divided: what only it limits no row needs.
    divided = ~groups.template
    by_group = (np.isfinite(groups.quota) & divided).any(axis=1)
    overrides = groups.overrides
    by_broker = (np.isfinite(overrides.ceiling) & divided[overrides.group]).any(axis=1)
    needed = {*range(BASIC), *np.flatnonzero(by_group | by_broker).tolist()}
    for place, dimension in enumerate(rows.dimensions[BASIC:], start=BASIC):
        if np.isfinite(rows.limit[place]).any():
            needed.add(dimension)
    return tuple(sorted(needed))


def reported_limits(entries: pa.Table) -> set[int]:
    """The dimensions beyond the basic ones in which brokers say that they are limited."""
    return {
        dimension
        for dimension, name in enumerate(LIMIT_COLUMNS)
        if dimension >= BASIC
        and name in entries.column_names
        and np.isfinite(entries[name].to_numpy()).any()
    }


def with_totals(
    usage: FloatArray, throttled: FloatArray, rows: Leases, at: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Usage and throttled (d, m) of m entries, with totals where the reports gave none.

    A total follows as soon as one of its parts was told; the other one may be unchanged: then it
    goes on with what was used and refused of it last. What was throttled of a total is known where
    it is of both. NaN: unchanged, or not told.

    Args:
        usage: as reported.
        throttled: as reported.
        rows: before these reports; their ``dimensions`` are the d.
        at: (m,) the entries' rows, ascending; those of one row in the order they were made.
    """
    totals = [
        (place, list(PARTS[dimension]))
        for place, dimension in enumerate(rows.dimensions)
        if dimension in PARTS
    ]
    if not totals:
        return usage, throttled
    usage, throttled = usage.copy(), throttled.copy()
    for place, parts in totals:
        changed, told = ~np.isnan(usage[parts]), ~np.isnan(throttled[parts])
        known = _last_known(usage[parts], rows.usage[parts], at)
        follows = np.isnan(usage[place]) & changed.any(axis=0)
        usage[place] = np.where(follows, known.sum(axis=0), usage[place])
        follows = np.isnan(throttled[place]) & told.any(axis=0)
        if not follows.any():
            continue
        news = np.where(changed & ~told, np.inf, throttled[parts])
        refused = _last_known(news, _refused(rows, parts), at).sum(axis=0)
        throttled[place] = np.where(follows & np.isfinite(refused), refused, throttled[place])
    return usage, throttled


def _refused(rows: Leases, parts: list[int]) -> FloatArray:
    """(k, n): what is refused per second of each of the k ``parts`` now; inf: nobody knows."""
    usage, demand, doubt = (of[parts] for of in (rows.usage, rows.demand, rows.distrust))
    # A demand that rests on no claim is above what was used last by its noise only.
    claimed = (doubt % 2 == 1) | np.isinf(demand)
    return np.where(claimed, np.maximum(demand - usage, 0.0), 0.0)


def _last_known(said: FloatArray, before: FloatArray, at: IntArray) -> FloatArray:
    """(k, m): what was ``said`` of the rows ``at``, or where that is NaN, last before it.

    ``before`` (k, n): what was known of the rows.
    """
    if not np.isnan(said).any():
        return said
    known = np.take_along_axis(said, last_told(said, at), axis=1)
    return np.where(np.isnan(known), before[:, at], known)


def last_told(said: FloatArray, at: IntArray) -> IntArray:
    """(k, m): for each entry, where the last value that is not NaN up to it is, in the same row.

    Where there is none: the place of the row's first entry. Entries are sorted by row.

    >>> last_told(np.array([[1.0, np.nan, np.nan, 4.0, np.nan]]), np.array([0, 0, 1, 1, 1]))
    array([[0, 0, 2, 3, 3]])
    """
    places = np.arange(len(at))
    first = np.where(np.diff(at, prepend=-1) != 0, places, 0)
    return np.maximum.accumulate(np.where(np.isnan(said), first, places), axis=1)
