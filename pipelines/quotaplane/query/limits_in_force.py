"""The limits that are in force now, with their reasons: for a list, not for every lease at once."""

from __future__ import annotations

from typing import Any, Final

from quotaplane.laws.explain import reason_text
from quotaplane.query.duckdb_engine import DuckDBEngine

COLUMNS: Final = (
    "group",
    "broker",
    "dimension",
    "limit_per_s",
    "used_per_s",
    "demand_per_s",
    "enforced",
    "broker_status",
    "lease_ends_at",
    "since",
    "reason",
)

_LEASES: Final = """
SELECT resource_group, broker, dimension, limit_per_s, used_per_s, demand_per_s, enforced,
  broker_status, lease_ends_at
FROM lease_values
WHERE has_limit AND limit_per_s IS NOT NULL
  AND (:resource_group = '' OR resource_group = :resource_group)
  AND (:broker = '' OR broker = :broker)
ORDER BY used_per_s / nullif(limit_per_s, 0) DESC, resource_group, broker, dimension
LIMIT :most
"""

_REASONS: Final = """
SELECT resource_group, broker, dimension, limit_per_s, demand_per_s, quota_per_s, reason_code,
  reason_numbers, round_at
FROM (
  SELECT *, row_number() OVER (
    PARTITION BY resource_group, broker, dimension ORDER BY epoch DESC, seq DESC
  ) AS place
  FROM limit_values WHERE {of_groups}
) AS numbered
WHERE place = 1
"""


def limits_in_force(
    engine: DuckDBEngine, group: str | None, broker: str | None, most: int
) -> list[dict[str, Any]]:
    """The limits with their reasons (``COLUMNS``), those that are used most first.

    Args:
        engine: of the history.
        group: only of this group; None: of all.
        broker: only of this broker; None: of all.
        most: how many at most.

    Raises:
        HistoryError: the history can't be read.
    """
    asked = {"resource_group": group or "", "broker": broker or "", "most": most}
    leases = engine.ask(_LEASES, asked, group=group).rows
    groups = sorted({row[0] for row in leases})
    # Files and their parts are left out for single values, but not for a list in a parameter.
    of_groups = " OR ".join(f"resource_group = :group_{place}" for place in range(len(groups)))
    given = {f"group_{place}": name for place, name in enumerate(groups)}
    sql = _REASONS.replace("{of_groups}", of_groups)
    found = engine.ask(sql, given, group=group).rows if groups else []
    reasons = {tuple(row[:3]): row[3:] for row in found}
    answers = []
    for name, of_broker, dimension, limit, used, demand, enforced, status, ends_at in leases:
        reason = since = None
        if (name, of_broker, dimension) in reasons:
            then, asked_for, quota, code, numbers, since = reasons[name, of_broker, dimension]
            reason = reason_text(code, numbers, then, asked_for, quota)
        known = (name, of_broker, dimension, limit, used, demand, enforced, status, ends_at)
        answers.append(dict(zip(COLUMNS, (*known, since, reason), strict=True)))
    return answers
