"""Other spellings of a request: PIP-82's paths and verbs, a slash at the end, HEAD.

PIP-82 has ``/admin/v2/resourcegroup`` in the singular and attaches with PUT, where Pulsar has the
plural and POST.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from fastapi import APIRouter
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PIP82: Final = "/admin/v2/resourcegroup"
_ATTACHMENT: Final = re.compile(
    r"/admin/v2/(namespaces/[^/]+/[^/]+|tenants/[^/]+)/resourcegroup/.+"
)


class Spellings:
    """An ASGI middleware right before the routes.

    Args:
        app: has the routes.
        paths: of routes that have no name with slashes at their end; these may have one slash more.
    """

    def __init__(self, app: ASGIApp, *, paths: Sequence[re.Pattern[str]]) -> None:
        self._app, self._paths = app, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on in the spelling of the routes."""
        if scope["type"] == "http":
            if scope["method"] == "HEAD":
                send = _without_body(send)
            self._respell(scope)
        await self._app(scope, receive, send)

    def _respell(self, scope: Scope) -> None:
        path: str = scope["path"]
        if path == _PIP82 or path.startswith(f"{_PIP82}/"):
            path = path.replace(_PIP82, f"{_PIP82}s", 1)
        without = path.removesuffix("/")
        if without != path and any(fixed.fullmatch(without) for fixed in self._paths):
            path = without
        scope["path"] = path
        if scope["method"] == "HEAD":
            scope["method"] = "GET"
        elif scope["method"] == "PUT" and _ATTACHMENT.fullmatch(path):
            scope["method"] = "POST"


def fixed_paths(routers: Iterable[APIRouter]) -> list[re.Pattern[str]]:
    """The paths of routes that do not end with a name, which may have slashes."""
    routes = (route for router in routers for route in router.routes)
    return [
        route.path_regex
        for route in routes
        if isinstance(route, Route) and not route.path.endswith((":path}", "/"))
    ]


def _without_body(send: Send) -> Send:
    async def head_only(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return head_only
