"""``/api/v1/balance``: the balancer's decisions."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from quotabalance.record.tables import BALANCE_DECISIONS
from quotaplane.server.history_parts import A_DAY_AGO, Since, Until, newest_rows
from quotaplane.server.history_schemas import RowList
from quotaplane.server.refusals import answers
from quotaplane.server.request_parts import Limit, Offset
from quotaplane.server.services import Caller, Served

routes: Final = APIRouter(prefix="/api/v1", tags=["history"])


@routes.get("/balance", response_model=RowList, responses=answers())
async def balance(
    caller: Caller,
    served: Served,
    since: Since = A_DAY_AGO,
    until: Until = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """The balancer's decisions, the newest first: the columns of `balance_decisions`."""
    return await newest_rows(BALANCE_DECISIONS, caller, served, since, until, limit, offset)
