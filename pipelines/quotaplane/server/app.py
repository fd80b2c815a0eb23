"""The ASGI application: its routes, its errors, its OpenAPI."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from functools import cache
from typing import Any, Final

from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from quotaplane import __version__
from quotaplane.console.terminal import warn
from quotaplane.extensions import extensions, load
from quotaplane.parsing.addresses import is_loopback
from quotaplane.server import (
    change_routes,
    group_routes,
    history_routes,
    page_routes,
    pulsar_routes,
    series_routes,
    status_routes,
    system_routes,
    what_if_routes,
)
from quotaplane.server.guard import Guard
from quotaplane.server.refusals import add_error_answers
from quotaplane.server.request_metrics import Measured
from quotaplane.server.request_parts import only_known_parameters, operation_id, operation_inputs
from quotaplane.server.schemas import GroupBody, PulsarGroup, RollbackBody
from quotaplane.server.services import Services, authenticated
from quotaplane.server.spellings import Spellings, fixed_paths
from quotaplane.server.what_if_routes import WhatIfBody
from quotaplane.settings import Server, Settings

_TITLE: Final = "quotaplane"
_ABOUT: Final = """\
Quotas that are shared fairly among many brokers: groups, their history, attachments.

`/admin/v2` has Pulsar's own paths, so that `pulsar-admin` works on this server. `/api/v1` has all
of it. Rates are per second. Every error is `{"reason": "..."}`.
"""
_BODIES: Final = (GroupBody, PulsarGroup, RollbackBody, WhatIfBody)
_ROUTERS: Final = (
    *(pulsar_routes.routes, group_routes.routes, change_routes.routes, status_routes.routes),
    *(history_routes.routes, series_routes.routes, what_if_routes.routes, system_routes.routes),
    *(load(each.routes) for each in extensions()),
    system_routes.health,
)
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


def create_app(
    settings: Settings, server: Server, conf: str, say: Callable[[str], None] = warn
) -> FastAPI:
    """The application of a settings file; ``conf`` is the file's absolute path.

    Raises:
        ConfigError: a file that the settings name can't be read.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        services: Services = app.state.services
        await services.start()
        try:
            yield
        finally:
            await services.close()

    app = _routed(lifespan=lifespan)
    app.state.services = Services(settings, server, conf, say)
    add_error_answers(app, app.state.services.conditions)
    app.add_middleware(Spellings, paths=fixed_paths(_ROUTERS))
    app.add_middleware(Guard, hosts=_hosts(server))
    app.add_middleware(Measured, metrics=app.state.services.metrics)  # the outer one
    app.openapi = _openapi  # type: ignore[method-assign]
    app.state.asks = operation_inputs(_openapi())
    return app


def _routed(**more: Any) -> FastAPI:
    """An application with all routes; they are the same for all settings."""
    app = FastAPI(
        title=_TITLE,
        description=_ABOUT,
        version=__version__,
        **more,
        # These pages load their scripts from another site.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: operation_id(route.endpoint),
    )
    everywhere = [Depends(authenticated), Depends(only_known_parameters)]
    for router in _ROUTERS:
        open_to_all = router is system_routes.health
        app.include_router(router, dependencies=None if open_to_all else everywhere)
    app.include_router(page_routes.routes)
    return app


def _hosts(server: Server) -> set[str] | None:
    """The accepted names in the Host header, None for any: see ``Guard``."""
    if server.anonymous == "none" or not is_loopback(server.host):
        return None
    return {*_LOOPBACK, server.host}


@cache
def _openapi() -> dict[str, Any]:
    app = _routed()
    made = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    _, bodies = models_json_schema(
        [(model, "validation") for model in _BODIES],
        ref_template="#/components/schemas/{model}",
    )
    made["components"]["schemas"] |= bodies["$defs"]
    for operation in (o for path in made["paths"].values() for o in path.values()):
        # FastAPI adds it where there are parameters; a wrong one is answered 400 here.
        operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        made["components"]["schemas"].pop(name, None)
    return made
