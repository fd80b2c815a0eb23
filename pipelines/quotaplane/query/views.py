"""The views that queries see beside the history's tables: one row per dimension.

A table has a column of each kind for each dimension; in these views the dimension is a value, so
that one query serves all of them. They are SQL that both engines read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from quotaplane.history.tables import RESOURCE_GROUPS, TABLES, USAGE
from quotaplane.model import (
    COUNTED,
    COUNTER_COLUMNS,
    DIMENSIONS,
    PARTS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    IntArray,
)
from quotaplane.query.covered_stretches import covered_stretches
from quotaplane.query.group_feed import FEEDS
from quotaplane.query.sql_text import identifiers_in, with_times

BEGINNING: Final = datetime(1970, 1, 2, tzinfo=timezone.utc)
"""Earlier than any history."""

_LOOK_BACK: Final = timedelta(hours=1)
"""How much earlier than ``since`` ``usage_values`` begins, because a report leaves out rates that
did not change."""


def by_dimension(values: Mapping[str, str]) -> str:
    """The ``UNPIVOT`` clause that makes a row per dimension.

    ``values`` maps the new columns to those of the table, where ``{}`` stands for the dimension.

    >>> print(by_dimension({"rate": "{}_per_s"})[:88])
    UNPIVOT INCLUDE NULLS (rate FOR dimension IN (publish_messages_per_s AS publish_messages
    """

    def listed(names: Sequence[str]) -> str:
        return f"({', '.join(names)})" if len(names) > 1 else names[0]

    of_dimensions = (
        f"{listed([column.format(name) for column in values.values()])} AS {name}"
        for name in DIMENSIONS
    )
    columns = listed(list(values))
    return f"UNPIVOT INCLUDE NULLS ({columns} FOR dimension IN ({', '.join(of_dimensions)}))"


def _limit_values(limits: str, columns: str = "") -> str:
    """A row for each limit and dimension of a table like ``limits``, with more of its columns."""
    of_dimension = by_dimension(
        {
            "rate": "{}_per_s",
            "demand_per_s": "demand_{}_per_s",
            "quota_per_s": "quota_{}_per_s",
            "reason_code": "{}_reason_code",
            "reason_numbers": "{}_reason_numbers",
        }
    )
    return f"""
SELECT
  epoch, seq, round_at, date, broker, resource_group, dimension,{columns}
  CASE WHEN ended OR rate IS NULL THEN CAST('Infinity' AS DOUBLE) ELSE rate END AS limit_per_s,
  ended, coalesce(enforced, true) AS enforced, lease_ms, demand_per_s, quota_per_s,
  reason_code, reason_numbers, ended_because,
  limit_reason(ended_because, reason_code, reason_numbers, rate, demand_per_s, quota_per_s)
    AS reason
FROM {limits} {of_dimension}
"""


_REPORTED_AT: Final = "coalesce(published_at, round_at)"
_UNCHANGED: Final = ", ".join(
    f"last_value({rate}) IGNORE NULLS OVER so_far AS {rate}, {throttled}"
    for rate, throttled in zip(RATE_COLUMNS, THROTTLED_COLUMNS, strict=True)
)
"""Rates, those that did not change filled in. This is done before there is a row for each
dimension: there are several times as many of these to sort."""
_USAGE_BY_DIMENSION: Final = by_dimension(
    {"used_per_s": "{}_per_s", "throttled_per_s": "throttled_{}_per_s"}
)

_USAGE_VALUES: Final = f"""
SELECT
  epoch, seq, round_at, date, broker, resource_group, dimension, reported_at, window_ms,
  used_per_s, throttled_per_s
FROM (
  SELECT
    epoch, seq, round_at, date, broker, resource_group, {_REPORTED_AT} AS reported_at, window_ms,
    {_UNCHANGED}
  FROM usage
  WHERE date >= CAST(:usage_since AS DATE) AND round_at >= :usage_since
  WINDOW so_far AS (
    PARTITION BY broker, resource_group ORDER BY {_REPORTED_AT}, epoch, seq
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )
) AS filled {_USAGE_BY_DIMENSION}
WHERE used_per_s IS NOT NULL
"""

MOST_UNREPORTED: Final = 5
"""Stock brokers do not report rates that hardly changed, for up to five intervals: for this many
windows a rate holds that is not reported again."""
_MOST_WITHOUT_WINDOW_MS: Final = 60_000
"""A rate that was reported without its window holds for this long."""


def _sum_of_parts(kind: str) -> str:
    """Columns of totals, which have no counters: the sums of their parts' columns."""
    of = [f"{kind}_{name}" for name in DIMENSIONS]
    sums = {total: " + ".join(of[part] for part in parts) for total, parts in PARTS.items()}
    return ", ".join(f"{text} AS {of[total]}" for total, text in sums.items())


# Kafka may give all records of a producer's batch one time. No counter gets smaller.
_OF_INCARNATION: Final = (
    "PARTITION BY broker, resource_group, broker_started_at "
    f"ORDER BY {_REPORTED_AT}, {', '.join(COUNTER_COLUMNS)}, epoch, seq"
)
_BEFORE: Final = ", ".join(
    f"lag({name}) OVER in_order AS before_{name}" for name in COUNTER_COLUMNS
)
_IS_BROKEN: Final = " OR ".join(f"coalesce({name}, -1) < before_{name}" for name in COUNTER_COLUMNS)
_GROWTH: Final = ", ".join(
    f"CASE WHEN NOT is_broken THEN {name} - coalesce(before_{name}, began_at_0) END"
    f" AS growth_{DIMENSIONS[place]}"
    for place, name in zip(COUNTED, COUNTER_COLUMNS, strict=True)
)

# An amount is what the broker's counter grew by since its report before, however many were lost in
# between; its first report has all since its start, if the job ran then. Once a counter is missing
# or smaller than before (no counter gets smaller), the rates count for the rest of the incarnation.
# With a rate it is the rate times the window that the broker measured, and times what is missing
# until the window of the next report begins; if that is known from a counter, it is there.
# It belongs to the day on which the report was published, whenever that was recorded.
_USAGE_AMOUNTS: Final = f"""
WITH reported AS (
  SELECT
    to_date({_REPORTED_AT}) AS date, broker, resource_group, broker_started_at, epoch, seq,
    published_at, round_at, {_REPORTED_AT} AS reported_at,
    unix_millis({_REPORTED_AT}) AS at_ms, window_ms,
    lead(unix_millis({_REPORTED_AT})) OVER in_order AS next_ms,
    coalesce(lead(window_ms) OVER in_order, 0) AS next_window_ms,
    CASE WHEN lag(epoch) OVER in_order IS NULL AND broker_started_at >= (
      SELECT greatest(min(round_at), :usage_since) FROM rounds
    ) THEN 0 END AS began_at_0,
    {", ".join(COUNTER_COLUMNS)}, {_BEFORE}, {_UNCHANGED}
  FROM usage
  WHERE date >= CAST(:usage_since AS DATE) AND round_at >= :usage_since
  WINDOW
    in_order AS ({_OF_INCARNATION}),
    so_far AS ({_OF_INCARNATION} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
),
judged AS (
  SELECT
    *, coalesce(max({_IS_BROKEN}) OVER so_far, false) AS is_broken,
    CASE
      WHEN window_ms IS NULL THEN least(coalesce(next_ms - at_ms, 0), {_MOST_WITHOUT_WINDOW_MS})
      ELSE window_ms + greatest(
        0, least(coalesce(next_ms - next_window_ms - at_ms, 0), {MOST_UNREPORTED} * window_ms)
      )
    END AS counted_ms
  FROM reported
  WINDOW so_far AS ({_OF_INCARNATION} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
),
with_growth AS (SELECT *, {_GROWTH} FROM judged)
SELECT
  date, broker, resource_group, dimension, reported_at, used_per_s, throttled_per_s,
  coalesce(
    growth,
    used_per_s * (CASE WHEN counter IS NULL OR is_broken THEN counted_ms ELSE window_ms END) / 1000
  ) AS used,
  growth IS NOT NULL AS by_counter,
  throttled_per_s * coalesce(window_ms, counted_ms) / 1000 AS throttled
FROM (
  SELECT *, {_sum_of_parts("counter")}, {_sum_of_parts("growth")} FROM with_growth
) AS complete {
    by_dimension(
        {
            "used_per_s": "{}_per_s",
            "throttled_per_s": "throttled_{}_per_s",
            "counter": "counter_{}",
            "growth": "growth_{}",
        }
    )
}
WHERE used_per_s IS NOT NULL
"""

_DAILY_VALUES: Final = f"""
SELECT
  date, tenant, resource_group, broker, dimension, reports, covered, by_counters, used, throttled,
  peak_per_s
FROM usage_daily {
    by_dimension({"used": "{}", "throttled": "throttled_{}", "peak_per_s": "peak_{}_per_s"})
}
WHERE used IS NOT NULL
"""

# Only the newest earlier limit of each broker and group matters; few columns are read to find
# it. Most rows are of groups that did not report.
_RECENT_LIMITS: Final = """
WITH reported AS (
  SELECT DISTINCT broker, resource_group FROM usage
  WHERE date >= CAST(:usage_since AS DATE) AND round_at >= :usage_since
),
newest_of_epochs AS (
  SELECT l.broker, l.resource_group, l.epoch, max(l.seq) AS seq
  FROM limits AS l
  JOIN reported AS r ON r.broker = l.broker AND r.resource_group = l.resource_group
  WHERE l.round_at < :usage_since
  GROUP BY l.broker, l.resource_group, l.epoch
),
newest AS (
  SELECT broker, resource_group, max(epoch) AS epoch, max_by(seq, epoch) AS seq
  FROM newest_of_epochs
  GROUP BY broker, resource_group
)
SELECT l.*
FROM limits AS l
JOIN newest AS n ON n.broker = l.broker AND n.resource_group = l.resource_group
  AND n.epoch = l.epoch AND n.seq = l.seq
UNION ALL
SELECT * FROM limits WHERE date >= CAST(:usage_since AS DATE) AND round_at >= :usage_since
"""

# The limits of a broker and group are numbered: the highest number so far is of the newest one. The
# number of a report counts those that limits were decided with. The others are there, too, as the
# next report may say "unchanged"; in a pause of the job, leases end and brokers obey other limits.
_USAGE_AND_LIMITS: Final = f"""
WITH numbered AS (
  SELECT
    *, row_number() OVER (PARTITION BY broker, resource_group ORDER BY epoch, seq) AS limit_no
  FROM recent_limits
),
limits_in_order AS ({_limit_values("numbered", " limit_no,")}),
events AS (
  SELECT
    broker, resource_group, unix_millis(round_at) AS at_ms, 0 AS is_report, limit_no, epoch, seq,
    false AS counted, CAST(NULL AS TIMESTAMP) AS reported_at, CAST(NULL AS BIGINT) AS window_ms,
    CAST(NULL AS TIMESTAMP) AS broker_started_at,
    {", ".join(f"CAST(NULL AS DOUBLE) AS {c}" for c in (*RATE_COLUMNS, *THROTTLED_COLUMNS))}
  FROM numbered
  UNION ALL
  SELECT
    broker, resource_group, unix_millis({_REPORTED_AT}), 1, NULL, epoch, seq,
    coalesce(counted, true), {_REPORTED_AT}, window_ms, broker_started_at,
    {", ".join((*RATE_COLUMNS, *THROTTLED_COLUMNS))}
  FROM usage
  WHERE date >= CAST(:usage_since AS DATE) AND round_at >= :usage_since
),
filled AS (
  SELECT
    broker, resource_group, is_report, counted, reported_at, window_ms, broker_started_at,
    max(limit_no) OVER so_far AS limit_no, count_if(counted) OVER so_far AS report_no,
    {_UNCHANGED}
  FROM events
  WINDOW so_far AS (
    PARTITION BY broker, resource_group ORDER BY at_ms, is_report, epoch, seq
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
  )
),
reports AS (
  SELECT * FROM (SELECT * FROM filled WHERE is_report = 1) AS reported {_USAGE_BY_DIMENSION}
  WHERE used_per_s IS NOT NULL
),
limited AS (
  SELECT DISTINCT broker, resource_group, dimension
  FROM limits_in_order
  WHERE ended OR limit_per_s < CAST('Infinity' AS DOUBLE)
)
SELECT
  r.broker, r.resource_group, r.dimension, r.report_no, r.counted, r.reported_at, r.window_ms,
  r.broker_started_at, r.used_per_s, r.throttled_per_s, l.limit_per_s, l.enforced, l.ended,
  l.round_at AS limit_at,
  l.epoch AS limit_epoch, l.seq AS limit_seq, l.demand_per_s, l.quota_per_s, l.reason_code,
  l.reason_numbers, l.ended_because
FROM reports AS r
JOIN limited AS e
  ON e.broker = r.broker AND e.resource_group = r.resource_group AND e.dimension = r.dimension
LEFT JOIN limits_in_order AS l
  ON l.broker = r.broker AND l.resource_group = r.resource_group AND l.dimension = r.dimension
  AND l.limit_no = r.limit_no
"""

_LEASE_VALUES: Final = f"""
SELECT
  epoch, seq, round_at, broker, resource_group, dimension, broker_status, seen_at, has_limit,
  enforced, lease_ends_at, used_per_s, demand_per_s, limit_per_s
FROM leases {
    by_dimension(
        {
            "used_per_s": "used_{}_per_s",
            "demand_per_s": "demand_{}_per_s",
            "limit_per_s": "limit_{}_per_s",
        }
    )
}
"""

_QUOTAS: Final = f"""
SELECT
  resource_group, dimension, quota_per_s, coalesce(mode, 'hard') AS mode, updated_at, updated_by
FROM resource_groups {by_dimension({"quota_per_s": "{}_per_s"})}
WHERE quota_per_s IS NOT NULL
"""

_QUOTA_CHANGES: Final = f"""
SELECT
  resource_group, dimension, version,
  min(changed_at) AS changed_at, min(changed_by) AS changed_by,
  min(why) AS why,
  bool_or(change = 'insert') AS created, bool_or(change = 'delete') AS deleted,
  max(quota) FILTER (WHERE change IN ('update_preimage', 'delete')) AS from_per_s,
  max(quota) FILTER (WHERE change IN ('update_postimage', 'insert')) AS to_per_s,
  coalesce(max(mode) FILTER (WHERE change IN ('update_postimage', 'insert')), 'hard') AS mode,
  coalesce(
    max(enforcement_percent) FILTER (WHERE change IN ('update_postimage', 'insert')), 100
  ) AS enforcement_percent
FROM resource_group_changes {by_dimension({"quota": "{}_per_s"})}
GROUP BY resource_group, dimension, version
"""

_SETTINGS: Final = [
    field for field in RESOURCE_GROUPS.schema if not field.name.startswith(("updated_", "resource"))
]


def _as_text(field: pa.Field) -> str:
    """A setting as text, the same with both engines: 1000, 0.25."""
    if not pa.types.is_string(field.type):
        plain = f"CAST(CAST({field.name} AS DECIMAL(38, 9)) AS STRING)"
        return f"regexp_replace({plain}, '[.]?0+$', '') AS {field.name}"
    return str(field.name)


_SETTING_CHANGES: Final = f"""
SELECT
  resource_group, setting, version,
  min(changed_at) AS changed_at, min(changed_by) AS changed_by,
  min(why) AS why,
  CASE WHEN bool_or(change = 'insert') THEN 'created' WHEN bool_or(change = 'delete') THEN 'deleted'
    ELSE 'changed' END AS change,
  max(setting_value) FILTER (WHERE change IN ('update_preimage', 'delete')) AS from_value,
  max(setting_value) FILTER (WHERE change IN ('update_postimage', 'insert')) AS to_value
FROM (
  SELECT
    resource_group, version, changed_at, changed_by, why, change, 'true' AS defined,
    {", ".join(map(_as_text, _SETTINGS))}
  FROM resource_group_changes
) AS in_words UNPIVOT INCLUDE NULLS (
  setting_value FOR setting IN (defined AS defined, {
    ", ".join(f"{f.name} AS {f.name}" for f in _SETTINGS)
})
)
GROUP BY resource_group, setting, version
HAVING
  max(setting_value) FILTER (WHERE change IN ('update_preimage', 'delete'))
  IS DISTINCT FROM max(setting_value) FILTER (WHERE change IN ('update_postimage', 'insert'))
"""


@dataclass(frozen=True)
class View:
    """A view that is made of tables or of other views."""

    name: str
    sql: str
    """``:usage_since`` is the time from which it needs reports."""

    def since(self, since: datetime) -> str:
        """The SQL of the view for questions about the time ``since``."""
        return with_times(self.sql, {"usage_since": usage_since(since)})


VIEWS: Final[Mapping[str, View]] = {
    view.name: view
    for view in (
        View("usage_values", _USAGE_VALUES),
        View("limit_values", _limit_values("limits")),
        View("recent_limits", _RECENT_LIMITS),
        View("recent_limit_values", _limit_values("recent_limits")),
        View("usage_and_limits", _USAGE_AND_LIMITS),
        View("usage_amounts", _USAGE_AMOUNTS),
        View(
            "covered_stretches",
            covered_stretches(_REPORTED_AT, MOST_UNREPORTED, _MOST_WITHOUT_WINDOW_MS),
        ),
        View("daily_values", _DAILY_VALUES),
        View("lease_values", _LEASE_VALUES),
        View("quotas", _QUOTAS),
        View("quota_changes", _QUOTA_CHANGES),
        View("setting_changes", _SETTING_CHANGES),
    )
}
"""Each after those that it is made of."""


class Sources(NamedTuple):
    """Everything that a query reads."""

    tables: tuple[str, ...]
    named: frozenset[str]
    """Those of the tables that the query itself names; only views read the others."""
    feeds: tuple[str, ...]
    views: tuple[View, ...]


def sources_of(sql: str | None) -> Sources:
    """The tables and views that a query reads; None: all.

    A column with the name of a table (``brokers``) counts, too: then the table is opened in vain.

    >>> sources = sources_of("SELECT * FROM limit_values")
    >>> sources.tables, [view.name for view in sources.views]
    (('limits',), ['limit_values'])
    """
    names = {*TABLES, *FEEDS, *VIEWS} if sql is None else identifiers_in(sql)
    named = frozenset(_of(TABLES, names))
    for view in reversed(list(VIEWS.values())):
        if view.name in names:
            names |= identifiers_in(view.sql)
    return Sources(
        _of(TABLES, names),
        named,
        _of(FEEDS, names),
        tuple(view for view in VIEWS.values() if view.name in names),
    )


def _of(known: Iterable[str], names: set[str]) -> tuple[str, ...]:
    return tuple(name for name in known if name in names)


def seen_by(until: datetime, table: str) -> str:
    """The condition for rows of a table that belong to the time up to ``until``, in both engines.

    A report may be recorded long after it was published.
    """
    at = "least(round_at, published_at)" if table == USAGE.name else "round_at"
    return with_times(f"{at} <= :until", {"until": until})


def hold_ms(window_ms: IntArray) -> IntArray:
    """For how long a rate counts behind its window if it is not reported again.

    ``window_ms`` (n,) is negative where a rate came without one.

    >>> hold_ms(np.array([1000, -1])).tolist()
    [5000, 60000]
    """
    return np.where(window_ms < 0, _MOST_WITHOUT_WINDOW_MS, MOST_UNREPORTED * window_ms)


def usage_since(since: datetime) -> datetime:
    """The time from which views on usage have reports, for questions about the time ``since``.

    >>> usage_since(datetime(2026, 3, 2, 12, tzinfo=timezone.utc)).isoformat()
    '2026-03-02T11:00:00+00:00'
    """
    return max(since.astimezone(timezone.utc) - _LOOK_BACK, BEGINNING)
