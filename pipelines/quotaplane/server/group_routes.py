"""``/api/v1/groups``: groups with their policies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final

import numpy as np
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from quotaplane.errors import InputError, UnknownGroupError
from quotaplane.groups.policy_options import BY_COLUMN, DEFAULTS
from quotaplane.groups.policy_options import JSON_COLUMNS as JSON_OPTIONS
from quotaplane.model import MAX_GROUP_CHARS, RATE_COLUMNS
from quotaplane.registry.current_groups import SORTABLE
from quotaplane.registry.group_input import GivenGroup, read_group
from quotaplane.registry.group_json import etag, group_json, shown
from quotaplane.registry.table import GroupsPut
from quotaplane.server.access import Role, belongs
from quotaplane.server.group_writer import ChangeRequest
from quotaplane.server.refusals import answers
from quotaplane.server.request_parts import (
    DryRun,
    GroupName,
    IfMatch,
    IfNoneMatch,
    Limit,
    Offset,
    WhyHeader,
    body_schema,
    condition,
    is_unchanged,
    json_answer,
    read_body,
    reason_of,
)
from quotaplane.server.schemas import Group, GroupBody, GroupChange, GroupList
from quotaplane.server.services import Caller, Served, allow_group

routes: Final = APIRouter(prefix="/api/v1/groups", tags=["groups"])

_SORTS: Final = (*SORTABLE, *(f"-{name}" for name in SORTABLE))
_NOT_MODIFIED: Final[dict[int | str, dict[str, Any]]] = {
    304: {"description": "As If-None-Match names it."}
}


@routes.get("", response_model=GroupList, responses={**answers(), **_NOT_MODIFIED})
async def list_groups(
    caller: Caller,
    served: Served,
    search: Annotated[
        str | None, Query(max_length=MAX_GROUP_CHARS, description="Part of the name, in any case.")
    ] = None,
    sort: Annotated[
        str,
        Query(description="A column; `-column`: descending.", json_schema_extra={"enum": _SORTS}),
    ] = "group",
    limit: Limit = 100,
    offset: Offset = 0,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """A page of the groups of the caller's tenants. The ETag changes with the table."""
    tenants = caller.tenants(Role.VIEWER)
    groups = await served.groups.get()
    tag = f'"{groups.version}"'
    if sort not in _SORTS:
        raise InputError(f"query parameter sort: must be one of {', '.join(_SORTS)}")
    if is_unchanged(if_none_match, tag):
        return json_answer(b"", etag=tag, cached=True)
    if search is None and tenants is None and sort == "group":
        total = len(groups.rows)
        places = list(range(offset, min(offset + limit, total)))
    else:
        chosen = np.ones(len(groups.rows), np.bool_)
        if tenants is not None:
            chosen &= belongs(groups.rows["group"], tenants)
        if search is not None:
            chosen &= groups.containing(search)
        order = groups.order(sort)
        found = order[chosen[order]]
        total, places = len(found), found[offset : offset + limit].tolist()
    page = groups.page(places)
    head = f'{{"total":{total},"version":{groups.version},"groups":'.encode()
    return json_answer(head + page + b"}", etag=tag)


@routes.get("/{group:path}", response_model=Group, responses={**answers(404), **_NOT_MODIFIED})
async def get_group(
    group: GroupName, caller: Caller, served: Served, if_none_match: IfNoneMatch = None
) -> Response:
    """One group, with its ETag."""
    allow_group(caller, Role.VIEWER, group, served)
    groups = await served.groups.get()
    place = groups.find(group)
    if place is None:
        raise UnknownGroupError(f"group {group!r} does not exist")
    text, tag = groups.text(place)
    return json_answer(text, etag=tag, cached=is_unchanged(if_none_match, tag))


_CHANGES: Final[dict[str, Any]] = {
    "response_model": GroupChange,
    "responses": {
        201: {"model": GroupChange, "description": "The group was created."},
        **answers(404, 409, 412, 413, 415, 502),
    },
    "openapi_extra": body_schema(GroupBody),
}


@routes.put("/{group:path}", **_CHANGES)
async def put_group(
    group: GroupName,
    request: Request,
    caller: Caller,
    served: Served,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
    why: WhyHeader = None,
    dry_run: DryRun = False,
) -> Response:
    """Create a group or replace it; a quota not given is unlimited, an option has its default."""
    allow_group(caller, Role.OPERATOR, group, served)
    raw = await _given(group, request)
    given = read_group({c: v for c, v in raw.items() if v is not None}, _field)
    given = GivenGroup(
        [math.inf if math.isnan(quota) else quota for quota in given.quotas],
        given.timeframe_s,
        {**DEFAULTS, **given.policy},
    )
    change = ChangeRequest(
        caller.name,
        reason_of(why, raw.get("why")),
        condition(group, if_match, if_none_match),
        dry_run,
    )
    return _answer(*await served.group_writer.put(group, given, change), dry_run=dry_run)


@routes.patch("/{group:path}", **_CHANGES)
async def patch_group(
    group: GroupName,
    request: Request,
    caller: Caller,
    served: Served,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
    why: WhyHeader = None,
    dry_run: DryRun = False,
) -> Response:
    """Change the given quotas and options, and keep the others; null: unlimited, or the default.

    A group that does not exist is created.
    """
    allow_group(caller, Role.OPERATOR, group, served)
    raw = await _given(group, request)
    given = patch_of(raw, "body")
    change = ChangeRequest(
        caller.name,
        reason_of(why, raw.get("why")),
        condition(group, if_match, if_none_match),
        dry_run,
    )
    return _answer(*await served.group_writer.put(group, given, change), dry_run=dry_run)


@routes.delete("/{group:path}", response_model=GroupChange, responses=answers(404, 409, 412, 502))
async def delete_group(
    group: GroupName,
    caller: Caller,
    served: Served,
    if_match: IfMatch = None,
    why: WhyHeader = None,
    dry_run: DryRun = False,
) -> Response:
    """Delete a group; refused (412) while a tenant or namespace is attached to it."""
    allow_group(caller, Role.OPERATOR, group, served)
    change = ChangeRequest(
        caller.name,
        reason_of(why),
        condition(group, if_match, None),
        dry_run,
    )
    (row,) = (await served.group_writer.delete(group, change)).to_pylist()
    answer: dict[str, Any] = {
        "group": group,
        "result": "deleted",
        "from": shown({**row, "parent": None}),
        "to": None,
        "dry_run": dry_run,
        "warnings": [],
    }
    return json_answer(answer)


async def _given(group: str, request: Request) -> dict[str, Any]:
    checked, raw = await read_body(request, GroupBody)
    named = checked.group  # type: ignore[attr-defined]
    if named is not None and named != group:
        raise InputError(f"body: group: must be {group!r}, as in the path, or left out")
    return raw


def patch_of(raw: Mapping[str, Any], where: str) -> GivenGroup:
    """The quotas and options that a body of PATCH changes; ``where`` names the body in errors.

    Raises:
        InputError: a value is wrong.
    """
    return read_group(
        {column: _none_means(column) if value is None else value for column, value in raw.items()},
        f"{where}: {{}}".format,
    )


def _none_means(column: str) -> Any:
    """The value that ``read_group`` uses for null."""
    if column in RATE_COLUMNS:
        return "unlimited"
    if column in JSON_OPTIONS:
        return {}
    return BY_COLUMN[column].null_means if column in BY_COLUMN else None


def _field(column: str) -> str:
    return f"body: {column}"


def _answer(put: GroupsPut, warnings: list[str], *, dry_run: bool) -> Response:
    (before,), (after,) = put.before.to_pylist(), put.rows.to_pylist()
    is_new = before["group"] is None
    changed = bool(put.changed[0])
    answer = {
        "group": after["group"],
        "result": "created" if is_new else "changed" if changed else "unchanged",
        "from": None if is_new else shown({**before, "parent": after["parent"]}),
        "to": shown(after),
        "dry_run": dry_run,
        "warnings": warnings,
    }
    status = 201 if is_new and not dry_run else 200
    return json_answer(answer, status, etag=None if dry_run else etag(group_json(after)))
