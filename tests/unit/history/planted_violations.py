"""Violations planted in a healthy recorded history, by the audit that is to find them.

tests/unit/query/test_audit_violations.py asks DuckDB, tests/spark/test_audits.py asks Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa
from deltalake import write_deltalake

from quotaplane.deltalog.read import read_rows
from quotaplane.history.store import open_table, table_uri
from quotaplane.history.tables import TABLES
from quotaplane.settings import History
from tests.unit.query.audit_cases import change
from tests.unit.sim.recorded_history import at, edit

Row = dict[str, Any]


class Planted(NamedTuple):
    """A violation."""

    audit: str
    plant: Callable[[History], None]
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    """Rows that the audit finds."""


def _exceeded(history: History) -> None:
    """For four seconds a broker lets through half as much again as it may."""

    def worse(row: Row) -> None:
        if _is_of(row, "b1", "acme/orders") and at(150) <= row["published_at"] < at(154):
            row["publish_messages_per_s"] *= 1.5

    edit(history, "usage", worse)


def _conservation(history: History) -> None:
    """A broker's limit is 30 too high for ten seconds."""
    _put_limits(history, "b2", "acme/orders", {120.0: 30.0, 130.0: 0.0}, added=True)


def _oscillation(history: History) -> None:
    """The limits of an idle broker go up and down, and never above what they were."""
    steps = {100.0 + 5 * n: 30.0 if n % 2 else 15.0 for n in range(15)}
    _put_limits(history, "b1", "acme/quiet", steps)


def _propagation(history: History) -> None:
    """A group is deleted, and its brokers keep their limits."""
    change(history, 100, "eve", "acme/quiet", None)


def _staleness(history: History) -> None:
    """No round ran for 40 seconds; leases are of 30."""
    edit(history, "rounds", lambda row: not at(110.1) < row["round_at"] < at(149.1))


def _not_ended(history: History) -> None:
    """A broker expires, and its limits do not end."""
    _put_statuses(history, "b2", {98.2: "stale", 100.2: "gone"})


def _not_expired(history: History) -> None:
    """A broker is stale and never expires."""
    _put_statuses(history, "b2", {100.2: "stale"})


def _starvation(history: History) -> None:
    """A broker that wants 80 has a limit of 4 for twenty seconds, others have what they had."""
    _put_limits(history, "b1", "acme/orders", {150.0: 4.0, 170.0: 40.0})

    def less(row: Row) -> None:
        if _is_of(row, "b1", "acme/orders") and at(150) < row["published_at"] <= at(170):
            row["publish_messages_per_s"] = 4.0
            row["throttled_publish_messages_per_s"] = 76.0

    edit(history, "usage", less)


def _is_of(row: Row, broker: str, group: str) -> bool:
    return (row["broker"], row["resource_group"]) == (broker, group)


def _put_limits(
    history: History, broker: str, group: str, steps: dict[float, float], *, added: bool = False
) -> None:
    """Append limits of a broker by the second; else like the group's last one before that.

    ``added``: they are added to the broker's last one.
    """
    rows = read_rows(open_table(history, "limits")).to_pylist()
    of_group = sorted(
        (r for r in rows if r["resource_group"] == group and r["round_at"] < at(min(steps))),
        key=lambda row: row["seq"],
    )
    before = [r for r in of_group if r["broker"] == broker][-1]["publish_messages_per_s"]
    new = []
    for second, limit in steps.items():
        row = {**of_group[-1], **_stamp(second), "broker": broker}
        row["publish_messages_per_s"] = limit + (before if added else 0.0)
        new.append(row)
    _append(history, "limits", new)


def _put_statuses(history: History, broker: str, statuses: dict[float, str]) -> None:
    last = {"broker": broker, "last_seen_at": at(min(statuses) - 2)}
    new = [{**last, **_stamp(second), "status": name} for second, name in statuses.items()]
    _append(history, "brokers", new)


def _stamp(second: float) -> Row:
    """Columns of the round at a second."""
    round_at = at(int(second)) + timedelta(milliseconds=200)
    return {"epoch": 1, "seq": int(second), "round_at": round_at, "date": round_at.date()}


def _append(history: History, name: str, rows: list[Row]) -> None:
    schema = pa.schema([field.remove_metadata() for field in TABLES[name].schema])
    table = pa.Table.from_pylist(rows, schema)
    write_deltalake(table_uri(history, name), table, mode="append")


_MESSAGES: Final = "publish_messages"
_STALE: Final = ("problem", "broker", "since_at", "until_at", "limits")
PLANTED: Final = (
    Planted(
        "exceeded",
        _exceeded,
        ("broker", "resource_group", "dimension", "first_at", "last_at", "worst_used_per_s"),
        [("b1", "acme/orders", _MESSAGES, at(150), at(153), 60.0)],
    ),
    Planted(
        "conservation",
        _conservation,
        ("resource_group", "dimension", "first_at", "until_at", "quota_per_s", "excess_per_s"),
        [("acme/orders", _MESSAGES, at(120.2), at(130.2), 90.0, 30.0)],
    ),
    Planted(
        "oscillation",
        _oscillation,
        ("broker", "resource_group", "dimension", "swings", "lowest_per_s", "highest_per_s"),
        [("b1", "acme/quiet", _MESSAGES, 15, 15.0, 50.0)],
    ),
    Planted(
        "propagation",
        _propagation,
        ("resource_group", "dimension", "changed_at", "changed_by", "state"),
        [("acme/quiet", _MESSAGES, at(100), "eve", "pending")],
    ),
    Planted("staleness", _staleness, _STALE, [("not renewed", None, at(135.2), at(149.2), 9)]),
    Planted("staleness", _not_ended, _STALE, [("not ended", "b2", at(130.2), None, 2)]),
    Planted("staleness", _not_expired, _STALE, [("not expired", "b2", at(160.2), None, 0)]),
    Planted(
        "starvation",
        _starvation,
        ("broker", "resource_group", "dimension", "reports", "lowest_limit_per_s"),
        [("b1", "acme/orders", _MESSAGES, 20, 4.0)],
    ),
)
