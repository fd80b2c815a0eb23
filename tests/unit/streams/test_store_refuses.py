"""A store that answers with errors, in one line with what to do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from quotaplane.errors import HistoryError
from quotaplane.history.store import has_table, require_history
from quotaplane.settings import History
from quotaplane.streams.job_places import ask_store


@contextmanager
def store_that_answers(status: int, code: str) -> Iterator[History]:
    """A history on a store that gives this answer to all requests."""
    body = f"<Error><Code>{code}</Code><Message>m</Message></Error>".encode()
    if status == 200:
        body = b"<ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>"

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield History(
                path="s3://bucket/h",
                storage_options={
                    "AWS_ACCESS_KEY_ID": "a",
                    "AWS_SECRET_ACCESS_KEY": "b",
                    "AWS_REGION": "us-east-1",
                    "AWS_ALLOW_HTTP": "true",
                    "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_address[1]}",
                    "max_retries": "1",
                },
            )
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (403, "InvalidAccessKeyId"),
        (403, "SignatureDoesNotMatch"),
        (403, "AccessDenied"),
        (400, "ExpiredToken"),
    ],
)
def test_refused_keys_name_their_setting(status: int, code: str) -> None:
    with store_that_answers(status, code) as history:
        for ask in (require_history, ask_store):
            with pytest.raises(HistoryError) as raised:
                ask(history)
            line = str(raised.value)
            assert "\n" not in line
            assert line.startswith("history at s3://bucket/h: ")
            assert line.endswith("; the store refuses: see the keys in history.storage_options")


def test_a_store_that_has_nothing_there() -> None:
    with store_that_answers(200, "") as history:
        ask_store(history)
        assert not has_table(history, "rounds")


def test_a_store_that_is_too_busy_is_no_matter_of_keys() -> None:
    with store_that_answers(503, "SlowDown") as history:
        with pytest.raises(HistoryError, match="503") as raised:
            ask_store(history)
        assert "storage_options" not in str(raised.value)
