"""Fake REST APIs: a server with fixed answers, and a Pulsar cluster's groups and namespaces."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import unquote

import httpx

from quotaplane.agents.conditions import Conditions
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.settings import PulsarSecurity, PulsarTransport

ADMIN = "/admin/v2/"
IN_MEMORY = "http://127.0.0.1:8080"
"""The address of a cluster to which requests go by ``Wire``."""
KINDS, UNITS = ("publishRateIn", "dispatchRateIn"), ("Msgs", "Bytes")
_HEADERS = {"Content-Type": "application/json"}
"""Like Pulsar, which labels plain text as JSON."""


def transport_to(url: str | None, **security: Any) -> PulsarTransport:
    """Settings of a transport with its REST API at ``url``."""
    return PulsarTransport(
        kind="pulsar",
        service_url="pulsar://127.0.0.1:1",
        admin_url=url,
        limits_topic="persistent://public/default/limits",
        security=PulsarSecurity(**security),
    )


@dataclass
class Asked:
    """A request that the server received."""

    method: str
    path: str
    authorization: str | None
    body: str


@dataclass
class Answer:
    """An answer; a body that is not text is sent as JSON."""

    status: int = 200
    body: Any = ""
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    drip_s: float = 0.0
    """Pause between two bytes of the body."""
    cut: bool = False
    """Close the connection without an answer."""
    then: Callable[[], None] = lambda: None
    """Action of the server between the delay and the answer."""

    def data(self) -> bytes:
        """The body as it is sent."""
        return (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode()


class RestServer:
    """Answers ``answers[method + " " + path]``, or 404; records requests in ``asked``.

    As a context manager it is an HTTP server. Without that it is there for ``wire()`` only.
    """

    def __init__(self, answers: dict[str, Answer | Callable[[], Answer]] | None = None) -> None:
        self.answers: dict[str, Answer | Callable[[], Answer]] = answers or {}
        self.asked: list[Asked] = []
        self.url = IN_MEMORY
        self._ended = threading.Event()

    def handle(self, method: str, path: str, body: str, authorization: str | None = None) -> Answer:
        """Answer a request, whose path is as it was sent."""
        path = unquote(path).removeprefix(ADMIN)
        self.asked.append(Asked(method, path, authorization, body))
        return self.find(method, path)

    def find(self, method: str, path: str) -> Answer:
        """The answer to a request."""
        answer = self.answers.get(f"{method} {path}", Answer(404, {"reason": "no such"}))
        return answer() if callable(answer) else answer

    def paths(self, method: str = "GET") -> list[str]:
        """Paths of the requests with this method, in order."""
        return [asked.path for asked in self.asked if asked.method == method]

    def transport(self, **security: Any) -> PulsarTransport:
        """Settings with this server as the REST API."""
        return transport_to(self.url, **security)

    def wire(self) -> Wire:
        """A connection in memory, on which delays pass in the time of the client's event loop."""
        return Wire(self)

    def rest(self, conditions: Conditions | None = None, **security: Any) -> Rest:
        """A client in memory."""
        return Rest(self.transport(**security), conditions=conditions, wire=self.wire())

    def __enter__(self) -> RestServer:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                outer._answer(self)

            do_GET = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0))).decode()
        assert handler.command is not None
        authorization = handler.headers.get("Authorization")
        answer = self.handle(handler.command, handler.path, body, authorization)
        if answer.cut:
            handler.close_connection = True
            return
        self._ended.wait(answer.delay_s)
        answer.then()
        data = answer.data()
        try:
            handler.send_response(answer.status)
            handler.send_header("Content-Length", str(len(data)))
            for name, value in (_HEADERS | answer.headers).items():
                handler.send_header(name, value)
            handler.end_headers()
            if answer.drip_s:
                for byte in data:
                    handler.wfile.write(bytes([byte]))
                    handler.wfile.flush()
                    time.sleep(answer.drip_s)
            else:
                handler.wfile.write(data)
        except OSError:  # the client has gone
            pass


class Wire(httpx.AsyncBaseTransport):
    """Requests to a server that is an object in memory."""

    def __init__(self, server: RestServer) -> None:
        self._server = server

    async def answer(self, request: httpx.Request, body: str) -> Answer:
        """The server's answer, when it comes."""
        path, token = request.url.raw_path.decode(), request.headers.get("Authorization")
        answer = self._server.handle(request.method, path, body, token)
        if answer.cut:
            raise httpx.RemoteProtocolError("the connection was closed", request=request)
        await asyncio.sleep(answer.delay_s + answer.drip_s * len(answer.data()))
        answer.then()
        return answer

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request; httpx calls this."""
        answer = await self.answer(request, (await request.aread()).decode())
        headers = _HEADERS | answer.headers
        return httpx.Response(answer.status, headers=headers, content=answer.data())


class Paced:
    """A sleep that ends when the test says so."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.woken = threading.Semaphore(0)
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.begun.release()
        while not self.woken.acquire(blocking=False):
            await asyncio.sleep(0.001)

    def next_poll(self) -> None:
        """Let one poll happen, from the sleep before it to the one after it."""
        assert self.begun.acquire(timeout=60)
        self.woken.release()
        assert self.begun.acquire(timeout=60)
        self.begun.release()


class FakeCluster(RestServer):
    """A cluster's groups, tenants and namespaces; ``answers`` override it."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[str, dict[str, Any]] = {}
        self.namespaces: dict[str, str | None] = {}
        self.runtime = {
            "clusterName": "blue",
            "resourceUsageTransportClassName": "some.Class",
            "resourceUsageTransportPublishIntervalInSecs": "5",
        }

    def put(self, group: str, **rates: Any) -> None:
        """Set rates and other fields of a group; the rest stays, as with Pulsar."""
        unlimited = {f"{kind}{unit}": -1 for kind in KINDS for unit in UNITS}
        self.groups[group] = unlimited | self.groups.get(group, {}) | rates

    def find(self, method: str, path: str) -> Answer:
        """The answer that a cluster would give."""
        if f"{method} {path}" in self.answers:
            return super().find(method, path)
        parts = path.split("/")
        if method == "POST" and parts[0] == "namespaces" and parts[3] == "resourcegroup":
            if parts[4] not in self.groups:
                return Answer(412, {"reason": "ResourceGroup does not exist"})
            self.namespaces["/".join(parts[1:3])] = parts[4]
            return Answer(204)
        if path == "brokers/configuration/runtime":
            return Answer(200, self.runtime)
        if path == "resourcegroups":
            return Answer(200, sorted(self.groups))
        if parts[0] == "resourcegroups" and method == "DELETE" and parts[1] in self.groups:
            del self.groups[parts[1]]
            return Answer(204)
        if parts[0] == "resourcegroups" and parts[1] in self.groups:
            return Answer(200, self.groups[parts[1]])
        if parts[0] == "namespaces" and len(parts) == 2:
            names = [name for name in self.namespaces if name.startswith(parts[1] + "/")]
            return Answer(200, names) if names else Answer(404, {"reason": "Tenant not found"})
        namespace = "/".join(parts[1:])
        if parts[0] == "namespaces" and namespace in self.namespaces:
            group = self.namespaces[namespace]
            return Answer(200, {"bundles": {}} | ({"resource_group_name": group} if group else {}))
        return Answer(404, {"reason": "no such"})
