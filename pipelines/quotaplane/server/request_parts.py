"""Reads what requests give: strict JSON, known parameters only, reasons, conditions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import unquote

import pyarrow as pa
from fastapi import Header, Path, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from quotaplane.errors import InputError
from quotaplane.model import MAX_GROUP_CHARS
from quotaplane.registry.group_json import as_json, etag_of
from quotaplane.server.refusals import AnswerError
from quotaplane.server.schemas import MOST_WHY
from quotaplane.strict_json import parse_case, parse_json

_Body = TypeVar("_Body", bound=BaseModel)

WHY_HEADER: Final = "Quotaplane-Why"

WhyHeader = Annotated[
    str | None,
    Header(
        alias=WHY_HEADER,
        description="The reason of the change, kept in the history; what is not ASCII is "
        "percent-encoded UTF-8.",
        max_length=9 * MOST_WHY,
    ),
]
IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", description="Change the group only if it has one of these ETags."),
]
IfNoneMatch = Annotated[
    str | None,
    Header(alias="If-None-Match", description="`*`: only create the group."),
]
GroupName = Annotated[
    str,
    Path(
        min_length=1,
        max_length=MAX_GROUP_CHARS,
        description="A group's name; it may have slashes, encoded or not.",
        examples=["acme::orders"],
    ),
]
DryRun = Annotated[bool, Query(description="Change nothing, and answer what would change.")]
GroupFilter = Annotated[
    str | None, Query(max_length=MAX_GROUP_CHARS, description="Of this group only.")
]
Limit = Annotated[int, Query(ge=1, le=1000, description="Most items in the answer.")]
Offset = Annotated[int, Query(ge=0, le=10**9, description="How many items to pass over.")]


async def only_known_parameters(request: Request) -> None:
    """Refuse a query with a parameter that the route does not have: ``dryrun`` is no ``dry_run``.

    Raises:
        InputError: there is one, or one is given twice.
    """
    if not request.query_params:
        return
    known = request.app.state.query_parameters[operation_id(request.scope["endpoint"])]
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in known:
            raise InputError(f"query parameter {name}: is not known here")
        if name in seen:
            raise InputError(f"query parameter {name}: is given twice")
        seen.add(name)


async def read_body(request: Request, model: type[_Body]) -> tuple[_Body, dict[str, Any]]:
    """A request's JSON, checked, and as it was sent.

    Raises:
        InputError: it is no JSON, or not what the model wants; names the field.
    """
    try:
        text = (await request.body()).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"body: not UTF-8 (byte {error.start})") from None
    raw = parse_json(text, "body")
    checked = parse_case(raw, model, "body")
    assert isinstance(raw, dict)
    return checked, raw


def operation_id(endpoint: Callable[..., Any]) -> str:
    """What OpenAPI calls the function behind a route: ``group-put_group``."""
    module = endpoint.__module__.rpartition(".")[2]
    return f"{module.removesuffix('_routes')}-{endpoint.__name__}"


def query_parameters(openapi: dict[str, Any]) -> dict[str, set[str]]:
    """The names of each operation's query parameters."""
    return {
        operation["operationId"]: {
            parameter["name"]
            for parameter in operation.get("parameters", ())
            if parameter["in"] == "query"
        }
        for operations in openapi["paths"].values()
        for operation in operations.values()
    }


def body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """What OpenAPI says of a body that ``read_body`` reads; ``app.openapi`` adds the model."""
    reference = {"$ref": f"#/components/schemas/{model.__name__}"}
    content = {"application/json": {"schema": reference}}
    return {"requestBody": {"required": True, "content": content}}


def reason_of(header: str | None, body: str | None = None) -> str | None:
    """The reason of a change, from the body or the header.

    >>> reason_of("more%20traffic"), reason_of(None, ""), reason_of("a", "b")
    ('more traffic', None, 'b')

    Raises:
        InputError: the header is no printable text, or too long.
    """
    if body:
        return body
    if not header:
        return None
    try:
        why = unquote(header, errors="strict")
    except UnicodeDecodeError:
        raise InputError(f"header {WHY_HEADER}: not UTF-8 after percent-decoding") from None
    if len(why) > MOST_WHY or not why.isprintable():
        raise InputError(
            f"header {WHY_HEADER}: must be a printable text of up to {MOST_WHY} characters"
        )
    return why


def condition(
    group: str, if_match: str | None, if_none_match: str | None
) -> Callable[[pa.Table], None] | None:
    """A check of a group's ETag right before a change, for ``change_groups``; None: no header."""
    if if_match is None and if_none_match is None:
        return None

    def check(rows: pa.Table) -> None:
        now = etag_of(rows, group)
        if if_match is not None and not _matches(if_match, now):
            found = "does not exist" if now is None else f"has the ETag {now}"
            raise AnswerError(412, f"group {group!r} {found}, which If-Match does not name")
        if if_none_match is not None and _matches(if_none_match, now):
            raise AnswerError(412, f"group {group!r} exists with the ETag {now}")

    return check


def _matches(header: str, now: str | None) -> bool:
    if now is None:
        return False
    return header.strip() == "*" or now in (tag.strip() for tag in header.split(","))


def is_unchanged(if_none_match: str | None, now: str) -> bool:
    """Whether the caller of a GET has this already.

    >>> is_unchanged('W/"a", "b"', '"a"'), is_unchanged(None, '"a"')
    (True, False)
    """
    return if_none_match is not None and _matches(if_none_match.replace("W/", ""), now)


def json_answer(
    content: bytes | object, status: int = 200, *, etag: str | None = None, cached: bool = False
) -> Response:
    """An answer of JSON; ``cached``: 304, as the caller has it already."""
    headers = {"Cache-Control": "private, no-cache", "Vary": "Authorization"}
    if etag is not None:
        headers["ETag"] = etag
    if cached:
        return Response(status_code=304, headers=headers)
    text = content if isinstance(content, bytes) else as_json(content).encode()
    return Response(text, status, headers, "application/json")


def finite_answer(content: Mapping[str, Any]) -> Response:
    """An answer of JSON, which has no infinity and no NaN: null in their place."""
    return json_answer(_without_infinity(content))


def _without_infinity(value: Any) -> Any:
    """JSON has no infinity and no NaN.

    >>> _without_infinity({"used_part": math.inf, "rows": [(1.5, math.nan)]})
    {'used_part': None, 'rows': [[1.5, None]]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _without_infinity(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_infinity(item) for item in value]
    return value
