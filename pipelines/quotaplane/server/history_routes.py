"""``/api/v1``: limits with their reasons, rounds, audits."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from quotaplane.errors import InputError
from quotaplane.groups.option_kinds import number
from quotaplane.history.tables import REJECTED_REPORTS, ROUNDS
from quotaplane.model import MAX_BROKER_CHARS, MAX_GROUP_CHARS
from quotaplane.parsing.point_in_time import parse_since
from quotaplane.query.audit import list_audits
from quotaplane.query.cluster_status import broker_status
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.query.limit_reasons import why
from quotaplane.query.limits_in_force import limits_in_force
from quotaplane.server.access import Role
from quotaplane.server.history_parts import (
    A_DAY_AGO,
    LONGEST_SINCE,
    Since,
    Until,
    newest_rows,
    now,
    period,
)
from quotaplane.server.history_schemas import (
    AuditList,
    AuditRows,
    BrokerList,
    LimitList,
    RowList,
    WhyAnswer,
)
from quotaplane.server.refusals import AnswerError, answers
from quotaplane.server.request_parts import GroupFilter, Limit, Offset, finite_answer, json_answer
from quotaplane.server.services import Caller, Served, allow, allow_group

routes: Final = APIRouter(prefix="/api/v1", tags=["history"])

_BrokerFilter = Annotated[
    str | None, Query(max_length=MAX_BROKER_CHARS, description="Of this broker only.")
]


@routes.get("/limits", response_model=LimitList, responses=answers())
async def limits(
    caller: Caller,
    served: Served,
    group: GroupFilter = None,
    broker: _BrokerFilter = None,
    limit: Limit = 100,
) -> Response:
    """Limits in force with their reasons, the most used first.

    Without a group, only for viewers of all tenants.
    """
    if group is None:
        allow(caller, Role.VIEWER, None, served)
    else:
        allow_group(caller, Role.VIEWER, group, served)
    found = await served.queries.ask(
        ("limits", group, broker, limit),
        lambda engine: limits_in_force(engine, group, broker, limit),
    )
    return finite_answer({"limits": found})


@routes.get("/why", response_model=WhyAnswer, responses=answers())
async def limit_reasons(
    caller: Caller,
    served: Served,
    group: Annotated[str, Query(max_length=MAX_GROUP_CHARS, description="The group.")],
    broker: _BrokerFilter = None,
    at: Annotated[
        str | None,
        Query(max_length=LONGEST_SINCE, description="A time or an age; by default now."),
    ] = None,
) -> Response:
    """The limits of a group's brokers, now or at a time, with inputs, law, round and reason."""
    allow_group(caller, Role.VIEWER, group, served)
    asked_at = now()
    moment = asked_at if at is None else parse_since(at, asked_at, option="query parameter at")
    found = await served.queries.ask(
        ("why", group, broker, at),
        lambda engine: why(engine, group, broker, moment),
    )
    return finite_answer({"at": moment, "limits": found})


@routes.get("/brokers", response_model=BrokerList, responses=answers())
async def brokers(caller: Caller, served: Served) -> Response:
    """The brokers: status and its begin, last report, groups, limits reached, rejected reports."""
    allow(caller, Role.VIEWER, None, served)
    found = await served.queries.ask("brokers", lambda engine: broker_status(engine, now()))
    return finite_answer({"brokers": found})


@routes.get("/rounds", response_model=RowList, responses=answers())
async def rounds(
    caller: Caller,
    served: Served,
    since: Since = A_DAY_AGO,
    until: Until = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """The job's rounds, the newest first: the columns of the table `rounds`."""
    return await newest_rows(ROUNDS, caller, served, since, until, limit, offset)


@routes.get("/rejected", response_model=RowList, responses=answers())
async def rejected(
    caller: Caller,
    served: Served,
    since: Since = A_DAY_AGO,
    until: Until = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """Dead letters, the newest first: the columns of `rejected_reports` without the bytes."""
    return await newest_rows(REJECTED_REPORTS, caller, served, since, until, limit, offset)


@routes.get("/audits", response_model=AuditList, responses=answers())
async def audits(caller: Caller, served: Served) -> Response:
    """The audits and their parameters."""
    allow(caller, Role.VIEWER, None, served)
    listed = [
        {
            "name": audit.name,
            "question": audit.question,
            "finds_violations": audit.violation is not None,
            "parameters": {name: vars(each) for name, each in audit.parameters.items()},
        }
        for audit in list_audits()
    ]
    return json_answer({"audits": listed})


@routes.get("/audits/{name}", response_model=AuditRows, responses=answers(404))
async def audit(
    name: str,
    caller: Caller,
    served: Served,
    since: Since = A_DAY_AGO,
    until: Until = None,
    given: Annotated[
        str | None,
        Query(
            alias="set",
            max_length=1000,
            description="Parameters of the audit: `tolerance=0.1,rounds=5`.",
        ),
    ] = None,
    limit: Limit = 1000,
) -> Response:
    """The rows of an audit's answer, and the number of violations among them."""
    allow(caller, Role.VIEWER, None, served)
    # Not ``load_audit``, which also reads files by their paths.
    asked = next((each for each in list_audits() if each.name == name), None)
    if asked is None:
        raise AnswerError(404, f"there is no audit {name!r}")
    of_settings = asked.of_settings(served.settings.limits)
    values = asked.values({**of_settings, **_numbers(given)})
    begin, end = period(since, until)

    def read(engine: DuckDBEngine) -> dict[str, Any]:
        answer = engine.ask(asked.sql, values, since=begin, until=end)
        return {
            "columns": answer.columns,
            "total": len(answer.rows),
            "rows": answer.rows[:limit],
            "violations": asked.violations(answer),
        }

    found = await served.queries.ask((name, since, until, given, limit), read)
    return finite_answer({"question": asked.question, "since": begin, "until": end, **found})


def _numbers(given: str | None) -> dict[str, float]:
    """The numbers in ``name=number,...``.

    >>> _numbers("tolerance=0.1,rounds=5")
    {'tolerance': 0.1, 'rounds': 5.0}
    """
    found: dict[str, float] = {}
    for part in filter(None, (given or "").split(",")):
        name, _, text = part.partition("=")
        value = number(text)
        if not 0 <= value < math.inf:
            raise InputError(f"query parameter set: {name}: must be 0 or more, not {text!r}")
        if name in found:
            raise InputError(f"query parameter set: {name}: is given twice")
        found[name] = value
    return found
