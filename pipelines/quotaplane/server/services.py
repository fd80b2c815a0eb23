"""The services that all routes of a server share, and the caller of a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Final

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from quotaplane.agents.conditions import Conditions
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.registry.current_groups import CurrentGroups
from quotaplane.server.access import ANONYMOUS, Principal, Role, tenant_of
from quotaplane.server.change_log import ChangeLog
from quotaplane.server.cluster_groups import ClusterGroups
from quotaplane.server.fresh_picture import FreshGroups, FreshPicture
from quotaplane.server.group_writer import AttachmentWriter, GroupWriter
from quotaplane.server.readiness import Readiness
from quotaplane.server.recorded_periods import RecordedPeriods
from quotaplane.server.refusals import AnswerError
from quotaplane.server.request_metrics import RequestMetrics
from quotaplane.server.tokens import Verifier
from quotaplane.server.workers import Queries, Workers
from quotaplane.settings import PulsarTransport, Server, Settings

_LEAST_ROUND_AGE_S: Final = 120.0
"""A last round that is older says that the job is down; of idle rounds, one in 30 s is recorded."""
_BEARER: Final = HTTPBearer(
    bearerFormat="JWT",
    description="A JSON web token, as server.auth of the settings says.",
    auto_error=False,
)


class Services:
    """The services behind the routes; made in the event loop that serves them.

    Args:
        settings: the whole settings file.
        server: its section ``server``.
        conf: the path of the file, absolute.
        say: prints a warning.

    Raises:
        ConfigError: a file that the settings name can't be read.
    """

    def __init__(
        self, settings: Settings, server: Server, conf: str, say: Callable[[str], None]
    ) -> None:
        self.settings, self.server, self.conf = settings, server, conf
        self.conditions = Conditions(say)
        self._timeout_s = server.request_timeout_s
        self.workers = Workers(self._timeout_s)
        self.verifier = Verifier(server.auth, self.conditions) if server.auth else None
        self.is_idle = False
        """Nothing in the background waits for the disk any more."""
        self.anonymous = ANONYMOUS[server.anonymous]
        self.rest: Rest | None = None
        cluster: ClusterGroups | None = None
        if settings.cluster is not None:
            assert isinstance(settings.transport, PulsarTransport)
            self.rest = Rest(
                settings.transport,
                concurrency=4,
                conditions=self.conditions,
            )
            cluster = ClusterGroups(self.rest, settings.cluster.tenants)
        self.groups = FreshGroups(CurrentGroups(settings.history), self.workers)
        self.changes = ChangeLog(settings.history, self.workers)
        self.metrics = RequestMetrics(self.conditions)
        self.queries = Queries(settings.history, self.workers, self._timeout_s)
        self.picture = FreshPicture(settings.history, self.workers, self._timeout_s)
        self.periods = RecordedPeriods(self.queries, settings)
        self.group_writer = GroupWriter(settings, self.workers, self.groups, cluster)
        self.attachments = AttachmentWriter(settings.history, self.workers, cluster, conf)
        max_round_age_s = max(_LEAST_ROUND_AGE_S, 4 * settings.trigger.interval_s)
        self.readiness = Readiness(settings.history, max_round_age_s, self.conditions)

    async def start(self) -> None:
        """Begin the work in the background."""
        self.readiness.start()
        self.picture.start()
        if self.verifier is not None and self.verifier.key_set is not None:
            await self.verifier.key_set.refresh()

    async def close(self) -> None:
        """End it; a read in the background may take as long as a request."""
        repeated = (self.readiness, self.picture)
        ends = (asyncio.to_thread(each.close, self._timeout_s) for each in repeated)
        ended = await asyncio.gather(*ends)
        self.is_idle = all(ended)
        self.queries.close()
        if self.rest is not None:
            await self.rest.close()


async def services_of(request: Request) -> Services:
    """The services of the app that answers a request."""
    found = request.app.state.services
    assert isinstance(found, Services)
    return found


async def authenticated(
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)],
) -> Principal:
    """The caller of a request.

    Raises:
        TokenRefusedError: the token is not accepted.
        AnswerError: there is no token, and the server needs one (401).
    """
    services = await services_of(request)
    caller = services.anonymous
    if services.verifier is not None:
        if credentials is not None:
            caller = await services.verifier.verify(credentials.credentials)
        elif "authorization" in request.headers or not caller.roles:
            raise no_token()
    request.state.sees_all = caller.may(Role.VIEWER, None)
    return caller


Caller = Annotated[Principal, Depends(authenticated)]
"""A route's parameter: the caller."""

Served = Annotated[Services, Depends(services_of)]
"""A route's parameter: the server's services."""


def no_token() -> AnswerError:
    """The answer to a request without a token."""
    return AnswerError(
        401,
        "a token is needed: send the header Authorization: Bearer TOKEN",
        {"WWW-Authenticate": "Bearer"},
    )


def allow(caller: Principal, role: Role, tenant: str | None, served: Services) -> None:
    """Check that the caller has a role for a tenant; None: for groups without a tenant.

    Raises:
        AnswerError: the role is missing (403), or the request has no token (401).
    """
    if caller.may(role, tenant):
        return
    if caller.is_anonymous and served.verifier is not None:
        raise no_token()
    where = "for all tenants" if tenant is None else f"for tenant {tenant!r}"
    raise AnswerError(
        403, f"{caller.name!r} may not do this: the role {role.name.lower()} {where} is needed"
    )


def allow_group(caller: Principal, role: Role, group: str, served: Services) -> None:
    """``allow`` for a group's tenant."""
    allow(caller, role, tenant_of(group), served)
