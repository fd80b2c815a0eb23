"""What routes about the history share: periods, and numbers that JSON lacks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Annotated, Any, Final

from fastapi import Query
from starlette.responses import Response

from quotaplane.point_in_time import parse_since
from quotaplane.server.request_parts import json_answer

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
        InputError: one is neither a time nor an age.
    """
    at = now()
    begin = parse_since(since, at, option="query parameter since")
    end = at if until is None else parse_since(until, at, option="query parameter until")
    return begin, end


def now() -> datetime:
    """The time in whole milliseconds, as answers have them."""
    at = datetime.now(timezone.utc)
    return at - timedelta(microseconds=at.microsecond % 1000)


def finite_answer(content: Mapping[str, Any]) -> Response:
    """A JSON answer with null instead of infinity and NaN."""
    return json_answer(without_infinity(content))


def without_infinity(value: Any) -> Any:
    """JSON has no infinity and no NaN.

    >>> without_infinity({"used_part": math.inf, "rows": [(1.5, math.nan)]})
    {'used_part': None, 'rows': [[1.5, None]]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: without_infinity(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_infinity(item) for item in value]
    return value
