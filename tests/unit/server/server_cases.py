"""Helpers for tests of ``quotaplane serve``: an app without a socket, and tokens for it."""

from __future__ import annotations

import asyncio
import atexit
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import jwt
import numpy as np
from fastapi import FastAPI

from quotaplane.registry.table import put_groups
from quotaplane.server.app import create_app
from quotaplane.server.services import Services
from quotaplane.settings import History, Settings, parse_settings
from tests.closed_loop.recorded_loop import RecordedLoop
from tests.histories import make_history
from tests.unit.pulsar_admin.cluster_cases import Answer, FakeCluster
from tests.unit.registry.groups_cases import quota

SECRET: Final = "a secret of the tests, which has sixty-four bytes or a few more of them"
CONF: Final = "/etc/quotaplane/conf.yaml"
TOKENS: Final = {"auth": {"hs256_secret": SECRET}}
"""The section ``server`` with tokens."""

_LOOP: Final = asyncio.new_event_loop()
"""Connections to a cluster belong to the loop that opened them."""
atexit.register(_LOOP.close)


def token(*roles: str, sub: str = "ann", key: str = SECRET, **claims: Any) -> str:
    """A token with these roles, valid until the year 2242 unless ``claims`` say otherwise."""
    given = {"sub": sub, "exp": 2**33, "roles": list(roles), **claims}
    return jwt.encode({k: v for k, v in given.items() if v is not None}, key, "HS256")


def settings_with(folder: Path, server: dict[str, Any], **sections: Any) -> Settings:
    """Settings with the embedded transport in a folder, and this section ``server``."""
    return parse_settings(
        {
            "transport": {"kind": "delta", "path": str(folder / "topics")},
            "history": {"path": str(folder / "history")},
            "checkpoint": str(folder / "checkpoint"),
            "server": server,
            **sections,
        }
    )


class Served:
    """An app of these settings, whose history exists; ``said`` are its warnings."""

    def __init__(self, settings: Settings) -> None:
        if not Path(settings.history.path).exists():
            make_history(settings.history)
        assert settings.server is not None
        self.said: list[str] = []
        self.settings = settings
        self.app: FastAPI = create_app(settings, settings.server, CONF, self.said.append)
        self.token: str | None = None
        """Sent with every request."""

    @property
    def history(self) -> History:
        return self.settings.history

    @property
    def services(self) -> Services:
        found: Services = self.app.state.services
        return found

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        raw: bytes | None = None,
        **headers: str,
    ) -> httpx.Response:
        """Make a request; ``headers`` have underscores for hyphens."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        if body is not None:
            raw = json.dumps(body).encode()
        if raw is not None:
            sent.setdefault("Content-Type", "application/json")
        return self.request(method, path, raw, sent.items())

    def request(
        self, method: str, path: str, raw: bytes | None, headers: Iterable[tuple[str, str]]
    ) -> httpx.Response:
        """Make a request with these headers only."""
        sent = [(name.encode(), text.encode()) for name, text in headers]

        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as use:
                return await use.request(method, path, content=raw, headers=sent)

        return _LOOP.run_until_complete(asked())

    def ok(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Make a request that must succeed; returns its JSON, None without a body."""
        answer = self.ask(method, path, body, **headers)
        assert answer.status_code in (200, 201, 204), answer.text
        return answer.json() if answer.content else None

    def refused(self, status: int, method: str, path: str, body: object = None, **h: str) -> str:
        """Make a request that must be refused with this status; returns the reason."""
        answer = self.ask(method, path, body, **h)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/json"
        assert list(answer.json()) == ["reason"]
        return str(answer.json()["reason"])


Wants = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]


def record(folder: Path, wants: Wants, quotas: Mapping[str, float], rounds: int) -> RecordedLoop:
    """A loop whose rounds are in the history of a folder."""
    history = History(path=str(folder / "history"))
    make_history(history)
    put_groups(history, list(quotas), np.vstack([quota(rate) for rate in quotas.values()]), "ann")
    loop = RecordedLoop(
        history, wants, {name: {"publish_messages": rate} for name, rate in quotas.items()}
    )
    loop.run(rounds)
    return loop


def viewer_of(folder: Path) -> Served:
    """An app of the history in a folder, which a viewer asks."""
    served = Served(settings_with(folder, TOKENS))
    served.token = token("viewer")
    return served


class WritableCluster(FakeCluster):
    """A fake cluster whose groups and attachments can be changed over REST, too."""

    def find(self, method: str, path: str) -> Answer:
        """Make the change that a request asks for, or answer as before."""
        parts = path.split("/")
        if f"{method} {path}" in self.answers:
            return super().find(method, path)
        if parts[0] == "resourcegroups" and method == "PUT":
            self.put(parts[1], **json.loads(self.asked[-1].body))
            return Answer(204)
        if parts[0] == "resourcegroups" and method == "DELETE":
            if parts[1] in self.namespaces.values():
                return Answer(412, {"reason": "ResourceGroup is in use"})
            del self.groups[parts[1]]
            return Answer(204)
        if parts[0] == "namespaces" and method == "DELETE":
            self.namespaces["/".join(parts[1:3])] = None
            return Answer(204)
        return super().find(method, path)


def served_beside(cluster: FakeCluster, folder: Path, **enforce: Any) -> Served:
    """An app whose groups are those of a cluster; everybody may do everything."""
    settings = settings_with(
        folder,
        {"anonymous": "admin-without-authentication"},
        transport=cluster.transport().model_dump(),
        cluster={"tenants": {"globex": "batch"}},
        enforce=enforce,
    )
    return Served(settings)
