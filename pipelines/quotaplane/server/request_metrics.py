"""Counts requests and measures their durations, for ``/metrics``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from prometheus_client import generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quotaplane.metrics.exposition import counter, histogram, registry_of
from quotaplane.metrics.of_programs import HTTP_REQUESTS, HTTP_SECONDS
from quotaplane.metrics.readings import Readings

NO_ROUTE: Final = "none"
"""The label of requests without a route: unknown paths, and requests that were refused before.

A path itself is never a label: names of groups have no bound.
"""


class RequestMetrics:
    """The metrics of one server; ``refused`` returns the number of requests the cluster refuses."""

    def __init__(self, refused: Callable[[], int]) -> None:
        self._registry = registry_of(
            "server", lambda: Readings({"access_refused": {(): refused()}})
        )
        self._requests = counter(HTTP_REQUESTS, self._registry)
        self._seconds = histogram(HTTP_SECONDS, self._registry)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class Measured:
    """An ASGI middleware around everything else."""

    def __init__(self, app: ASGIApp, *, metrics: RequestMetrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count it when it is answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = _method(scope)
        status = 500  # unless an answer begins

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        begun = time.perf_counter()
        try:
            await self._app(scope, receive, noted)
        finally:
            seconds = time.perf_counter() - begun
            self._metrics.count(method, _route(scope), status, seconds)


_METHODS: Final = frozenset({"GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS"})


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in _METHODS else "other"


def _route(scope: Scope) -> str:
    route: Any = scope.get("route")
    path: str = getattr(route, "path", NO_ROUTE)
    return path.replace(":path}", "}")
