"""Pulsar's own paths for resource groups, with its verbs and answers: pulsar-admin works on them.

Beside what Pulsar 4.0 has, a name may have slashes, and tenants are attached as PIP-82 lists it;
``spellings`` has PIP-82's other paths and verbs.
"""

from __future__ import annotations

import math
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from quotaplane.errors import UnknownGroupError
from quotaplane.groups.attachments import Kind
from quotaplane.groups.pulsar_fields import RATE_KEYS, UNLIMITED, read_fields
from quotaplane.model import DIMENSIONS, RATE_COLUMNS
from quotaplane.pulsar_admin.resource_groups import MOST_RATES
from quotaplane.registry.group_input import GivenGroup
from quotaplane.server.access import Principal, Role, belongs
from quotaplane.server.group_writer import ChangeRequest
from quotaplane.server.refusals import AnswerError, answers
from quotaplane.server.request_parts import (
    GroupName,
    WhyHeader,
    body_schema,
    json_answer,
    read_body,
    reason_of,
)
from quotaplane.server.schemas import PulsarGroup
from quotaplane.server.services import Caller, Served, Services, allow, allow_group

routes: Final = APIRouter(prefix="/admin/v2", tags=["pulsar"])

_NAME: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The group's name.",
        "content": {"text/plain": {"schema": {"type": "string"}}},
    },
    204: {"description": "Not attached to a group."},
}


def _changes(*statuses: int) -> dict[str, Any]:
    """Arguments of a route that changes something: it answers 204, or one of these errors."""
    responses = {204: {"description": "Done."}, **answers(404, 409, *statuses)}
    return {"status_code": 204, "response_class": Response, "responses": responses}


_GROUPS: Final = "/resourcegroups"
_NAMESPACE: Final = "/namespaces/{tenant}/{namespace}/resourcegroup"
_TENANT: Final = "/tenants/{tenant}/resourcegroup"


@routes.get(_GROUPS, response_model=list[str], responses=answers())
async def list_groups(caller: Caller, served: Served) -> Response:
    """The names of all groups of the caller's tenants."""
    groups = await served.groups.get()
    tenants = caller.tenants(Role.VIEWER)
    names = groups.rows["group"]
    if tenants is not None:
        names = names.filter(belongs(names, tenants))
    return json_answer(names.to_pylist())


@routes.get(_GROUPS + "/{group:path}", response_model=PulsarGroup, responses=answers(404))
async def get_group(group: GroupName, caller: Caller, served: Served) -> Response:
    """A group's rates per second, rounded up; -1 is unlimited.

    A rate above the greatest that Pulsar's clients can read is that one: their messages have 32
    bits. Its other fields follow if it has some.
    """
    allow_group(caller, Role.VIEWER, group, served)
    groups = await served.groups.get()
    place = groups.find(group)
    if place is None:
        raise UnknownGroupError("ResourceGroup does not exist")
    row = groups.rows.slice(place, 1).to_pylist()[0]
    rates = (row[column] for column in RATE_COLUMNS[: len(RATE_KEYS)])
    whole = [
        UNLIMITED if rate is None else min(math.ceil(rate), most)
        for rate, most in zip(rates, MOST_RATES, strict=True)
    ]
    rates_of_pulsar = dict(zip(RATE_KEYS, whole, strict=True))
    return json_answer({**read_fields(row["pulsar_fields"]), **rates_of_pulsar})


@routes.put(
    _GROUPS + "/{group:path}",
    openapi_extra=body_schema(PulsarGroup),
    **_changes(412, 413, 415, 502),
)
async def put_group(
    group: GroupName, request: Request, caller: Caller, served: Served, why: WhyHeader = None
) -> Response:
    """Create a group, or change the rates and other fields that are given."""
    allow_group(caller, Role.OPERATOR, group, served)
    body, _ = await read_body(request, PulsarGroup)
    others = body.model_dump(exclude=set(RATE_KEYS), exclude_none=True)
    given = [getattr(body, key) for key in RATE_KEYS]
    rates = [math.nan if r is None else math.inf if r == UNLIMITED else float(r) for r in given]
    rest = [math.nan] * (len(DIMENSIONS) - len(rates))
    await served.group_writer.put(
        group,
        GivenGroup([*rates, *rest], [math.nan] * len(DIMENSIONS), {}),
        ChangeRequest(caller.name, reason_of(why)),
        in_cluster=True,
        # An empty object is what a client of such a version sends for none.
        fields={name: value for name, value in others.items() if value != {}},
    )
    return Response(status_code=204)


@routes.delete(_GROUPS + "/{group:path}", **_changes(412, 502))
async def delete_group(
    group: GroupName, caller: Caller, served: Served, why: WhyHeader = None
) -> Response:
    """Delete a group; refused (412) while a tenant or namespace is attached to it."""
    allow_group(caller, Role.OPERATOR, group, served)
    change = ChangeRequest(caller.name, reason_of(why))
    await served.group_writer.delete(group, change)
    return Response(status_code=204)


@routes.get(_NAMESPACE, response_class=Response, responses={**_NAME, **answers(404, 502)})
async def get_namespace(tenant: str, namespace: str, caller: Caller, served: Served) -> Response:
    """The group that a namespace is attached to itself, as plain text."""
    return await _get("namespace", f"{tenant}/{namespace}", caller, served)


@routes.post(_NAMESPACE + "/{group:path}", **_changes(412, 502))
async def attach_namespace(
    tenant: str,
    namespace: str,
    group: GroupName,
    caller: Caller,
    served: Served,
    why: WhyHeader = None,
) -> Response:
    """Attach a namespace to a group, in place of another one."""
    name = f"{tenant}/{namespace}"
    return await _attach("namespace", name, group, caller, served, reason_of(why))


@routes.delete(_NAMESPACE, **_changes(412, 502))
async def detach_namespace(
    tenant: str, namespace: str, caller: Caller, served: Served, why: WhyHeader = None
) -> Response:
    """Detach a namespace from its group."""
    name = f"{tenant}/{namespace}"
    return await _attach("namespace", name, None, caller, served, reason_of(why))


@routes.get(_TENANT, response_class=Response, responses={**_NAME, **answers(404)})
async def get_tenant(tenant: str, caller: Caller, served: Served) -> Response:
    """The group that a tenant is attached to, as plain text."""
    return await _get("tenant", tenant, caller, served)


@routes.post(_TENANT + "/{group:path}", **_changes(412))
async def attach_tenant(
    tenant: str, group: GroupName, caller: Caller, served: Served, why: WhyHeader = None
) -> Response:
    """Attach a tenant to a group, in place of another one: all namespaces without their own."""
    return await _attach("tenant", tenant, group, caller, served, reason_of(why))


@routes.delete(_TENANT, **_changes())
async def detach_tenant(
    tenant: str, caller: Caller, served: Served, why: WhyHeader = None
) -> Response:
    """Detach a tenant from its group."""
    return await _attach("tenant", tenant, None, caller, served, reason_of(why))


async def _get(kind: Kind, name: str, caller: Principal, served: Services) -> Response:
    allow(caller, Role.VIEWER, name.partition("/")[0], served)
    group = await served.attachments.group_of(kind, name)
    # Pulsar answers the bare name, without quotes, and its client prints the body as it is.
    return Response(status_code=204) if group is None else PlainTextResponse(group)


async def _attach(
    kind: Kind,
    name: str,
    group: str | None,
    caller: Principal,
    served: Services,
    why: str | None,
) -> Response:
    allow(caller, Role.OPERATOR, name.partition("/")[0], served)
    if group is not None:
        # Or a tenant could use up another one's quota.
        allow_group(caller, Role.OPERATOR, group, served)
    try:
        await served.attachments.attach(kind, name, group, caller.name, why)
    except UnknownGroupError:
        raise AnswerError(412, "ResourceGroup does not exist") from None
    return Response(status_code=204)
