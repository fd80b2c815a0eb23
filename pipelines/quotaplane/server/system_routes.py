"""``/api/v1``: version, settings, tables, caller; ``/healthz``, ``/readyz``, ``/metrics``."""

from __future__ import annotations

import re
from typing import Any, Final

from fastapi import APIRouter
from starlette.responses import Response

from quotaplane import __version__
from quotaplane.agents.known_conditions import UNREADY
from quotaplane.history.store import location_of
from quotaplane.history.table_health import table_health
from quotaplane.server.access import Role
from quotaplane.server.refusals import answers
from quotaplane.server.request_parts import json_answer
from quotaplane.server.schemas import (
    AliveAnswer,
    MeAnswer,
    ReadyAnswer,
    TablesAnswer,
    VersionAnswer,
)
from quotaplane.server.services import Caller, Served, allow

routes: Final = APIRouter(prefix="/api/v1", tags=["system"])
health: Final = APIRouter(tags=["health"])
"""Routes without a token."""

_LOGIN_IN_URL: Final = re.compile(r"(?<=://)[^/\s@]+@")


@routes.get("/version", response_model=VersionAnswer, responses=answers())
async def version(caller: Caller) -> Response:
    """The version of the server."""
    return json_answer({"version": __version__, "api": "v1"})


@routes.get("/me", response_model=MeAnswer, responses=answers())
async def me(caller: Caller) -> Response:
    """The caller's name and roles."""
    roles = {tenant: role.name.lower() for tenant, role in caller.roles.items()}
    return json_answer({"name": caller.name, "anonymous": caller.is_anonymous, "roles": roles})


@routes.get("/config", response_model=dict[str, Any], responses=answers())
async def config(caller: Caller, served: Served) -> Response:
    """The settings in force, secrets masked; for administrators of all tenants."""
    allow(caller, Role.ADMIN, None, served)
    settings = _masked(served.settings.model_dump(mode="json"))
    return json_answer({"file": served.conf, "settings": settings})


@routes.get("/tables", response_model=TablesAnswer, responses=answers())
async def tables(caller: Caller, served: Served) -> Response:
    """Whether the history's tables exist and are whole; for administrators of all tenants.

    Checks their logs and newest files. `quotaplane doctor` checks every file.
    """
    allow(caller, Role.ADMIN, None, served)
    history = served.settings.history
    found = await served.workers.read(lambda: table_health(history))
    whole = all(table.fault is None for table in found)
    listed = [table._asdict() for table in found]
    return json_answer({"history": location_of(history), "whole": whole, "tables": listed})


@health.options("/healthz", include_in_schema=False)
@health.options("/readyz", include_in_schema=False)
async def options() -> Response:
    """The methods of the health checks."""
    return Response(status_code=204, headers={"Allow": "GET, HEAD, OPTIONS"})


@health.get("/healthz", response_model=AliveAnswer)
async def healthz() -> Response:
    """The process answers; nothing else is checked."""
    return json_answer({"alive": True})


@health.get(
    "/readyz",
    response_model=ReadyAnswer,
    responses={503: {"model": ReadyAnswer, "description": "Not ready; the checks say why."}},
)
async def readyz(served: Served) -> Response:
    """Whether the history can be read and the job makes rounds, as of the last check."""
    checks, wrong = served.readiness.checks(), served.conditions.active()
    ready = all(check.ok for check in checks) and not UNREADY & wrong.keys()
    answer = {
        "ready": ready,
        "checks": [check._asdict() for check in checks],
        "conditions": [*wrong],  # without their items: the answer is for everybody
    }
    return json_answer(answer, 200 if ready else 503)


@health.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Metrics in Prometheus' text format.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
)
async def metrics(served: Served) -> Response:
    """Numbers and durations of requests by route, for Prometheus; no names of groups or people."""
    return Response(served.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _masked(value: Any) -> Any:
    """The value without user names and passwords in URLs; fields of secrets are masked already.

    >>> _masked({"a": ["https://ann:secret@host/x", 1]})
    {'a': ['https://**********@host/x', 1]}
    """
    if isinstance(value, dict):
        return {key: _masked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item) for item in value]
    return _LOGIN_IN_URL.sub("**********@", value) if isinstance(value, str) else value
