"""``/api/v1``: the log of changes, rollback, quotas of users, attachments."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated, Final

import pyarrow as pa
import pyarrow.compute as pc
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from quotaplane.errors import InputError
from quotaplane.history.store import require_history
from quotaplane.parsing.point_in_time import parse_since
from quotaplane.registry.group_input import given_state
from quotaplane.registry.group_json import shown_changes
from quotaplane.registry.restore import Restored, restore_groups
from quotaplane.registry.scopes import resolved
from quotaplane.server.access import Role, belongs
from quotaplane.server.group_writer import ChangeRequest
from quotaplane.server.refusals import answers
from quotaplane.server.request_parts import (
    DryRun,
    GroupFilter,
    Limit,
    Offset,
    WhyHeader,
    body_schema,
    json_answer,
    read_body,
    reason_of,
)
from quotaplane.server.schemas import (
    AttachmentList,
    HistoryPage,
    ResolvedQuota,
    RollbackAnswer,
    RollbackBody,
)
from quotaplane.server.services import Caller, Served, allow, allow_group

routes: Final = APIRouter(prefix="/api/v1", tags=["changes"])

_Name = Annotated[str | None, Query(max_length=1024, description="As requests have it.")]


@routes.get("/changes", response_model=HistoryPage, responses=answers())
async def list_changes(
    caller: Caller,
    served: Served,
    group: GroupFilter = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """Changes of groups, the newest first: author, time, reason, old and new values."""
    if group is not None:
        allow_group(caller, Role.VIEWER, group, served)
    page = await served.changes.page(group, caller.tenants(Role.VIEWER), offset, limit)
    return json_answer({"total": page.total, "changes": page.changes})


@routes.post(
    "/rollback",
    response_model=RollbackAnswer,
    responses=answers(409, 413, 415),
    openapi_extra=body_schema(RollbackBody),
)
async def roll_back(
    request: Request,
    caller: Caller,
    served: Served,
    why: WhyHeader = None,
    dry_run: DryRun = False,
) -> Response:
    """Set groups back to their state at a version or time: all of them or none.

    Groups that a Pulsar cluster has are set back one after the other, each in the cluster and in
    the table; after an error, the groups before it stay set back.
    """
    body, _ = await read_body(request, RollbackBody)
    for group in body.groups:
        allow_group(caller, Role.OPERATOR, group, served)
    if not body.groups:
        allow(caller, Role.OPERATOR, None, served)
    if body.version is not None and body.at is not None:
        raise InputError("body: version and at exclude each other")
    at = None
    if body.at is not None:
        at = parse_since(body.at, datetime.now(timezone.utc), option="body: at")
    reason = reason_of(why, body.why)
    in_cluster = served.settings.cluster is not None
    warnings: list[str] = []

    def restore() -> list[Restored]:
        warnings.clear()
        history = served.settings.history
        require_history(history)
        return restore_groups(
            history,
            body.groups,
            caller.name,
            at=at,
            version=body.version,
            why=reason,
            dry_run=dry_run or in_cluster,
            warn=warnings.append,
        )

    run = served.workers.read if dry_run or in_cluster else served.workers.write
    restored = await run(restore)
    if in_cluster and not dry_run:
        for group, _, state in restored:
            change = ChangeRequest(caller.name, reason)
            _, doubts = await served.group_writer.put(group, given_state(state), change)
            warnings += doubts
    served.groups.expire()
    changed = [{"group": group, "from": before, "to": to} for group, before, to in restored]
    answer = {"changed": shown_changes(changed), "dry_run": dry_run, "warnings": warnings}
    return json_answer(answer)


@routes.get("/resolve", response_model=list[ResolvedQuota], responses=answers(), tags=["groups"])
async def resolve(
    caller: Caller, served: Served, user: _Name = None, client: _Name = None
) -> Response:
    """The quotas that apply to requests of a user and a client id, by dimension.

    A name that is not given stands for requests without one.
    """
    allow(caller, Role.VIEWER, None, served)
    groups = await served.groups.get()
    return json_answer(await served.workers.read(lambda: list(resolved(groups.rows, user, client))))


@routes.get("/attachments", response_model=AttachmentList, responses=answers(409))
async def list_attachments(
    caller: Caller,
    served: Served,
    group: GroupFilter = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """What is attached to which group; 409: a Pulsar cluster keeps attachments.

    Scopes and topics belong to no tenant.
    """
    rows = await served.attachments.all()
    if group is not None:
        allow_group(caller, Role.VIEWER, group, served)
        rows = rows.filter(pc.equal(rows["resource_group"], group))
    tenants = caller.tenants(Role.VIEWER)
    if tenants is not None:
        of_tenants = pc.is_in(rows["kind"], pa.array(["tenant", "namespace"]))
        rows = rows.filter(pc.and_(of_tenants, belongs(rows["name"], tenants)))
    page = rows.slice(offset, limit).to_pylist()
    return json_answer({"total": len(rows), "attachments": page})
