"""``/api/v1``: one group over time, and refused reports by reason and sender."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from quotaplane.errors import InputError
from quotaplane.model import DIMENSIONS, MAX_GROUP_CHARS
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.query.group_series import group_series
from quotaplane.query.rejected_kinds import rejected_kinds
from quotaplane.server.access import Role
from quotaplane.server.history_parts import A_DAY_AGO, Since, Until, period
from quotaplane.server.history_schemas import RejectedSummary, SeriesAnswer
from quotaplane.server.refusals import answers
from quotaplane.server.request_parts import finite_answer
from quotaplane.server.services import Caller, Served, allow, allow_group

routes: Final = APIRouter(prefix="/api/v1", tags=["history"])


@routes.get("/series", response_model=SeriesAnswer, responses=answers())
async def series(
    caller: Caller,
    served: Served,
    group: Annotated[str, Query(max_length=MAX_GROUP_CHARS, description="The group.")],
    dimension: Annotated[
        str, Query(description="What is used.", json_schema_extra={"enum": DIMENSIONS})
    ] = DIMENSIONS[0],
    since: Since = A_DAY_AGO,
    until: Until = None,
    points: Annotated[int, Query(ge=2, le=2000, description="Most buckets.")] = 300,
) -> Response:
    """Usage, limits, demand and quota of a group over time, by broker; changes of limits."""
    allow_group(caller, Role.VIEWER, group, served)
    if dimension not in DIMENSIONS:
        raise InputError(f"query parameter dimension: must be one of {', '.join(DIMENSIONS)}")
    begin, end = period(since, until)
    if begin >= end:
        raise InputError("query parameter since: must be earlier than until")

    def read(engine: DuckDBEngine) -> dict[str, Any]:
        return group_series(engine, group, dimension, begin, end, points)

    found = await served.queries.ask(("series", group, dimension, since, until, points), read)
    of = {"group": group, "dimension": dimension, "since": begin, "until": end}
    return finite_answer({**of, **found})


@routes.get("/rejected/summary", response_model=RejectedSummary, responses=answers())
async def rejected_summary(
    caller: Caller, served: Served, since: Since = A_DAY_AGO, until: Until = None
) -> Response:
    """Refused reports by reason and sender, the most frequent first; at most 200 rows."""
    allow(caller, Role.VIEWER, None, served)
    begin, end = period(since, until)
    total, rows = await served.queries.ask(
        ("rejected", since, until), lambda engine: rejected_kinds(engine, begin, end)
    )
    return finite_answer({"since": begin, "until": end, "total": total, "rows": rows})
