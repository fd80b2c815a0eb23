"""Reads requests: strict JSON, known parameters only, reasons, conditions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote

import pyarrow as pa
from fastapi import Header, Path, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from quotaplane.errors import InputError
from quotaplane.model import MAX_GROUP_CHARS
from quotaplane.parsing.strict_json import parse_case, parse_json
from quotaplane.registry.group_json import as_json, etag_of
from quotaplane.server.guard import READS
from quotaplane.server.refusals import AnswerError
from quotaplane.server.schemas import MOST_WHY

_Body = TypeVar("_Body", bound=BaseModel)

WHY_HEADER: Final = "Quotaplane-Why"

_PROMISES: Final = ("If-Match", "If-None-Match", "If-Unmodified-Since", WHY_HEADER)
"""Headers that a change must not ignore: without them it is not the change the caller wants."""

_ANY: Final = re.compile(".*", re.DOTALL)
_FORMS: Final = {
    "integer": (re.compile(r"-?(0|[1-9][0-9]*)"), "a whole number"),
    "boolean": (re.compile("true|false"), "true or false"),
}
"""The only accepted spelling by type of parameter; pydantic also reads ``1_0`` and ``off``."""

_TAG: Final = r'(?:W/)?"[^"\s]*"'
_TAGS: Final = re.compile(rf"\*|{_TAG}(?:\s*,\s*{_TAG})*")


class OperationInputs(NamedTuple):
    """The inputs that an operation reads of a request."""

    parameters: dict[str, str]
    """The types of its query parameters, by name."""
    headers: set[str]
    """In lower case."""
    body: bool


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
    """Refuse inputs that the route would ignore: ``dryrun`` is no ``dry_run``.

    Raises:
        InputError: a parameter, a condition, a reason or a body that the route does not have; or a
            parameter that is given twice, is empty, or has an odd spelling of its value.
    """
    asks: OperationInputs = request.app.state.asks[operation_id(request.scope["endpoint"])]
    seen: set[str] = set()
    for name, value in request.query_params.multi_items():
        if name not in asks.parameters:
            raise InputError(f"query parameter {name}: is not known here")
        if name in seen:
            raise InputError(f"query parameter {name}: is given twice")
        seen.add(name)
        if not value:
            raise InputError(f"query parameter {name}: must not be empty")
        form, rule = _FORMS.get(asks.parameters[name], (_ANY, ""))
        if not form.fullmatch(value):
            raise InputError(f"query parameter {name}: must be {rule}, not {value!r}")
    if request.scope["method"] in READS:
        return
    for name in _PROMISES:
        if name.lower() in request.headers and name.lower() not in asks.headers:
            raise InputError(f"header {name}: is not known here; nothing was done")
    # Clients of Pulsar may send a body with any request.
    ours = request.scope["path"].startswith("/api/")
    if ours and not asks.body and await request.body():
        raise InputError("a body is not known here; nothing was done")


async def read_body(request: Request, model: type[_Body]) -> tuple[_Body, dict[str, Any]]:
    """A request's JSON, checked by the model, and as it was sent.

    Raises:
        InputError: it is no JSON, or the model refuses it; names the field.
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
    """The operation id in OpenAPI of the function behind a route: ``group-put_group``."""
    module = endpoint.__module__.rpartition(".")[2]
    return f"{module.removesuffix('_routes')}-{endpoint.__name__}"


def operation_inputs(openapi: dict[str, Any]) -> dict[str, OperationInputs]:
    """The inputs of each operation, by its id."""
    return {
        operation["operationId"]: OperationInputs(
            {p["name"]: _kind(p["schema"]) for p in _parameters(operation, "query")},
            {p["name"].lower() for p in _parameters(operation, "header")},
            "requestBody" in operation,
        )
        for operations in openapi["paths"].values()
        for operation in operations.values()
    }


def _parameters(operation: dict[str, Any], place: str) -> Iterator[dict[str, Any]]:
    return (one for one in operation.get("parameters", ()) if one["in"] == place)


def _kind(schema: dict[str, Any]) -> str:
    """The type of a parameter, which may also be left out."""
    return str(schema.get("type") or schema["anyOf"][0]["type"])


def body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI of a body that ``read_body`` reads; ``app.openapi`` adds the model."""
    reference = {"$ref": f"#/components/schemas/{model.__name__}"}
    content = {"application/json": {"schema": reference}}
    return {"requestBody": {"required": True, "content": content}}


def reason_of(header: str | None, body: str | None = None) -> str | None:
    """The reason of a change, from the body or the header.

    >>> reason_of("more%20traffic"), reason_of(None, ""), reason_of(None, "b")
    ('more traffic', None, 'b')

    Raises:
        InputError: both have one; or the header is no printable text, or too long.
    """
    if body and header:
        raise InputError(f"why is in the body and in the header {WHY_HEADER}: keep one")
    if body:
        return body
    if not header:
        return None
    if not header.isascii():
        raise InputError(f"header {WHY_HEADER}: must be percent-encoded where it is not ASCII")
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
    """A check of a group's ETag right before a change, for ``change_groups``; None: no header.

    Raises:
        InputError: a header is no list of ETags.
    """
    matched, unmatched = _tags("If-Match", if_match), _tags("If-None-Match", if_none_match)
    if matched is None and unmatched is None:
        return None

    def check(rows: pa.Table) -> None:
        now = etag_of(rows, group)
        if matched is not None and not _names(matched, now):
            found = "does not exist" if now is None else f"has the ETag {now}"
            raise AnswerError(412, f"group {group!r} {found}, which If-Match does not name")
        if unmatched is not None and _names(_weak(unmatched), now):
            raise AnswerError(412, f"group {group!r} exists with the ETag {now}")

    return check


def _tags(name: str, header: str | None) -> list[str] | None:
    """The ETags that a condition names.

    >>> _tags("If-Match", 'W/"a", "b,c"'), _tags("If-Match", "*"), _tags("If-Match", None)
    (['W/"a"', '"b,c"'], ['*'], None)

    Raises:
        InputError: it is no list of ETags.
    """
    if header is None:
        return None
    if not _TAGS.fullmatch(header.strip()):
        raise InputError(f'header {name}: must be * or ETags such as "abc", with their quotes')
    return re.findall(rf"\*|{_TAG}", header)


def _weak(tags: list[str]) -> list[str]:
    return [tag.removeprefix("W/") for tag in tags]


def _names(tags: list[str], now: str | None) -> bool:
    return now is not None and (now in tags or "*" in tags)


def is_unchanged(if_none_match: str | None, now: str) -> bool:
    """Whether the caller of a GET has this version already.

    >>> is_unchanged('W/"a", "b"', '"a"'), is_unchanged(None, '"a"')
    (True, False)

    Raises:
        InputError: the header is no list of ETags.
    """
    return _names(_weak(_tags("If-None-Match", if_none_match) or []), now)


def json_answer(
    content: bytes | object, status: int = 200, *, etag: str | None = None, cached: bool = False
) -> Response:
    """An answer with JSON; ``cached``: 304, as the caller has it already."""
    headers = {"Cache-Control": "private, no-cache", "Vary": "Authorization"}
    if etag is not None:
        headers["ETag"] = etag
    if cached:
        return Response(status_code=304, headers=headers)
    text = content if isinstance(content, bytes) else as_json(content).encode()
    return Response(text, status, headers, "application/json")


def finite_answer(content: Mapping[str, Any]) -> Response:
    """An answer with JSON; null in place of infinity and NaN, which JSON does not have."""
    return json_answer(_without_infinity(content))


def _without_infinity(value: Any) -> Any:
    """The value with None in place of infinity and NaN.

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
