"""The page at ``/``: static files, readable without a token. Its data come from ``/api/v1``.

The browser runs scripts of this server only, and exchanges data with no other.
"""

from __future__ import annotations

import html
import json
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from fastapi import APIRouter
from starlette.responses import Response

from quotaplane.groups.standing import NEAR_QUOTA, OVER_QUOTA, UNFAIR
from quotaplane.laws import LAWS
from quotaplane.model import DECLARED_DIMENSIONS
from quotaplane.registry.group_json import etag
from quotaplane.server.refusals import AnswerError
from quotaplane.server.request_parts import IfNoneMatch, is_unchanged

routes: Final = APIRouter(include_in_schema=False)

INDEX: Final = "index.html"
_FOLDER: Final = Path(__file__).parent / "page"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("connect", "img", "script", "style")),
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # No text becomes markup or a script, whatever the name of a group or broker.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


class PageFile(NamedTuple):
    """A file of the page."""

    content: bytes
    kind: str
    """Its Content-Type."""
    etag: str


@cache
def page_files() -> dict[str, PageFile]:
    """The files of the page by their paths; the first page contains the server's declarations."""
    found = {}
    for file in _FOLDER.rglob("*"):
        kind, path = _TYPES.get(file.suffix), file.relative_to(_FOLDER).as_posix()
        if kind is not None:
            content = file.read_bytes()
            if path == INDEX:
                content = _with_declarations(content.decode()).encode()
            found[path] = PageFile(content, kind, etag(content))
    return found


def _with_declarations(index: str) -> str:
    dimensions = {dimension.name: dimension.unit for dimension in DECLARED_DIMENSIONS}
    standing = {"over": OVER_QUOTA, "near": NEAR_QUOTA, "unfair": UNFAIR}
    declared = (("$dimensions", dimensions), ("$laws", list(LAWS)), ("$standing", standing))
    for name, value in declared:
        index = index.replace(name, html.escape(json.dumps(value)))
    return index


def _answer(path: str, if_none_match: str | None) -> Response:
    file = page_files().get(path)
    if file is None:
        raise AnswerError(404, "the page has no such file")
    headers = {**_HEADERS, "ETag": file.etag}
    if is_unchanged(if_none_match, file.etag):
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.kind, headers=headers)


@routes.get("/")
async def index(if_none_match: IfNoneMatch = None) -> Response:
    """The page."""
    return _answer(INDEX, if_none_match)


@routes.get("/page/{path:path}")
async def page_file(path: str, if_none_match: IfNoneMatch = None) -> Response:
    """A file of the page."""
    return _answer(path, if_none_match)
