"""Refused reports, by reason and sender."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from quotaplane.query.duckdb_engine import DuckDBEngine

MOST: Final = 200

# A row that stands for an unknown number of reports (0) counts as one.
_KINDS: Final = f"""
SELECT
  reason, sender, CAST(sum(greatest(coalesce(reports, 1), 1)) AS BIGINT) AS reports,
  max(round_at) AS last_at, max_by(detail, round_at) AS detail, count(*) OVER () AS total
FROM rejected_reports
WHERE round_at >= :since AND round_at <= :until
GROUP BY reason, sender
ORDER BY reports DESC, reason, sender
LIMIT {MOST}
"""


def rejected_kinds(
    engine: DuckDBEngine, since: datetime, until: datetime
) -> tuple[int, list[dict[str, Any]]]:
    """How many pairs of reason and sender there are, and those with the most refused reports.

    Returns:
        The number, and a dict for each: ``reason``, ``sender`` (None: not known), ``reports``,
        ``last_at``, ``detail`` (of the newest).

    Raises:
        HistoryError: the history can't be read.
    """
    rows = engine.ask(_KINDS, since=since, until=until, read_since=since).dicts()
    totals = [row.pop("total") for row in rows]
    return max(totals, default=0), rows
