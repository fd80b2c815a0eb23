"""Small rows for the history's tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from quotaplane.history.tables import ROUNDS, STAMP_COLUMNS
from quotaplane.laws import Reason
from quotaplane.model import DIMENSIONS, RATE_COLUMNS
from quotaplane.settings import History

NAN = float("nan")
INF = float("inf")
NOON_MS = 1_772_366_400_000
"""2026-03-01T12:00:00Z."""
DAY_MS = 86_400_000


def usage(
    rows: Sequence[tuple[str, str, float]],
    published_at_ms: int = NOON_MS,
    position: str = "0:1",
    dimension: str = DIMENSIONS[0],
    *,
    throttled: float | None = None,
    window_ms: int | None = None,
    started_at_ms: int | None = None,
    counter: float | None = None,
) -> pa.Table:
    """Usage rows (broker, group, rate) of one dimension; other dimensions are null.

    ``throttled`` is what was refused of each; ``counter`` what each used since ``started_at_ms``.
    """
    brokers, groups, rates = zip(*rows, strict=True) if rows else ((), (), ())
    columns: dict[str, Any] = {
        "broker": pa.array(brokers, pa.string()).dictionary_encode(),
        "resource_group": pa.array(groups, pa.string()).dictionary_encode(),
        "published_at_ms": pa.array([published_at_ms] * len(rows), pa.int64()),
        "position": pa.array([position] * len(rows), pa.string()),
        **{name: pa.array([NAN] * len(rows), pa.float64()) for name in RATE_COLUMNS},
    }
    columns[f"{dimension}_per_s"] = pa.array(rates, pa.float64())
    if throttled is not None:
        columns[f"throttled_{dimension}_per_s"] = pa.array([throttled] * len(rows), pa.float64())
    if window_ms is not None:
        columns["window_ms"] = pa.array([window_ms] * len(rows), pa.int64())
    if started_at_ms is not None:
        columns["broker_started_at_ms"] = pa.array([started_at_ms] * len(rows), pa.int64())
    if counter is not None:
        columns[f"counter_{dimension}"] = pa.array([counter] * len(rows), pa.float64())
    return pa.table(columns)


def limits(
    rows: Sequence[tuple[str, str, float]],
    reason: Reason = Reason.FAIR_SHARE,
    *,
    ended_because: str | None = None,
    dimension: str = DIMENSIONS[0],
    enforced: bool = True,
    lease_ms: int = 120_000,
    quota: float | None = None,
    demand: float | None = None,
) -> pa.Table:
    """Limits on (broker, group) of a dimension; the others are unlimited.

    ``quota`` is what the law divided, ``demand`` what it was given of each broker.
    """
    brokers, groups, rates = zip(*rows, strict=True)
    columns: dict[str, Any] = {
        "broker": pa.array(brokers),
        "resource_group": pa.array(groups),
        **{name: pa.array([INF] * len(rows), pa.float64()) for name in RATE_COLUMNS},
        **{f"{name}_reason_code": pa.array([0] * len(rows)) for name in DIMENSIONS},
        "lease_ms": pa.array([lease_ms] * len(rows), pa.int64()),
        "ended": pa.array([ended_because is not None] * len(rows)),
        "ended_because": pa.array([ended_because] * len(rows), pa.string()),
        "enforced": pa.array([None if ended_because else enforced] * len(rows), pa.bool_()),
    }
    if quota is not None:
        columns[f"quota_{dimension}_per_s"] = pa.array([quota] * len(rows))
    if demand is not None:
        columns[f"demand_{dimension}_per_s"] = pa.array([demand] * len(rows))
    columns[f"{dimension}_per_s"] = pa.array(rates, pa.float64())
    columns[f"{dimension}_reason_code"] = pa.array([int(reason)] * len(rows))
    return pa.table(columns)


def brokers(rows: Sequence[tuple[str, str, int]]) -> pa.Table:
    """Changes of status: (broker, status, last_seen_at_ms)."""
    names, statuses, seen = zip(*rows, strict=True)
    return pa.table(
        {"broker": list(names), "status": list(statuses), "last_seen_at_ms": list(seen)}
    )


def rounds(reports: int = 1, **numbers: int) -> pa.Table:
    """The one row of a round; columns of numbers that are not given are 0."""
    counts = (f.name for f in ROUNDS.schema if f.type == pa.int64())
    row = {name: [0] for name in counts if name not in STAMP_COLUMNS}
    given = {name: [number] for name, number in numbers.items()}
    return pa.table({**row, "positions": ["{}"], "reports": [reports], **given})


def rejected(published_at_ms: Sequence[int] = (NOON_MS,)) -> pa.Table:
    """Dead letters, one per time."""
    n = len(published_at_ms)
    return pa.table(
        {
            "position": ["reports:0:7"] * n,
            "published_at_ms": pa.array(published_at_ms, pa.int64()),
            "reason": ["truncated"] * n,
            "detail": pa.nulls(n, pa.string()),
            "counts_as_bad": [True] * n,
            "raw": [b"\xff\x00"] * n,
        }
    )


def read(history: History, name: str) -> pa.Table:
    """All rows of a table, read by a new handle."""
    return DeltaTable(Path(history.path) / name).to_pyarrow_table()


def full_round() -> dict[str, pa.Table]:
    """Rows of each table of a round, in no order."""
    return {
        "rounds": rounds(),
        "usage": usage([("b1", "g1", 10.0), ("b2", "g1", 20.0)]),
        "limits": limits([("b1", "g1", 50.0)]),
        "brokers": brokers([("b1", "live", NOON_MS)]),
        "rejected_reports": rejected(),
    }
