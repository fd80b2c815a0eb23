"""The limits that are in force now, with their reasons: for a list, not for every lease at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from math import inf
from typing import Any, Final

from quotaplane.laws.explain import reason_text
from quotaplane.query.administrator_rate_texts import AdministratorRateTexts
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
    "administrators_rates",
)

_LEASES: Final = """
SELECT resource_group AS "group", broker, dimension, limit_per_s, used_per_s, demand_per_s,
  enforced, broker_status, lease_ends_at, epoch, seq
FROM lease_values
WHERE has_limit AND limit_per_s IS NOT NULL
  AND (:resource_group = '' OR resource_group = :resource_group)
  AND (:broker = '' OR broker = :broker)
ORDER BY used_per_s / nullif(limit_per_s, 0) DESC, resource_group, broker, dimension
LIMIT :most
"""

# The leases are recorded every few seconds only, so the newest limit may be a later one.
_NEWEST: Final = """
SELECT resource_group AS "group", broker, dimension, limit_per_s, demand_per_s, quota_per_s,
  reason_code, reason_numbers, enforced, lease_ms, epoch, seq, round_at
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
    leases = engine.ask(_LEASES, asked, group=group).dicts()
    groups = sorted({lease["group"] for lease in leases})
    # Files and their parts are left out for single values, but not for a list in a parameter.
    of_groups = " OR ".join(f"resource_group = :group_{place}" for place in range(len(groups)))
    given = {f"group_{place}": name for place, name in enumerate(groups)}
    sql = _NEWEST.replace("{of_groups}", of_groups)
    found = engine.ask(sql, given, group=group).dicts() if groups else []
    newest = {_key(limit): limit for limit in found}
    rows = [_in_force(lease, newest.get(_key(lease))) for lease in leases]
    administrators = AdministratorRateTexts(engine, group)
    for row in rows:
        row["administrators_rates"] = administrators.of(row["group"], row["dimension"])
    return [row for row in rows if row["limit_per_s"] < inf]


def _in_force(lease: Mapping[str, Any], newest: Mapping[str, Any] | None) -> dict[str, Any]:
    """A row of the answer; ``newest`` is the newest limit that is recorded."""
    row = {name: lease.get(name) for name in COLUMNS}
    if newest is None:  # it has not changed for longer than limits are kept
        return row
    if _round(newest) > _round(lease):
        row["limit_per_s"], row["enforced"] = newest["limit_per_s"], newest["enforced"]
        row["lease_ends_at"] = newest["round_at"] + timedelta(milliseconds=newest["lease_ms"])
    row["since"] = newest["round_at"]
    row["reason"] = reason_text(
        newest["reason_code"],
        newest["reason_numbers"],
        newest["limit_per_s"],
        newest["demand_per_s"],
        newest["quota_per_s"],
    )
    return row


def _key(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["group"], row["broker"], row["dimension"]


def _round(row: Mapping[str, Any]) -> tuple[int, int]:
    return row["epoch"], row["seq"]
