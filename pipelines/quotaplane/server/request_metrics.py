"""The server's metrics: requests by route, at ``/metrics``, for everybody as ``/healthz`` is.

They have no names of groups, tenants or callers.
"""

from __future__ import annotations

import time
from typing import Any, Final

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quotaplane.metrics.exposition import counter, histogram, registry_of
from quotaplane.metrics.of_programs import HTTP_REQUESTS, HTTP_SECONDS

_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_UNMATCHED: Final = "none"
"""The route of a request that matches none."""


def add_metrics(app: FastAPI) -> None:
    """Count the application's requests, and answer ``/metrics``."""
    registry = registry_of("server")

    async def metrics(request: Request) -> Response:
        encoder, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encoder(registry), headers={"content-type": content_type})

    app.add_route("/metrics", metrics, include_in_schema=False)
    app.add_middleware(CountedRequests, registry=registry)


class CountedRequests:
    """ASGI middleware that counts and times each request, whatever answers it."""

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        self._app = app
        self._requests = counter(HTTP_REQUESTS, registry)
        self._seconds = histogram(HTTP_SECONDS, registry)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and count it when it has been answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s, code = time.monotonic(), "500"

        async def sent(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = str(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, sent)
        finally:
            route = _route(scope)
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._requests.labels(method, route, code).inc()
            self._seconds.labels(route).observe(time.monotonic() - began_s)


def _route(scope: Scope) -> str:
    """The pattern of the route that the request matched: what is in a path is no label."""
    route: Any = scope.get("route")
    return str(getattr(route, "path", _UNMATCHED))
