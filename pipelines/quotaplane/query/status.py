"""How things stand now: the job, its groups beside their quotas, and its brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.groups.hierarchy import parents_of, subtree_totals
from quotaplane.model import (
    DEMAND_COLUMNS,
    DIMENSIONS,
    LIMIT_COLUMNS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    USED_COLUMNS,
    FloatArray,
)
from quotaplane.query.duckdb_engine import DuckDBEngine

RECENT: Final = timedelta(minutes=1)
"""Reports and refused use are counted over this time."""

_JOB: Final = """
SELECT epoch, seq, round_at, duration_ms, previous_duration_ms, lag_ms, brokers_live, law
FROM rounds ORDER BY epoch DESC, seq DESC LIMIT 1
"""

_RECENT_ROUNDS: Final = """
SELECT
  count(*) AS rounds, coalesce(sum(reports), 0) AS reports, coalesce(sum(rejected), 0) AS rejected,
  coalesce(sum(limits_sent), 0) AS limits
FROM rounds WHERE round_at > :recent
"""

_ANY_THROTTLED: Final = f"coalesce({', '.join(THROTTLED_COLUMNS)}) IS NOT NULL"
_THROTTLED: Final = f"""
SELECT resource_group, {", ".join(f"sum({name}) AS {name}" for name in THROTTLED_COLUMNS)}
FROM (
  SELECT
    broker, resource_group,
    {", ".join(f"max_by({name}, round_at) AS {name}" for name in THROTTLED_COLUMNS)}
  FROM usage WHERE round_at > :recent AND {_ANY_THROTTLED}
  GROUP BY broker, resource_group
) AS latest
GROUP BY resource_group
"""

_BROKERS: Final = """
WITH seen AS (
  SELECT
    broker, min(broker_status) AS status, max(seen_at) AS last_seen_at,
    count(DISTINCT resource_group) AS group_count,
    count_if(has_limit AND enforced AND limit_per_s IS NOT NULL
      AND (demand_per_s IS NULL OR demand_per_s > limit_per_s)) AS limits_reached
  FROM lease_values GROUP BY broker
),
changed AS (
  SELECT broker, max_by(status, round_at) AS status, max_by(last_seen_at, round_at) AS last_seen_at,
    max(round_at) AS since
  FROM brokers GROUP BY broker
),
refused AS (
  SELECT sender AS broker, sum(coalesce(reports, 1)) AS rejected
  FROM rejected_reports WHERE round_at > :recent AND sender IS NOT NULL GROUP BY sender
)
SELECT
  coalesce(c.broker, s.broker) AS broker, coalesce(c.status, s.status) AS status,
  greatest(c.last_seen_at, s.last_seen_at) AS last_seen_at, c.since,
  coalesce(s.group_count, 0) AS group_count,
  coalesce(s.limits_reached, 0) AS limits_reached,
  coalesce(r.rejected, 0) AS rejected
FROM changed AS c
FULL OUTER JOIN seen AS s ON s.broker = c.broker
LEFT JOIN refused AS r ON r.broker = coalesce(c.broker, s.broker)
ORDER BY status DESC, broker
"""


@dataclass(frozen=True)
class JobStatus:
    """The job's last round, and the last minute."""

    epoch: int
    seq: int
    round_at: datetime
    age_s: float
    """Seconds since the last round."""
    duration_s: float | None
    """Reading and deciding in the last round."""
    lag_s: float | None
    """Age of the newest report in the last round; None: it had none."""
    law: str | None
    brokers_live: int
    rounds: int
    """In the last minute, as the next three."""
    reports: int
    rejected: int
    limits: int


GROUP_COLUMNS: Final = (
    "group",
    "dimension",
    "quota_per_s",
    "used_per_s",
    "used_part",
    "limits_per_s",
    "demand_per_s",
    "saturated",
    "throttled_per_s",
    "brokers",
    "stale",
    "worst_share",
    "mode",
)
"""Columns of ``group_status``."""


def job_status(engine: DuckDBEngine, now: datetime) -> JobStatus | None:
    """How the quota job does; None: it never had a round.

    Raises:
        HistoryError: the history can't be read.
    """
    last = engine.ask(_JOB)
    if not last.rows:
        return None
    row = dict(zip(last.columns, last.rows[0], strict=True))
    recent = now - RECENT
    counts = engine.ask(_RECENT_ROUNDS, {"recent": recent}, read_since=recent)
    rounds, reports, rejected, limits = counts.rows[0]
    return JobStatus(
        epoch=row["epoch"],
        seq=row["seq"],
        round_at=row["round_at"],
        age_s=(now - row["round_at"]).total_seconds(),
        duration_s=_seconds(row["duration_ms"]),
        lag_s=_seconds(row["lag_ms"]),
        law=row["law"],
        brokers_live=row["brokers_live"],
        rounds=int(rounds),
        reports=int(reports),
        rejected=int(rejected),
        limits=int(limits),
    )


def group_status(engine: DuckDBEngine, now: datetime) -> pa.Table:
    """Each group beside its quotas, those that use most of a quota first.

    A row per group and dimension with a quota (``GROUP_COLUMNS``). Usage, limits and demand are
    sums over brokers and, in a tree, over the groups below. ``demand_per_s`` is of the brokers
    whose demand is known, the others are ``saturated``. ``worst_share``: the least limit of a
    broker that wants more, as a part of what it wants or of an even share, whichever is less; null:
    no broker wants more.

    Raises:
        HistoryError: the history can't be read.
    """
    rates = ", ".join(RATE_COLUMNS)
    groups = engine.table(f"SELECT resource_group, mode, {rates} FROM resource_groups")
    leases = engine.table("SELECT * EXCLUDE (shard, epoch, seq) FROM leases")
    recent = now - RECENT
    throttled = engine.table(_THROTTLED, {"recent": recent}, read_since=recent)
    sums = _Sums(groups, leases, throttled)
    parts = [_of_dimension(dimension, sums) for dimension in range(len(DIMENSIONS))]
    table = pa.concat_tables(parts)
    order = np.argsort(-table["used_part"].to_numpy(), kind="stable")
    return table.take(pa.array(order))


class _Sums:
    """Sums over the g groups of n leases."""

    def __init__(self, groups: pa.Table, leases: pa.Table, throttled: pa.Table) -> None:
        names = groups["resource_group"].combine_chunks()
        self.groups, self.leases, self.throttled = groups, leases, throttled
        self.parent = parents_of(names)
        coded = leases["resource_group"].combine_chunks().dictionary_encode()
        of_code = pc.index_in(coded.dictionary, value_set=names).fill_null(-1).to_numpy()
        group = of_code.astype(np.int64)[coded.indices.to_numpy()] if len(leases) else _NONE
        self.known = group >= 0
        """(n,) the lease is of a group that is defined."""
        self.group = group[self.known]
        at = pc.index_in(throttled["resource_group"], value_set=names).fill_null(-1)
        self.refused_group = at.to_numpy().astype(np.int64) if len(throttled) else _NONE
        self.brokers = self.by_group(np.ones(len(self.group)))
        stale = pc.equal(leases["broker_status"], "stale").to_numpy()[self.known]
        self.stale = self.by_group(stale)
        flags = (leases[name].to_numpy()[self.known] for name in ("has_limit", "enforced"))
        self.limited = np.logical_and(*flags)

    def by_group(self, values: npt.NDArray[Any]) -> FloatArray:
        """(g,) sums of the leases' values."""
        sums = np.bincount(self.group, weights=values, minlength=len(self.groups))
        return sums.astype(np.float64, copy=False)  # without leases they are integers

    def column(self, name: str) -> FloatArray:
        """(n,) of the known leases; NaN is null."""
        values: FloatArray = self.leases[name].to_numpy()[self.known]
        return values

    def refused(self, name: str) -> FloatArray:
        """(g,) refused per second; the groups that are not defined are left out."""
        chosen = self.refused_group >= 0
        rates = self.throttled[name].fill_null(0.0).to_numpy() if chosen.any() else _NONE
        group = self.refused_group[chosen]
        sums = np.bincount(group, weights=rates[chosen], minlength=len(self.groups))
        return sums.astype(np.float64, copy=False)


_NONE: Final = np.empty(0, np.int64)


def _of_dimension(dimension: int, sums: _Sums) -> pa.Table:
    """The rows of one dimension."""
    quota = sums.groups[RATE_COLUMNS[dimension]].to_numpy()
    at = np.flatnonzero(~np.isnan(quota))
    used, demand, limit = (
        sums.column(columns[dimension]) for columns in (USED_COLUMNS, DEMAND_COLUMNS, LIMIT_COLUMNS)
    )

    def total(values: FloatArray) -> FloatArray:
        below: FloatArray = subtree_totals(sums.parent, values)[at]
        return below

    def over_brokers(values: npt.NDArray[Any]) -> FloatArray:
        return total(sums.by_group(np.nan_to_num(values)))

    saturated = np.isnan(demand) & ~np.isnan(used)
    used_now = over_brokers(used)
    part = np.where(used_now > 0, np.inf, 0.0)
    np.divide(used_now, quota[at], out=part, where=quota[at] > 0)
    names, modes = sums.groups["resource_group"].combine_chunks(), sums.groups["mode"]
    columns: Mapping[str, Any] = {
        "group": names.take(pa.array(at)),
        "dimension": pa.array([DIMENSIONS[dimension]] * len(at), pa.string()),
        "quota_per_s": quota[at],
        "used_per_s": used_now,
        "used_part": part,
        "limits_per_s": over_brokers(limit),
        "demand_per_s": over_brokers(demand),
        "saturated": over_brokers(saturated).astype(np.int64),
        "throttled_per_s": total(sums.refused(THROTTLED_COLUMNS[dimension])),
        "brokers": sums.brokers[at].astype(np.int64),
        "stale": sums.stale[at].astype(np.int64),
        "worst_share": _worst_share(sums, quota, limit, demand)[at],
        "mode": modes.fill_null("hard").combine_chunks().take(pa.array(at)),
    }
    table = pa.table(dict(columns))
    share = pa.array(columns["worst_share"], from_pandas=True)
    return table.set_column(table.column_names.index("worst_share"), "worst_share", share)


def _worst_share(
    sums: _Sums, quota: FloatArray, limit: FloatArray, demand: FloatArray
) -> FloatArray:
    """(g,) the least part that a broker has of what it wants or of an even share; NaN: none."""
    wanted = np.where(np.isnan(demand), np.inf, demand)
    wants_more = sums.limited & (limit < wanted)
    group = sums.group[wants_more]
    even = (quota / np.maximum(sums.brokers, 1.0))[group]
    fair = np.fmin(wanted[wants_more], even)
    share = np.ones(len(group))
    np.divide(limit[wants_more], fair, out=share, where=fair > 0)
    worst = np.full(len(quota), np.inf)
    np.minimum.at(worst, group, np.minimum(share, 1.0))
    return np.where(np.isinf(worst), np.nan, worst)


def broker_status(engine: DuckDBEngine, now: datetime) -> pa.Table:
    """The brokers: status and since when, last report, groups, limits reached, rejected reports.

    ``limits_reached`` counts limits that the broker wants more than; ``rejected`` is of the last
    minute.

    Raises:
        HistoryError: the history can't be read.
    """
    return engine.table(_BROKERS, {"recent": now - RECENT})


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000.0
