"""An HTTP proxy before a store: it notes each request, and may delay or fail it.

    with HttpProxy(store.port) as proxy:
        proxy.delay_s = 0.1
        proxy.fault = lambda seen: Fault(503) if random.random() < 0.2 else None

Requests of the process that has the proxy must not go through it: some functions of the deltalake
package let no other thread run until they have an answer.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple

_CODES: Final = {403: "AccessDenied", 500: "InternalError", 503: "SlowDown"}
_BODY: Final = '<?xml version="1.0"?><Error><Code>{code}</Code><Message>a fault</Message></Error>'
_OF_ONE_HOP: Final = {"connection", "expect", "transfer-encoding", "content-length", "keep-alive"}


class Seen(NamedTuple):
    """A request."""

    at_s: float
    """When it came, by ``time.monotonic``."""
    method: str
    target: str
    """Path and query."""
    is_spark: bool
    """Spark's connector made it; else the deltalake package."""


class Fault(NamedTuple):
    """An answer of the proxy in place of the server's."""

    status: int
    done: bool = False
    """The server has done what was asked, and only its answer is lost."""


class HttpProxy:
    """Forwards requests to a server on loopback; a context manager."""

    def __init__(self, server_port: int) -> None:
        self._to = server_port
        self.delay_s = 0.0
        """Each request waits so long."""
        self.fault: Callable[[Seen], Fault | None] = lambda seen: None
        """Called with each request; None: it gets the server's answer."""
        self.seen: list[Seen] = []
        self.failed: list[Seen] = []
        """Those with a fault."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> HttpProxy:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, seen: Seen, headers: dict[str, str], body: bytes) -> tuple[Any, bytes]:
        """The status and headers, and the body, of the server's answer or of a fault."""
        time.sleep(self.delay_s)
        self.seen.append(seen)
        fault = self.fault(seen)
        if fault is None:
            return self._of_server(seen, headers, body)
        self.failed.append(seen)
        if fault.done:
            self._of_server(seen, headers, body)
        return (fault.status, {}), _BODY.format(code=_CODES[fault.status]).encode()

    def _of_server(self, seen: Seen, headers: dict[str, str], body: bytes) -> tuple[Any, bytes]:
        server = http.client.HTTPConnection("127.0.0.1", self._to, timeout=60)
        try:
            server.putrequest(seen.method, seen.target, skip_host=True, skip_accept_encoding=True)
            for name, value in headers.items():
                server.putheader(name, value)
            server.putheader("Content-Length", str(len(body)))
            server.endheaders(body)
            answer = server.getresponse()
            return (answer.status, dict(answer.getheaders())), answer.read()
        finally:
            server.close()


def _handler(proxy: HttpProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            by_spark = "Hadoop" in (self.headers.get("User-Agent") or "")
            seen = Seen(time.monotonic(), self.command, self.path, by_spark)
            kept = {k: v for k, v in self.headers.items() if k.lower() not in _OF_ONE_HOP}
            try:
                (status, headers), content = proxy.answer(seen, kept, body)
            except OSError:  # the server is away
                self.close_connection = True
                return
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in _OF_ONE_HOP:
                    self.send_header(name, value)
            is_head = self.command == "HEAD"
            length = headers.get("Content-Length", "0") if is_head else str(len(content))
            self.send_header("Content-Length", length)
            self.end_headers()
            with suppress(OSError):  # the client was killed
                if not is_head:
                    self.wfile.write(content)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    return Handler
