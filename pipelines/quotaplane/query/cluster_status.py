"""How things stand now: the job, its groups beside their quotas, and its brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quotaplane.groups.hierarchy import parents_of, subtree_totals
from quotaplane.model import (
    DEMAND_COLUMNS,
    DIMENSIONS,
    LIMIT_COLUMNS,
    RATE_COLUMNS,
    SEPARATOR,
    THROTTLED_COLUMNS,
    USED_COLUMNS,
    BoolArray,
    FloatArray,
    IntArray,
)
from quotaplane.query.duckdb_engine import DuckDBEngine

RECENT: Final = timedelta(minutes=1)
"""Reports and refused use are counted over this time."""

Columns = Mapping[str, npt.NDArray[Any]]

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

_PLACES: Final = "SELECT resource_group, row_number() OVER () - 1 AS place FROM resource_groups"
_GROUPS: Final = f"""
SELECT places.resource_group, coalesce(mode, 'hard') AS mode, {", ".join(RATE_COLUMNS)}
FROM resource_groups
JOIN ({_PLACES}) AS places ON places.resource_group = resource_groups.resource_group
ORDER BY place
"""

_OF_LEASES: Final = (*USED_COLUMNS, *DEMAND_COLUMNS, *LIMIT_COLUMNS)
_LEASES: Final = f"""
SELECT place, broker_status = 'stale' AS stale, has_limit AND enforced AS limited,
  {", ".join(_OF_LEASES)}
FROM leases JOIN ({_PLACES}) AS places ON places.resource_group = leases.resource_group
"""

_THROTTLED: Final = f"""
SELECT place, {", ".join(f"coalesce(sum({name}), 0) AS {name}" for name in THROTTLED_COLUMNS)}
FROM (
  SELECT
    broker, resource_group,
    {", ".join(f"max_by({name}, round_at) AS {name}" for name in THROTTLED_COLUMNS)}
  FROM usage WHERE round_at > :recent AND coalesce({", ".join(THROTTLED_COLUMNS)}) IS NOT NULL
  GROUP BY broker, resource_group
) AS latest
JOIN ({_PLACES}) AS places ON places.resource_group = latest.resource_group
GROUP BY place
"""

_REACHED: Final = " + ".join(
    "CAST(coalesce(has_limit AND enforced AND "
    f"{limit} < coalesce({demand}, CAST('Infinity' AS DOUBLE)), false) AS INT)"
    for limit, demand in zip(LIMIT_COLUMNS, DEMAND_COLUMNS, strict=True)
)
_BROKERS: Final = f"""
WITH seen AS (
  SELECT
    broker, min(broker_status) AS status, max(seen_at) AS last_seen_at, count(*) AS group_count,
    CAST(sum({_REACHED}) AS BIGINT) AS limits_reached
  FROM leases GROUP BY broker
),
changed AS (
  SELECT broker, max_by(status, round_at) AS status, max_by(last_seen_at, round_at) AS last_seen_at,
    max(round_at) AS since
  FROM brokers GROUP BY broker
),
refused AS (
  SELECT sender AS broker, CAST(sum(coalesce(reports, 1)) AS BIGINT) AS rejected
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
class RoundStatus:
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


@dataclass(frozen=True)
class GroupStatus:
    """Each group beside its quotas: n rows, one per group and dimension with a quota.

    Arrays have shape (n,); rates are per second. Those that use most of a quota come first. Usage,
    limits and demand are sums over brokers and, in a tree, over the groups below.
    """

    group: npt.NDArray[Any]
    """Names."""
    dimension: npt.NDArray[Any]
    """Names of dimensions."""
    quota_per_s: FloatArray
    used_per_s: FloatArray
    used_part: FloatArray
    """Usage divided by the quota; inf: something is used of a quota of 0."""
    limits_per_s: FloatArray
    """Sum of the limits; brokers without one count as 0."""
    demand_per_s: FloatArray
    """Of the brokers whose demand is known."""
    saturated: IntArray
    """Brokers that use all of their limit, so that their demand is not known."""
    throttled_per_s: FloatArray
    """Refused or delayed, as far as brokers report it."""
    brokers: IntArray
    """Brokers that report the group itself."""
    stale: IntArray
    """Those of them that are silent."""
    worst_share: FloatArray
    """The least limit of a broker that wants more, as a part of what it wants or of an even share,
    whichever is less; NaN: no broker wants more."""
    mode: npt.NDArray[Any]
    """hard, soft or shadow."""

    def __len__(self) -> int:
        return len(self.group)

    def rows(self, most: int) -> list[dict[str, Any]]:
        """The first rows as dicts; None in place of NaN."""
        columns = {name: getattr(self, name)[:most].tolist() for name in GROUP_COLUMNS}
        return [
            {n: None if v != v else v for n, v in zip(columns, row, strict=True)}
            for row in zip(*columns.values(), strict=True)
        ]


GROUP_COLUMNS: Final = tuple(field.name for field in fields(GroupStatus))


def job_status(engine: DuckDBEngine, now: datetime) -> RoundStatus | None:
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
    return RoundStatus(
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


def group_status(engine: DuckDBEngine, now: datetime) -> GroupStatus:
    """How groups stand beside their quotas.

    Raises:
        HistoryError: the history can't be read.
    """
    recent = now - RECENT
    groups, leases, throttled = engine.columns((_GROUPS, _LEASES, _THROTTLED), {"recent": recent})
    sums = _Sums(groups, leases, throttled)
    parts = [_of_dimension(dimension, sums) for dimension in range(len(DIMENSIONS))]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in GROUP_COLUMNS}
    order = np.argsort(-joined["used_part"], kind="stable")
    return GroupStatus(**{name: column[order] for name, column in joined.items()})


class _Sums:
    """Sums over the g groups of n leases."""

    def __init__(self, groups: Columns, leases: Columns, throttled: Columns) -> None:
        self.groups, self.leases, self.throttled = groups, leases, throttled
        self.names, self.modes = groups["resource_group"], groups["mode"]
        self.parent: IntArray = np.full(len(self.names), -1, np.int64)
        if any(SEPARATOR in name for name in self.names.tolist()):
            self.parent = parents_of(pa.array(self.names, pa.string()))
        self.group: IntArray = leases["place"].astype(np.int64)
        self.brokers = self.by_group(np.ones(len(self.group)))
        self.stale = self.by_group(leases["stale"])
        self.limited: BoolArray = leases["limited"].astype(bool)

    def by_group(self, values: npt.NDArray[Any]) -> FloatArray:
        """(g,) sums of the leases' values."""
        sums = np.bincount(self.group, weights=values, minlength=len(self.names))
        return sums.astype(np.float64, copy=False)  # without leases they are integers

    def refused(self, name: str) -> FloatArray:
        """(g,) refused per second."""
        rates = np.zeros(len(self.names))
        rates[self.throttled["place"].astype(np.int64)] = self.throttled[name]
        return rates


def _of_dimension(dimension: int, sums: _Sums) -> Mapping[str, npt.NDArray[Any]]:
    """The rows of one dimension."""
    quota = sums.groups[RATE_COLUMNS[dimension]]
    at = np.flatnonzero(~np.isnan(quota))
    used, demand, limit = (
        sums.leases[columns[dimension]] for columns in (USED_COLUMNS, DEMAND_COLUMNS, LIMIT_COLUMNS)
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
    return {
        "group": sums.names[at],
        "dimension": np.full(len(at), DIMENSIONS[dimension], object),
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
        "mode": sums.modes[at],
    }


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


def broker_status(engine: DuckDBEngine, now: datetime) -> list[dict[str, Any]]:
    """The brokers: status and since when, last report, groups, limits reached, rejected reports.

    ``limits_reached`` counts limits that the broker wants more than; ``rejected`` is of the last
    minute.

    Raises:
        HistoryError: the history can't be read.
    """
    answer = engine.ask(_BROKERS, {"recent": now - RECENT})
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000.0
