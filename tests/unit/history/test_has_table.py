"""Whether a table is there, on a store that speaks S3: a server of this process that knows one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from quotaplane.history.store import has_table
from quotaplane.settings import History

LISTED = (
    "<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated>{content}</ListBucketResult>"
)
COMMIT = (
    "<Contents><Key>h/rounds/_delta_log/00000000000000000000.json</Key>"
    "<LastModified>2026-11-30T00:00:00.000Z</LastModified><Size>5</Size></Contents>"
)


class Store(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        (prefix,) = parse_qs(urlsplit(self.path).query)["prefix"]
        body = LISTED.format(content=COMMIT if prefix == "h/rounds/_delta_log/" else "").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def history() -> Iterator[History]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = {
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_address[1]}",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    yield History.model_validate({"path": "s3://b/h", "storage_options": options})
    server.shutdown()
    server.server_close()


def test_one_request_says_that_a_table_is_there(history: History) -> None:
    Store.asked.clear()
    assert has_table(history, "rounds")
    assert len(Store.asked) == 1
    assert not has_table(history, "usage")
