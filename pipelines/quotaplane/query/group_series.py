"""One group over time: usage, limits, demand and quota in equal buckets, and why limits changed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from quotaplane.errors import InputError
from quotaplane.model import DIMENSIONS, FloatArray, IntArray
from quotaplane.query.buckets import BucketedSpans, Grid, Spans, grid_of, of_reports, until_next
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.query.sql_functions import limit_reason
from quotaplane.query.views import HOLD_MS, usage_since

MOST_BROKERS: Final = 20
"""The others are one line together."""
MOST_REASONS: Final = 500

_ARRIVES: Final = timedelta(hours=1)
"""Rounds up to this time after the period may have reports about it."""

# Not from the views: those read the columns of all dimensions.
_USAGE: Final = """
SELECT
  broker, unix_millis(reported_at) AS at_ms, coalesce(window_ms, 0) AS window_ms, hold_ms,
  used_per_s, throttled_per_s
FROM (
  SELECT
    broker, coalesce(published_at, round_at) AS reported_at, window_ms,
    {hold_ms} AS hold_ms,
    last_value({dimension}_per_s) IGNORE NULLS OVER (
      PARTITION BY broker ORDER BY coalesce(published_at, round_at), epoch, seq
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS used_per_s,
    throttled_{dimension}_per_s AS throttled_per_s
  FROM usage
  WHERE resource_group = :resource_group AND round_at >= :begin
) AS filled
WHERE used_per_s IS NOT NULL
ORDER BY broker, at_ms
"""

_LIMITS: Final = """
SELECT
  broker, unix_millis(round_at) AS at_ms,
  CASE WHEN ended OR {dimension}_per_s IS NULL THEN CAST('Infinity' AS DOUBLE)
    ELSE {dimension}_per_s END AS limit_per_s,
  demand_{dimension}_per_s AS demand_per_s, quota_{dimension}_per_s AS quota_per_s,
  coalesce({dimension}_reason_code, -1) AS reason_code,
  {dimension}_reason_numbers IS NOT NULL AS has_numbers,
  coalesce({dimension}_reason_numbers, CAST([] AS DOUBLE[])) AS reason_numbers,
  coalesce(ended_because, '') AS ended_because
FROM limits
WHERE resource_group = :resource_group AND round_at <= :until
ORDER BY broker, epoch, seq
"""

_QUOTAS: Final = """
SELECT version, unix_millis(changed_at) AS at_ms, created, deleted, from_per_s, to_per_s
FROM quota_changes
WHERE resource_group = :resource_group AND dimension = :dimension
ORDER BY version
"""
_QUOTA_NOW: Final = """
SELECT quota_per_s FROM quotas
WHERE resource_group = :resource_group AND dimension = :dimension
"""


def group_series(
    engine: DuckDBEngine,
    group: str,
    dimension: str,
    since: datetime,
    until: datetime,
    points: int,
) -> dict[str, Any]:
    """A group's brokers over time; units are those of the dimension per second.

    Args:
        engine: of the history.
        group: the resource group; of a group in a tree, its own brokers.
        dimension: one of ``model.DIMENSIONS``.
        since: the period's begin.
        until: its end, later than ``since``.
        points: the most buckets.

    Returns:
        A dict: ``step_ms``, ``begin_ms``, ``times`` (T begins of buckets), ``quota_per_s`` (T),
        ``brokers_total`` and ``brokers``: for each a dict of ``broker`` and lists of T:
        ``used_per_s``, ``peak_per_s``, ``limit_per_s``, ``demand_per_s``, ``throttled_per_s``.
        Those that used most come first; after ``MOST_BROKERS`` the sums of all others, whose
        ``broker`` is None. ``reasons`` has the newest changes of limits, ``reasons_total`` how many
        there are. Means over the part of a bucket in which something is known; NaN: nothing is, or
        it is unlimited.

    Raises:
        InputError: there is no such dimension.
        HistoryError: the history can't be read.
    """
    if dimension not in DIMENSIONS:
        raise InputError(f"dimension {dimension!r}: must be one of {', '.join(DIMENSIONS)}")
    grid, end_ms = grid_of(_ms(since), _ms(until), points), _ms(until)
    asked = {"resource_group": group, "dimension": dimension}
    begin = usage_since(since)
    (usage,) = engine.columns(
        [_USAGE.replace("{dimension}", dimension).replace("{hold_ms}", HOLD_MS)],
        {**asked, "begin": begin},
        until=until + _ARRIVES,
        read_since=begin,
        group=group,
    )
    limits, changes = engine.columns(
        [_LIMITS.replace("{dimension}", dimension), _QUOTAS],
        {**asked, "until": until},
        until=until,
        group=group,
    )
    brokers, place = _numbered(usage["broker"], limits["broker"])
    of_usage, of_limits = place[: len(usage["broker"])], place[len(usage["broker"]) :]
    used = BucketedSpans(_reported(usage, of_usage, end_ms), len(brokers), grid)
    limited = BucketedSpans(
        until_next(of_limits, _whole(limits["at_ms"]), end_ms), len(brokers), grid
    )
    rates = {
        "used_per_s": used.means(usage["used_per_s"]),
        "peak_per_s": used.peaks(usage["used_per_s"]),
        "throttled_per_s": used.means(usage["throttled_per_s"]),
        "limit_per_s": limited.means(limits["limit_per_s"]),
        "demand_per_s": limited.means(limits["demand_per_s"]),
    }
    changed = _changed(limits, of_limits, _ms(since))
    return {
        "step_ms": grid.step_ms,
        "begin_ms": grid.begin_ms,
        "times": grid.times_ms().tolist(),
        "quota_per_s": _quota(engine, asked, changes, grid, end_ms).tolist(),
        "brokers_total": len(brokers),
        "brokers": _lines(brokers, rates),
        "reasons": _reasons(limits, changed),
        "reasons_total": len(changed),
    }


def _lines(brokers: npt.NDArray[Any], rates: Mapping[str, FloatArray]) -> list[dict[str, Any]]:
    """A dict per line of the answer."""
    by_use = np.argsort(-np.nansum(rates["used_per_s"], axis=1), kind="stable")
    shown, others = by_use[:MOST_BROKERS], by_use[MOST_BROKERS:]
    lines = [
        {"broker": broker, **{name: of_all[row].tolist() for name, of_all in rates.items()}}
        for broker, row in zip(brokers[shown].tolist(), shown.tolist(), strict=True)
    ]
    if len(others):
        sums = {
            name: np.where(
                np.isfinite(of_all[others]).any(axis=0), np.nansum(of_all[others], axis=0), np.nan
            ).tolist()
            for name, of_all in rates.items()
        }
        lines.append({"broker": None, **sums})
    return lines


def _numbered(*names: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], IntArray]:
    """The names in order, and for each of the given ones which of them it is."""
    found, place = np.unique(np.concatenate(names).astype(str), return_inverse=True)
    return found, place.astype(np.int64)


def _reported(usage: Mapping[str, npt.NDArray[Any]], row: IntArray, end_ms: int) -> Spans:
    """From when to when each rate holds: as in the view ``usage_amounts``."""
    at_ms, window_ms, hold_ms = (_whole(usage[n]) for n in ("at_ms", "window_ms", "hold_ms"))
    return of_reports(row, at_ms, window_ms, hold_ms, end_ms)


def _quota(
    engine: DuckDBEngine,
    asked: Mapping[str, Any],
    changes: Mapping[str, npt.NDArray[Any]],
    grid: Grid,
    end_ms: int,
) -> FloatArray:
    """(T,) the group's quota; NaN: unlimited, or there was no group."""
    at = _whole(changes["at_ms"])
    rates = np.where(_truth(changes["deleted"]), np.nan, changes["to_per_s"])
    if not len(at):  # longer ago than the table's log goes back
        now = engine.ask(_QUOTA_NOW, asked, group=asked["resource_group"]).rows
        at, rates = _whole([grid.begin_ms]), np.array([now[0][0] if now else np.nan], np.float64)
    elif not _truth(changes["created"])[0]:
        at = np.concatenate([[min(grid.begin_ms, int(at[0]))], at])
        rates = np.concatenate([changes["from_per_s"][:1], rates])
    spans = until_next(np.zeros(len(at), np.int64), at, end_ms)
    quota: FloatArray = BucketedSpans(spans, 1, grid).means(rates)[0]
    return quota


def _whole(values: Any) -> IntArray:
    return np.asarray(values).astype(np.int64)


def _truth(column: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    return np.asarray(column, np.bool_)


def _changed(limits: Mapping[str, npt.NDArray[Any]], series: IntArray, since_ms: int) -> IntArray:
    """The rows, from some time on, whose limit or reason is another than the broker's before."""
    limit, code = limits["limit_per_s"], limits["reason_code"]
    if not len(series):
        return np.zeros(0, np.int64)
    first = np.append(True, series[1:] != series[:-1])
    differs = np.append(True, (limit[1:] != limit[:-1]) | (code[1:] != code[:-1]))
    changed = np.where(first, np.isfinite(limit), differs)
    return np.flatnonzero(changed & (limits["at_ms"] >= since_ms))


def _reasons(limits: Mapping[str, npt.NDArray[Any]], changed: IntArray) -> list[dict[str, Any]]:
    """The newest of the changes, with their reasons in words."""
    order = np.argsort(-limits["at_ms"][changed], kind="stable")
    newest = changed[order[:MOST_REASONS]]
    chosen = {name: column[newest].tolist() for name, column in limits.items()}
    return [
        {
            "at_ms": row["at_ms"],
            "broker": row["broker"],
            "limit_per_s": row["limit_per_s"],
            "reason": limit_reason(
                row["ended_because"] or None,
                None if row["reason_code"] < 0 else row["reason_code"],
                list(row["reason_numbers"]) if row["has_numbers"] else None,
                *(_or_none(row[name]) for name in ("limit_per_s", "demand_per_s", "quota_per_s")),
            ),
        }
        for row in (
            dict(zip(chosen, values, strict=True)) for values in zip(*chosen.values(), strict=True)
        )
    ]


def _or_none(rate: float) -> float | None:
    """None: unlimited, or not known."""
    return rate if np.isfinite(rate) else None


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
