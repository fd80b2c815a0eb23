"""Why a broker has its limits, now or at any time in the history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from quotaplane.errors import InputError
from quotaplane.laws.explain import reason_text
from quotaplane.laws.reason import Reason
from quotaplane.laws.reason_numbers import NUMBERS
from quotaplane.query.administrator_rate_texts import AdministratorRateTexts
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.texts import utc_text

# Limits are recorded when they change, so the newest row up to a time is the limit in force then.
_LIMITS: Final = """
WITH newest AS (
  SELECT *, row_number() OVER (
    PARTITION BY broker, dimension ORDER BY epoch DESC, seq DESC
  ) AS place
  FROM limit_values
  WHERE resource_group = :resource_group AND round_at <= :moment
    AND (:broker = '' OR broker = :broker)
)
SELECT
  broker, dimension, CASE WHEN limit_per_s < CAST('Infinity' AS DOUBLE) THEN limit_per_s END
    AS limit_per_s,
  ended, enforced, ended_because, lease_ms, demand_per_s, quota_per_s, reason_code, reason_numbers,
  epoch, seq, round_at
FROM newest WHERE place = 1
ORDER BY broker, dimension
"""

_USED: Final = """
SELECT
  broker, dimension, max_by(used_per_s, reported_at) AS used_per_s,
  max_by(throttled_per_s, reported_at) AS throttled_per_s, max(reported_at) AS reported_at
FROM usage_values
WHERE resource_group = :resource_group AND reported_at <= :moment
GROUP BY broker, dimension
"""

_QUOTA: Final = """
SELECT dimension, max_by(to_per_s, version) AS quota_per_s, max_by(mode, version) AS mode,
  max_by(changed_at, version) AS changed_at, max_by(changed_by, version) AS changed_by,
  max_by(deleted, version) AS deleted
FROM quota_changes
WHERE resource_group = :resource_group AND changed_at <= :moment
GROUP BY dimension
"""

_LAW: Final = """
SELECT epoch, seq, law FROM rounds WHERE epoch = :epoch AND seq = :seq
"""

_LOOK_BACK: Final = timedelta(days=1)
_ARRIVES: Final = timedelta(hours=1)
"""The rounds after the time may have reports of before it."""


def why(
    engine: DuckDBEngine, group: str, broker: str | None, moment: datetime
) -> list[dict[str, Any]]:
    """The limits of a group's brokers at a time, each with its reason and what that is made of.

    Args:
        engine: of the history.
        group: the resource group.
        broker: one broker; None: all.
        moment: the time that is asked about.

    Returns:
        A dict per broker and dimension with a quota or a limit: ``broker``, ``dimension``,
        ``limit_per_s`` (None: unlimited), ``enforced``, ``reason`` in words, ``reason_code`` and
        ``numbers`` of the reason by name; ``demand_per_s`` and ``quota_per_s`` as the law was given
        them; ``law``, ``epoch``, ``seq``, ``since``: the round that decided it; ``lease_s``;
        ``used_per_s``, ``throttled_per_s``, ``reported_at``: of the newest report up to the time;
        ``group_quota_per_s``, ``quota_changed_at``, ``quota_changed_by``;
        ``administrators_rates``: a text for each that holds some of the group's topics lower.

    Raises:
        InputError: the group or the broker had no limit at that time; the message says why.
        HistoryError: the history can't be read.
    """
    asked = {"resource_group": group, "broker": broker or "", "moment": moment}
    quotas = {row["dimension"]: row for row in engine.ask(_QUOTA, asked).dicts()}
    limits = engine.ask(_LIMITS, asked, until=moment, group=group).dicts()
    in_force = [row for row in limits if not row["ended"]]
    if not in_force:
        raise InputError(_nothing(group, broker, quotas, limits, moment))
    period = {"since": moment - _LOOK_BACK, "until": moment + _ARRIVES}
    used = {_pair(row): row for row in engine.ask(_USED, asked, group=group, **period).dicts()}
    laws = {
        (epoch, seq): _law(engine, epoch, seq)
        for epoch, seq in {(row["epoch"], row["seq"]) for row in in_force}
    }
    administrators = AdministratorRateTexts(engine, group, moment)
    return [
        _answer(row, quotas, used.get(_pair(row), {}), laws[row["epoch"], row["seq"]])
        | {"administrators_rates": administrators.of(group, row["dimension"])}
        for row in in_force
        if row["limit_per_s"] is not None
        or quotas.get(row["dimension"], {}).get("quota_per_s") is not None
    ]


def _answer(
    row: Mapping[str, Any],
    quotas: Mapping[str, Mapping[str, Any]],
    used: Mapping[str, Any],
    law: str | None,
) -> dict[str, Any]:
    code, numbers = row["reason_code"], row["reason_numbers"]
    quota = quotas.get(row["dimension"], {})
    rates = row["limit_per_s"], row["demand_per_s"], row["quota_per_s"]
    return {
        "broker": row["broker"],
        "dimension": row["dimension"],
        "limit_per_s": row["limit_per_s"],
        "enforced": row["enforced"],
        "reason": reason_text(code, numbers, *rates),
        "reason_code": code,
        "numbers": _named(code, numbers or ()),
        "demand_per_s": row["demand_per_s"],
        "quota_per_s": row["quota_per_s"],
        "law": law,
        "epoch": row["epoch"],
        "seq": row["seq"],
        "since": row["round_at"],
        "lease_s": row["lease_ms"] / 1000,
        "used_per_s": used.get("used_per_s"),
        "throttled_per_s": used.get("throttled_per_s"),
        "reported_at": used.get("reported_at"),
        "group_quota_per_s": quota.get("quota_per_s"),
        "quota_changed_at": quota.get("changed_at"),
        "quota_changed_by": quota.get("changed_by"),
    }


def _named(code: int | None, numbers: Sequence[float]) -> dict[str, float]:
    """The numbers of a reason by name; those of the law's own reason after what delays it."""
    if code is None:
        return {}
    names = NUMBERS.get(Reason(code), ())
    named = dict(zip(names, numbers, strict=False))
    if code in (Reason.WAITING, Reason.STEP) and len(numbers) > len(names):
        named |= _named(int(numbers[0]), numbers[len(names) :])
    return named


def _nothing(
    group: str,
    broker: str | None,
    quotas: Mapping[str, Mapping[str, Any]],
    limits: Sequence[Mapping[str, Any]],
    moment: datetime,
) -> str:
    """Why there is no limit."""
    at = f"at {utc_text(moment)}"
    subject = (
        f"broker {broker!r} had no limit of group {group!r} {at}"
        if broker
        else (f"group {group!r} had no limits {at}")
    )
    if not quotas:
        return f"{subject}: the group was not defined, or never had a quota"
    if all(row["deleted"] for row in quotas.values()):
        return f"{subject}: the group was deleted"
    if limits:  # all have ended
        newest = max(limits, key=lambda row: row["round_at"])
        ended = utc_text(newest["round_at"])
        return f"{subject}: no report named the group for too long; ended {ended}"
    return f"{subject}: no report named the group"


def _law(engine: DuckDBEngine, epoch: int, seq: int) -> str | None:
    rows = engine.ask(_LAW, {"epoch": epoch, "seq": seq}).rows
    return rows[0][2] if rows else None


def _pair(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["broker"], row["dimension"]
