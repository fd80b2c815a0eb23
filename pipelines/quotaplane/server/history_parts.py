"""The period that a request about the history has: shared by its routes."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Annotated, Final

from fastapi import Query

from quotaplane.parsing.point_in_time import check_order, parse_since, parse_until

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
