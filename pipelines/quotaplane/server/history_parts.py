"""Shared by the routes about the history: the period of a request, the newest rows of a table."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, Final

from fastapi import Query
from starlette.responses import Response

from quotaplane.parsing.point_in_time import check_order, parse_since, parse_until
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.server.access import Role
from quotaplane.server.request_parts import finite_answer
from quotaplane.server.services import allow

LONGEST_SINCE: Final = 64
A_DAY_AGO: Final = "1d"

Since = Annotated[
    str,
    Query(
        max_length=LONGEST_SINCE,
        description="A time (2026-03-01T12:00:00Z) or an age (2h, 7d).",
    ),
]
Until = Annotated[
    str | None, Query(max_length=LONGEST_SINCE, description="As `since`; by default now.")
]


def period(since: str, until: str | None) -> tuple[datetime, datetime]:
    """The times of two query parameters.

    Raises:
        InputError: one is neither a time nor an age, or the second is before the first.
    """
    at = now()
    options = "query parameter since", "query parameter until"
    begin = parse_since(since, at, options[0])
    end = at if until is None else parse_until(until, at, options[1])
    check_order(begin, end, options)
    return begin, end


def now() -> datetime:
    """The time in whole milliseconds, as answers have them."""
    at = datetime.now(timezone.utc)
    return at - timedelta(microseconds=at.microsecond % 1000)


_HIDDEN: Final = ("raw", "date")
"""Columns that are of no use in an answer, or too large."""


def _newest(table: Any) -> str:
    names = ", ".join(name for name in table.schema.names if name not in _HIDDEN)
    return (
        f"SELECT {names} FROM {table.name} WHERE round_at >= :since AND round_at <= :until "
        "ORDER BY round_at DESC, epoch DESC, seq DESC LIMIT :most OFFSET :begin"
    )


async def newest_rows(
    table: Any, caller: Any, served: Any, since: str, until: str | None, limit: int, offset: int
) -> Response:
    """Answer with the newest rows of a history table that has a row's round.

    Only for viewers of all tenants.
    """
    allow(caller, Role.VIEWER, None, served)
    begin, end = period(since, until)

    def read(engine: DuckDBEngine) -> list[dict[str, Any]]:
        given = {"most": limit, "begin": offset}
        return engine.ask(_newest(table), given, since=begin, until=end, read_since=begin).dicts()

    key = (table.name, since, until, limit, offset)
    return finite_answer(
        {"since": begin, "until": end, "rows": await served.queries.ask(key, read)}
    )
