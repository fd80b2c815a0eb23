"""Listens and serves until it is stopped; prints both on stderr.

Connections are bounded, so that idle ones never use up the server's open files.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import socket
import ssl
from collections.abc import Generator
from datetime import datetime, timezone
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import CONNECTIONS
from quotaplane.console.terminal import warn, write_line
from quotaplane.errors import ConfigError
from quotaplane.history.store import location_of
from quotaplane.server.app import create_app
from quotaplane.server.services import Services
from quotaplane.settings import Server, Settings
from quotaplane.settings.server import Tls
from quotaplane.texts import utc_text

_HEADERS_WITHIN_S: Final = 10.0
_MOST_HEADER_BYTES: Final = 32 * 1024
_KEEP_ALIVE_S: Final = 15
_STOP_WITHIN_S: Final = 10


class _Protocol(H11Protocol):
    """HTTP whose clients must send a request's headers in time, or the connection is closed.

    uvicorn has a time limit only between an answer and the first byte of the next request, and a
    bound of connections only where a request is complete.
    """

    bound: ConnectionBound
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self.bound.admits(len(self.connections)):
            transport.write(REFUSAL)
            transport.close()
            return
        self._watch()

    def handle_events(self) -> None:
        super().handle_events()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self._is_answering():
            self._unwatch()
        elif self._timer is None:
            self._timer = self.loop.call_later(_HEADERS_WITHIN_S, self._too_slow)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None at first, unlike its declared type
        return cycle is not None and not cycle.response_complete

    def _too_slow(self) -> None:
        self._timer = None
        if not self._is_answering():
            self.transport.close()


class _Uvicorn(uvicorn.Server):
    """uvicorn without signal handlers of its own: the command has them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def serve(settings: Settings, conf: str, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set; requests under way are answered first.

    ``conf`` is the settings file's absolute path.

    Raises:
        ConfigError: the settings lack the server's section, a file can't be read, or the server
            can't listen on the address.
    """
    server = settings.server
    if server is None:
        raise ConfigError(
            f"{conf}: server: is missing: `server: {{anonymous: viewer}}` lets programs of this "
            "host read; docs/reference/rest.md has the rest"
        )
    options = _tls(server.tls)
    app = create_app(settings, server, conf)
    listening = _listen(server)
    most = connections_within(raise_open_files())
    bound = ConnectionBound(most, app.state.services.conditions)
    asyncio.get_running_loop().set_exception_handler(bound.on_loop_error)
    config = uvicorn.Config(
        app,
        http=type("_Bounded", (_Protocol,), {"bound": bound}),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
        backlog=BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_STOP_WITHIN_S,
        **options,
    )
    # Clients that send nonsense would fill stderr with warnings.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    runner = _Uvicorn(config)
    serving = asyncio.create_task(runner.serve(sockets=[listening]))
    while not runner.started and not serving.done():
        await asyncio.sleep(0.01)
    if not serving.done():
        _say(f"ready: {_ready(settings, server, conf, listening)}")
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    runner.should_exit = True
    stopping.cancel()
    await serving
    _say("ended: stopped by a signal" if stop.is_set() else "ended")
    services: Services = app.state.services
    if not (services.workers.close() and services.is_idle):
        warn("server: the disk does not answer, and a request for it was left undone")
        os._exit(0)  # the thread that waits for the disk can't be ended


def _tls(tls: Any) -> dict[str, Any]:
    if not isinstance(tls, Tls):
        return {}
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certificate_file, tls.key_file, password=lambda: "")
    except OSError as error:  # ssl.SSLError is one
        why = error.strerror or str(error)
        raise ConfigError(
            f"server.tls: {tls.certificate_file}, {tls.key_file}: can't be used: {why}"
        ) from None
    return {"ssl_certfile": tls.certificate_file, "ssl_keyfile": tls.key_file}


def _listen(server: Server) -> socket.socket:
    try:
        found = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
        family, *_, address = found[0]
        listening = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"server.port: port {server.port} of {server.host} is in use by another program: "
                "choose another one, or stop that program"
            ) from None
        why = error.strerror or str(error)
        raise ConfigError(
            f"server.host, server.port: can't listen on {server.host}:{server.port}: {why}"
        ) from None
    # asyncio sets it only where a socket names its protocol. Without it the second part of an
    # answer waits for the client's acknowledgement of the first: 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _ready(settings: Settings, server: Server, conf: str, listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    scheme = "https" if isinstance(server.tls, Tls) else "http"
    shown = f"[{host}]" if ":" in host else host
    parts = [f"serves {scheme}://{shown}:{port}", f"history {location_of(settings.history)}"]
    parts.append(f"settings {conf}")
    if settings.cluster is not None:
        url = getattr(settings.transport, "admin_url", None)
        parts.append(f"groups of the Pulsar cluster at {url}")
    if server.auth is None:
        parts.append(f"WITHOUT AUTHENTICATION: everybody may be {server.anonymous}")
    elif server.anonymous != "none":
        parts.append(f"tokens; without one: {server.anonymous}")
    else:
        parts.append("tokens only")
    return "; ".join(parts)


def _say(line: str) -> None:
    now = datetime.now(timezone.utc)
    write_line(f"{utc_text(now)} quotaplane: {line}")


MOST_CONNECTIONS: Final = 1000
BACKLOG: Final = 128
"""Connections that the kernel keeps until they are accepted; asyncio accepts as many in a row."""
_OTHER_FILES: Final = 256
_ACCEPTED_IN_ADVANCE: Final = 4 * BACKLOG
"""Spare connections: asyncio accepts more of them between the refusal of one and its end."""
_FULL: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

REFUSAL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
    b"Connection: close\r\nContent-Length: 34\r\n\r\n"
    b'{"reason": "too many connections"}'
)


def connections_within(open_files: int) -> int:
    """The most connections with a limit of open files.

    >>> connections_within(20_000), connections_within(1024), connections_within(256)
    (1000, 256, 16)
    """
    return min(MOST_CONNECTIONS, max(16, open_files - _OTHER_FILES - _ACCEPTED_IN_ADVANCE))


def raise_open_files() -> int:
    """Raise the process's limit of open files as far as is needed and allowed; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + _OTHER_FILES + _ACCEPTED_IN_ADVANCE
    if resource.RLIM_INFINITY in (soft, hard) or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    soft = min(hard, wanted)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


class ConnectionBound:
    """Admits ``most`` connections, and states whether more are refused.

    >>> bound = ConnectionBound(2, Conditions(print))
    >>> [bound.admits(number) for number in (2, 3, 4)]
    connections: 2 are open: more are refused (503) until some are closed
    [True, False, False]
    """

    def __init__(self, most: int, conditions: Conditions) -> None:
        self._most, self._conditions = most, conditions

    def admits(self, connections: int) -> bool:
        """Whether a new connection may stay; it is among these."""
        if connections > self._most:
            self._full(f"{self._most} are open: more are refused (503) until some are closed")
            return False
        if connections <= self._most // 2:
            self._conditions.note(CONNECTIONS, "", None)
        return True

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an error of the event loop: that no connection can be accepted is one line."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _FULL:
            self._full(f"none can be accepted: {error.strerror}; check `ulimit -n`")
        else:
            loop.default_exception_handler(context)

    def _full(self, text: str) -> None:
        self._conditions.note(CONNECTIONS, "", text)
