"""The present state of the job and its brokers (of its groups: ``group_status``)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from quotaplane.groups.standing import WANTS_MORE
from quotaplane.model import DEMAND_COLUMNS, LIMIT_COLUMNS, USED_COLUMNS
from quotaplane.query.duckdb_engine import DuckDBEngine

RECENT: Final = timedelta(minutes=1)
"""Reports and refused use are counted over this time."""

_JOB: Final = """
SELECT
  epoch, seq, round_at, duration_ms / 1000 AS duration_s, lag_ms / 1000 AS lag_s, law, brokers_live,
  count(*) FILTER (WHERE is_recent) OVER () AS rounds,
  CAST(coalesce(sum(reports) FILTER (WHERE is_recent) OVER (), 0) AS BIGINT) AS reports,
  CAST(coalesce(sum(rejected) FILTER (WHERE is_recent) OVER (), 0) AS BIGINT) AS rejected,
  CAST(coalesce(sum(duplicates + outdated) FILTER (WHERE is_recent) OVER (), 0) AS BIGINT)
    AS outdated,
  CAST(coalesce(sum(limits_sent) FILTER (WHERE is_recent) OVER (), 0) AS BIGINT) AS limits
FROM (SELECT *, round_at > :recent AS is_recent FROM rounds) AS judged
ORDER BY epoch DESC, seq DESC LIMIT 1
"""

_REASONS: Final = """
SELECT reason, CAST(sum(greatest(coalesce(reports, 1), 1)) AS BIGINT) AS reports
FROM rejected_reports WHERE round_at > :recent AND round_at <= :now
GROUP BY reason ORDER BY reports DESC, reason
"""

_REACHED: Final = " + ".join(
    f"CAST(coalesce(has_limit AND enforced AND {used} IS NOT NULL AND "
    f"{WANTS_MORE} * {limit} < coalesce({demand}, CAST('Infinity' AS DOUBLE)), false) AS INT)"
    for used, limit, demand in zip(USED_COLUMNS, LIMIT_COLUMNS, DEMAND_COLUMNS, strict=True)
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
    """In the last minute, as the next four."""
    reports: int
    rejected: int
    outdated: int
    """Reports that were duplicates, or older than one already used. If they continue, two agents
    have the same broker name."""
    limits: int


def job_status(engine: DuckDBEngine, now: datetime) -> RoundStatus | None:
    """The quota job's last round; None: there was none.

    Raises:
        HistoryError: the history can't be read.
    """
    recent = now - RECENT
    # A job that runs has its last round in the newest files; there may be very many others.
    row = _last_round(engine, recent, read_since=recent)
    if row is None or row["round_at"] > now:  # the clock of an earlier job may have been ahead
        row = _last_round(engine, recent)
    if row is None:
        return None
    return RoundStatus(**row, age_s=(now - row["round_at"]).total_seconds())


def _last_round(
    engine: DuckDBEngine, recent: datetime, read_since: datetime | None = None
) -> dict[str, Any] | None:
    rows = engine.ask(_JOB, {"recent": recent}, read_since=read_since).dicts()
    return rows[0] if rows else None


def rejected_reasons(engine: DuckDBEngine, now: datetime) -> dict[str, int]:
    """The number of dead letters of reports in the last minute by reason, the most first.

    Raises:
        HistoryError: the history can't be read.
    """
    recent = now - RECENT
    answer = engine.ask(_REASONS, {"recent": recent, "now": now}, read_since=recent)
    return dict(answer.rows)


def broker_status(engine: DuckDBEngine, now: datetime) -> list[dict[str, Any]]:
    """The brokers: status and its begin, last report, groups, limits reached, rejected reports.

    ``limits_reached`` counts limits that the broker wants more than; ``rejected`` is of the last
    minute.

    Raises:
        HistoryError: the history can't be read.
    """
    return engine.ask(_BROKERS, {"recent": now - RECENT}).dicts()
