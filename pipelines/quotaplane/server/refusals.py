"""Errors as answers: one form for all of them, ``{"reason": ...}``, which is also Pulsar's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from quotaplane.agents.conditions import Conditions, describe_error
from quotaplane.agents.known_conditions import ANSWERS
from quotaplane.console.terminal import one_line, warn
from quotaplane.errors import (
    ClusterError,
    CopyOfQuotaError,
    GroupIdTakenError,
    GroupInUseError,
    HistoryError,
    InputError,
    QuotaplaneError,
    TableChangedError,
    UnknownGroupError,
)
from quotaplane.pulsar_admin.rest import RefusedError
from quotaplane.server.schemas import ErrorAnswer
from quotaplane.server.tokens import KeysUnavailableError, TokenRefusedError

_STATUS: Final[tuple[tuple[type[QuotaplaneError], int], ...]] = (
    (TokenRefusedError, 401),
    (KeysUnavailableError, 503),
    (UnknownGroupError, 404),
    (GroupIdTakenError, 409),
    (CopyOfQuotaError, 409),
    (GroupInUseError, 412),
    (InputError, 400),
    (TableChangedError, 409),
    (HistoryError, 503),
    (ClusterError, 502),
)
"""The first that fits."""

_PASSED_ON: Final = frozenset({400, 404, 409, 412})
"""A cluster's answers that are about the request, and not about the server's own rights."""

DESCRIPTIONS: Final[Mapping[int, str]] = {
    400: "A value, a key or the JSON is wrong; the reason names the field.",
    401: "There is no token, or it is refused.",
    403: "The bearer's roles do not allow this.",
    404: "There is no such thing, or a name has a character that no path can have.",
    409: "Somebody else changes the same, or it is changed elsewhere; the reason says where.",
    412: "It is not as If-Match or If-None-Match expects, or the group is in use.",
    413: "The body is too large.",
    415: "The body must be JSON (application/json).",
    502: "The Pulsar cluster does not answer, or refuses the server.",
    503: "The history can't be read or written now, or not in time.",
}


class AnswerError(Exception):
    """An answer with an error status."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of a route for OpenAPI; every route has 400, 401, 403 and 503."""
    every = sorted({400, 401, 403, 503, *statuses})
    return {s: {"model": ErrorAnswer, "description": DESCRIPTIONS[s]} for s in every}


def error_answer(
    status: int, reason: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """An error as an answer."""
    return JSONResponse({"reason": one_line(reason)}, status, headers=dict(headers or {}))


def add_error_answers(app: FastAPI, conditions: Conditions) -> None:
    """Let every error of a route become an answer of the one form."""

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, AnswerError)
        return error_answer(error.status, error.reason, error.headers)

    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, QuotaplaneError)
        status, reason = status_of(error), str(error)
        if isinstance(error, HistoryError) and not getattr(request.state, "sees_all", False):
            # It names folders of this host.
            text = f"{request.method} {request.url.path}: {describe_error(error)}"
            conditions.note(ANSWERS, "", text, times=1)
            reason = "the history can't be read or written; the server's stderr says why"
        return error_answer(status, reason, _challenge(status))

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return error_answer(400, _first(error))

    async def of_the_framework(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        reason = {404: "there is no such path", 405: "the path does not have this method"}.get(
            error.status_code, str(error.detail)
        )
        return error_answer(error.status_code, reason, error.headers)

    async def bug(request: Request, error: Exception) -> Response:
        warn(f"{request.method} {request.url.path}: {type(error).__name__}: {error}")
        return error_answer(500, "an error of the server, which is on its stderr")

    app.add_exception_handler(AnswerError, refused)
    app.add_exception_handler(QuotaplaneError, ours)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, of_the_framework)
    app.add_exception_handler(Exception, bug)


def status_of(error: QuotaplaneError) -> int:
    """The status of an answer with this error.

    >>> status_of(UnknownGroupError("group 'a' does not exist")), status_of(InputError("x"))
    (404, 400)
    """
    if isinstance(error, RefusedError) and error.status in _PASSED_ON:
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def _challenge(status: int) -> Mapping[str, str] | None:
    return {"WWW-Authenticate": 'Bearer error="invalid_token"'} if status == 401 else None


def _first(error: RequestValidationError) -> str:
    first = error.errors()[0]
    place, *path = first["loc"]  # query, path or header
    message = str(first["msg"]).removeprefix("Value error, ")
    return f"{place} parameter {'.'.join(map(str, path))}: {message[:1].lower()}{message[1:]}"
