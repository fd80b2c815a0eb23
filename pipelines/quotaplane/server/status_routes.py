"""``/api/v1``: the present state of the job, groups and brokers, from the server's picture."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from quotaplane.errors import InputError
from quotaplane.groups.standing import NEAR_QUOTA, OVER_QUOTA, UNFAIR
from quotaplane.model import DIMENSIONS, MAX_GROUP_CHARS, BoolArray
from quotaplane.query.cluster_picture import MOST_USED_FIRST, SORTS, ClusterPicture
from quotaplane.server.access import Principal, Role
from quotaplane.server.refusals import answers
from quotaplane.server.request_parts import Limit, Offset, finite_answer
from quotaplane.server.services import Caller, Served, Services

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


class JobAnswer(BaseModel):
    """The quota job's last round, and the last minute."""

    epoch: int
    seq: int
    round_at: datetime
    age_s: float = Field(description="Seconds since the last recorded round.")
    duration_s: float | None = Field(description="Seconds of reading and deciding in that round.")
    lag_s: float | None = Field(description="Age of the newest report in that round, in seconds.")
    law: str | None = Field(examples=["max_min"])
    brokers_live: int
    rounds: int = Field(description="In the last minute, as the next four.")
    reports: int
    rejected: int
    outdated: int = Field(
        description="Reports that had been seen before, or are older than one already used. If "
        "they go on, two agents have the same broker name."
    )
    limits: int = Field(description="Limits published.")


class GroupStanding(BaseModel):
    """A group beside its quota in one dimension; rates are in the dimension's unit per second."""

    group: str = Field(examples=["acme::orders"])
    dimension: str = Field(examples=["publish_bytes"])
    quota_per_s: float
    used_per_s: float
    used_part: float | None = Field(
        description="Usage divided by the quota; null: something is used of a quota of 0."
    )
    limits_per_s: float = Field(description="Sum of the brokers' limits.")
    demand_per_s: float = Field(description="Sum over the brokers whose demand is known.")
    saturated: int = Field(
        description="Brokers that want more than their limit, by 5 % or an amount not known."
    )
    throttled_per_s: float = Field(description="Refused or delayed, as far as it is reported.")
    brokers: int
    stale: int = Field(description="Of these, silent ones.")
    worst_share: float | None = Field(
        description="The least part that a broker that wants more has of what it wants or of its "
        "fair share, whichever is less; null: no broker wants more, or floors, priorities or terms "
        "of brokers say who has less."
    )
    mode: str = Field(examples=["hard"])
    unreported: bool = Field(
        description="No broker reports the group or one below it (or none did for a day), and it "
        "was not changed for a day. Often its name is not the one that brokers use."
    )
    parent: str | None = Field(description="The group above it in its tree; null: none.")


class Counts(BaseModel):
    """Numbers of groups of the caller's tenants, not only of those searched; each counted once."""

    groups: int
    over_quota: int = Field(description=f"They use more than {OVER_QUOTA:.0%} of a quota.")
    near_quota: int = Field(
        description=f"They use {NEAR_QUOTA:.0%} to {OVER_QUOTA:.0%} of a quota."
    )
    unfair: int = Field(
        description=f"A broker that wants more has less than {UNFAIR:.0%} of its share."
    )
    throttled: int = Field(description="Something was refused or delayed in the last minute.")
    stale_brokers: int = Field(description="Silent brokers among those that report these groups.")
    brokers_live: int = Field(description="The others of them.")


class StatusAnswer(BaseModel):
    """The state of the job and of groups."""

    as_of: datetime = Field(description="When the history was read; a few seconds ago.")
    job: JobAnswer | None = Field(description="null: no round is recorded.")
    counts: Counts
    total: int = Field(description="How many rows were found.")
    groups: list[GroupStanding]


Matrix = list[list[float | None]]


class HeatMapAnswer(BaseModel):
    """Groups and brokers in one dimension; matrices are lists by group of lists by broker.

    In a tree, a group's values are sums that include the groups below it.
    """

    as_of: datetime = Field(description="When the history was read; a few seconds ago.")
    dimension: str = Field(examples=["publish_bytes"])
    total: int = Field(description="How many groups were found; `groups` is a page of them.")
    groups: list[str]
    brokers: list[str] = Field(
        description="Those with the most limits reached in the groups found, then by name."
    )
    brokers_total: int = Field(description="How many brokers report the groups found.")
    used_per_s: Matrix = Field(description="null: the broker does not report the group.")
    limit_per_s: Matrix = Field(description="null: not reported, or unlimited.")
    demand_per_s: Matrix = Field(description="null: not reported, or saturated: not known.")
    part: Matrix = Field(
        description="Usage divided by the limit; null: there is no limit, or something is used at "
        "a limit of 0."
    )


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
