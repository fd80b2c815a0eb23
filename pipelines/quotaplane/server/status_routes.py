"""``/api/v1``: the present state of the job, groups and brokers, from the server's picture."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from quotaplane.errors import InputError
from quotaplane.model import DIMENSIONS, MAX_GROUP_CHARS, BoolArray
from quotaplane.query.cluster_picture import MOST_USED_FIRST, SORTS, ClusterPicture
from quotaplane.server.access import Principal, Role
from quotaplane.server.refusals import answers
from quotaplane.server.request_parts import Limit, Offset, finite_answer
from quotaplane.server.services import Caller, Served, Services
from quotaplane.server.status_schemas import HeatMapAnswer, StatusAnswer

routes: Final = APIRouter(prefix="/api/v1", tags=["history"])

_MATRICES: Final = ("used_per_s", "limit_per_s", "demand_per_s", "part")

_Search = Annotated[
    str | None, Query(max_length=MAX_GROUP_CHARS, description="Part of the name, in any case.")
]
_Sort = Annotated[
    str,
    Query(
        description="`worst_share`: the most unfair first; `-used_part`: those that use most of "
        "their quota; a hyphen: descending.",
        json_schema_extra={"enum": SORTS},
    ),
]
_Dimension = Annotated[
    str | None,
    Query(description="Of this dimension only.", json_schema_extra={"enum": DIMENSIONS}),
]
_Page = Annotated[int, Query(ge=1, le=200, description="Most items in the answer.")]


@routes.get("/status", response_model=StatusAnswer, responses=answers())
async def status(
    caller: Caller,
    served: Served,
    search: _Search = None,
    dimension: _Dimension = None,
    sort: _Sort = MOST_USED_FIRST,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """The job's last round, and groups of the caller's tenants beside their quotas.

    A row for each dimension with a quota; by default sorted by the used part, the highest first.
    """
    _check(dimension, sort)
    picture, mine = await _picture(caller, served)
    chosen = mine if search is None else mine & picture.containing(search)
    total, rows = picture.page(chosen, dimension, sort, offset, limit)
    job = picture.job(datetime.now(timezone.utc))
    answer: dict[str, Any] = {
        "as_of": picture.as_of,
        "job": None if job is None else vars(job),
        "counts": picture.counts(mine),
        "total": total,
        "groups": rows,
    }
    return finite_answer(answer)


@routes.get("/heat-map", response_model=HeatMapAnswer, responses=answers())
async def heat_map(
    caller: Caller,
    served: Served,
    dimension: Annotated[
        str | None,
        Query(
            description="By default the one in which most groups have a quota.",
            json_schema_extra={"enum": DIMENSIONS},
        ),
    ] = None,
    search: _Search = None,
    sort: _Sort = MOST_USED_FIRST,
    limit: _Page = 40,
    offset: Offset = 0,
    brokers: Annotated[int, Query(ge=1, le=200, description="Most brokers in the answer.")] = 40,
) -> Response:
    """Usage, limits and demand in one dimension, of groups of the caller's tenants by broker."""
    _check(dimension, sort)
    picture, mine = await _picture(caller, served)
    chosen = mine if search is None else mine & picture.containing(search)
    found = picture.heat_map(
        chosen, dimension or picture.main_dimension, sort, offset, limit, brokers
    )
    matrices = {name: getattr(found, name).tolist() for name in _MATRICES}
    return finite_answer({"as_of": picture.as_of, **vars(found), **matrices})


def _check(dimension: str | None, sort: str) -> None:
    if dimension is not None and dimension not in DIMENSIONS:
        raise InputError(f"query parameter dimension: must be one of {', '.join(DIMENSIONS)}")
    if sort not in SORTS:
        raise InputError(f"query parameter sort: must be one of {', '.join(SORTS)}")


async def _picture(caller: Principal, served: Services) -> tuple[ClusterPicture, BoolArray]:
    """The newest picture, and (g,) whether the caller may see each group."""
    picture = await served.picture.get()
    return picture, served.picture.visible(picture, caller.tenants(Role.VIEWER))
