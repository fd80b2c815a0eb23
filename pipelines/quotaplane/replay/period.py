"""The recorded usage and limits of a group's tree in a period, put together in buckets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.errors import InputError
from quotaplane.model import DIMENSIONS, PARTS, FloatArray, IntArray
from quotaplane.query.buckets import BucketedSpans, Grid, grid_of, of_reports, until_next
from quotaplane.query.duckdb_engine import DuckDBEngine

_D: Final = len(DIMENSIONS)
MOST_CELLS: Final = 500_000
"""Most brokers of all groups of a tree, times points: 30 MB for each four dimensions."""

_USAGE: Final = """
SELECT resource_group, broker, dimension, unix_millis(reported_at) AS at_ms,
  coalesce(window_ms, 0) AS window_ms, hold_ms, used_per_s, throttled_per_s
FROM usage_values
WHERE list_contains(:groups, resource_group) AND unix_millis(reported_at) - 60000 <= :end_ms
"""
_LIMITS: Final = """
SELECT resource_group, broker, dimension, unix_millis(round_at) AS at_ms, epoch, seq, limit_per_s,
  demand_per_s
FROM limit_values WHERE list_contains(:groups, resource_group)
"""
_QUOTAS: Final = """
SELECT resource_group, dimension, unix_millis(changed_at) AS at_ms, version, created, deleted,
  from_per_s, to_per_s
FROM quota_changes WHERE list_contains(:groups, resource_group)
"""

Columns = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Period:
    """g groups of a tree, n pairs of a group and a broker, T buckets, all D dimensions.

    Rates are per second, means over a bucket. Pairs are sorted by group, then broker.
    """

    since_ms: int
    until_ms: int
    grid: Grid
    brokers: tuple[str, ...]
    group: IntArray
    """(n,) index of the group."""
    broker: IntArray
    """(n,) index of the broker."""
    quota: FloatArray
    """(D, g, T) inf: unlimited."""
    used: FloatArray
    """(D, n, T) NaN: nothing was reported."""
    throttled: FloatArray
    """(D, n, T) refused or delayed; NaN: not known."""
    limit: FloatArray
    """(D, n, T) inf: unlimited, or none is recorded."""
    demand: FloatArray
    """(D, n, T) that the law was given with the limit; inf: not known, the broker is saturated."""
    used_ms: FloatArray
    """(n, T) milliseconds for which usage is known."""

    @property
    def cells(self) -> int:
        """Size in memory: number of pairs times buckets."""
        return max(len(self.group), 1) * self.grid.count


def read_period(
    engine: DuckDBEngine,
    groups: list[str],
    quota: FloatArray,
    since: datetime,
    until: datetime,
    points: int,
) -> Period:
    """Read the records of the groups; an empty period if there are none.

    Args:
        engine: of the history.
        groups: (g,) names.
        quota: (D, g) as they are now; inf: unlimited.
        since: when the period begins.
        until: when it ends.
        points: most buckets.

    Raises:
        InputError: the groups have too many brokers for this number of points.
        HistoryError: the history can't be read.
    """
    since_ms, until_ms = (int(moment.timestamp() * 1000) for moment in (since, until))
    grid = grid_of(since_ms, until_ms, points)
    begin = datetime.fromtimestamp(grid.begin_ms / 1000, tz=timezone.utc)
    given = {"groups": groups, "end_ms": until_ms}
    usage, limits = engine.columns((_USAGE, _LIMITS), given, since=begin)
    (changes,) = engine.columns((_QUOTAS,), given)
    return period_of(groups, quota, (usage, limits, changes), (since_ms, until_ms), grid)


def period_of(
    groups: list[str],
    quota: FloatArray,
    columns: tuple[Columns, Columns, Columns],
    bounds_ms: tuple[int, int],
    grid: Grid,
) -> Period:
    """Make a period of rows of usage, limits and changes of quotas; see ``read_period``.

    Raises:
        InputError: the groups have too many brokers for this number of points.
    """
    usage, limits, changes = columns
    since_ms, until_ms = bounds_ms
    names = pa.array(groups, pa.string())
    broker_names = pc.unique(pa.array(usage["broker"], pa.string())).sort()
    count = len(broker_names)
    pairs = np.unique(
        _places(names, usage, "resource_group") * count + _brokers(broker_names, usage)
    )
    n = len(pairs)
    if n * grid.count > MOST_CELLS:
        raise InputError(
            f"the tree of the group has {n} pairs of a group and a broker: ask for at most "
            f"{max(MOST_CELLS // n, 1)} points"
        )

    def rows(table: Columns) -> IntArray:
        """The row of each line: dimension and pair; -1: a pair that reported nothing."""
        key = _places(names, table, "resource_group") * count + _brokers(broker_names, table)
        at = np.searchsorted(pairs, key)
        found = np.minimum(at, max(n - 1, 0))
        known = (_brokers(broker_names, table) >= 0) & (n > 0)
        if n:
            known &= pairs[found] == key
        return np.where(known, _dimension(table) * n + found, -1)

    used, throttled, used_ms = _usage(usage, rows(usage), n, grid, bounds_ms)
    limit, demand = _limits(limits, rows(limits), n, grid, until_ms)
    return Period(
        since_ms=since_ms,
        until_ms=until_ms,
        grid=grid,
        brokers=tuple(broker_names.to_pylist()),
        group=pairs // max(count, 1),
        broker=pairs % max(count, 1),
        quota=_quotas(changes, names, quota, grid),
        used=used,
        throttled=throttled,
        limit=limit,
        demand=demand,
        used_ms=used_ms,
    )


def _places(names: pa.Array, table: Columns, column: str) -> IntArray:
    found = pc.index_in(pa.array(table[column], pa.string()), value_set=names)
    places: IntArray = found.fill_null(-1).to_numpy().astype(np.int64)
    return places


def _brokers(names: pa.Array, table: Columns) -> IntArray:
    return _places(names, table, "broker")


def _dimension(table: Columns) -> IntArray:
    return _places(pa.array(DIMENSIONS, pa.string()), table, "dimension")


def _usage(
    usage: Columns, row: IntArray, n: int, grid: Grid, bounds_ms: tuple[int, int]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    since_ms, until_ms = bounds_ms
    at_ms = usage["at_ms"].astype(np.int64)
    order = np.lexsort((at_ms, row))
    row, at_ms = row[order], at_ms[order]
    window_ms, hold_ms = (usage[n].astype(np.int64)[order] for n in ("window_ms", "hold_ms"))
    spans = of_reports(row, at_ms, window_ms, hold_ms, until_ms)
    spans = replace(
        spans, begin_ms=np.clip(spans.begin_ms, since_ms, np.maximum(spans.end_ms, since_ms))
    )
    binned = BucketedSpans(spans, _D * n, grid)
    shape = (_D, n, grid.count)
    used = binned.means(usage["used_per_s"][order].astype(np.float64)).reshape(shape)
    throttled = binned.means(usage["throttled_per_s"][order].astype(np.float64)).reshape(shape)
    used_ms = binned.covered_ms().reshape(shape).max(axis=0, initial=0.0)
    for total, parts in PARTS.items():  # a total without a limit is not recorded
        used[total] = np.where(np.isnan(used[total]), used[list(parts)].sum(axis=0), used[total])
    return used, throttled, used_ms


def _limits(
    limits: Columns, row: IntArray, n: int, grid: Grid, until_ms: int
) -> tuple[FloatArray, FloatArray]:
    at_ms = limits["at_ms"].astype(np.int64)
    keep = np.flatnonzero(row >= 0)
    order = keep[np.lexsort((limits["seq"][keep], limits["epoch"][keep], at_ms[keep], row[keep]))]
    spans = until_next(row[order], at_ms[order], until_ms)
    binned = BucketedSpans(spans, _D * n, grid)
    shape = (_D, n, grid.count)
    rates = limits["limit_per_s"][order].astype(np.float64)
    limit = binned.means(np.where(np.isnan(rates), np.inf, rates)).reshape(shape)
    demand = limits["demand_per_s"][order].astype(np.float64)
    demand = binned.means(np.where(np.isnan(demand), np.inf, demand)).reshape(shape)
    return tuple(np.where(np.isnan(each), np.inf, each) for each in (limit, demand))  # type: ignore[return-value]


def _quotas(changes: Columns, names: pa.Array, quota: FloatArray, grid: Grid) -> FloatArray:
    """(D, g, T) the quotas over time; without recorded changes those of now (D, g)."""
    g = len(names)
    place = _places(names, changes, "resource_group")
    row = _dimension(changes) * g + place
    at_ms = changes["at_ms"].astype(np.int64)
    order = np.lexsort((changes["version"], at_ms, row))
    row, at_ms = row[order], at_ms[order]
    before, after = (
        np.where(np.isnan(rates), np.inf, rates)
        for rates in (
            changes[name][order].astype(np.float64) for name in ("from_per_s", "to_per_s")
        )
    )
    created = changes["created"][order].astype(bool)
    # Before a group was created, its first quota counts: the job may have it from another table.
    first = np.ones(len(row), np.bool_)
    first[1:] = row[1:] != row[:-1]
    earliest = np.where(created, after, before)[first]
    rows = np.concatenate([row[first], row])
    begin_ms = np.concatenate([np.minimum(at_ms[first], grid.begin_ms) - 1, at_ms])
    values = np.concatenate([earliest, after])
    order = np.lexsort((begin_ms, rows))
    spans = until_next(rows[order], begin_ms[order], grid.end_ms)
    means = BucketedSpans(spans, _D * g, grid).means(values[order]).reshape(_D, g, grid.count)
    return np.where(np.isnan(means), quota[:, :, None], means)
