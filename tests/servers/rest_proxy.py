"""A proxy in front of a REST API that can be made to fail or to be slow."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

import httpx


class RestProxy:
    """Forwards requests to ``target``; a context manager.

    ``fails_with``: answer with this status instead. ``slow_s``: delay of each answer.
    """

    def __init__(self, target: str) -> None:
        self.fails_with: int | None = None
        self.slow_s = 0.0
        self.answered = 0
        self._ended = threading.Event()
        client = httpx.Client(base_url=target, trust_env=False)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer._ended.wait(outer.slow_s)
                if outer.fails_with is None:
                    kept = {n: v for n, v in self.headers.items() if n.lower() in _PASSED}
                    answer = client.request(self.command, self.path, content=body, headers=kept)
                    status, data = answer.status_code, answer.content
                else:
                    status, data = outer.fails_with, b""
                try:
                    self.send_response(status)
                    if status != 204:
                        self.send_header("Content-Type", "application/json")
                        self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:  # the client has gone
                    pass
                outer.answered += 1

            do_GET = do_PUT = do_POST = do_DELETE = _pass  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._client = client
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> RestProxy:
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
        self._client.close()


_PASSED = ("authorization", "content-type")
