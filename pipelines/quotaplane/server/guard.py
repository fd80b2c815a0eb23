"""Checks every request before a route reads it: size, time, encoding, origin."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quotaplane.server.refusals import AnswerError, error_answer

_BODY_WITHIN_S: Final = 10.0
_MOST_HELD_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of all bodies under way together: a thousand connections could each send one."""
_HEADERS: Final = ((b"x-content-type-options", b"nosniff"),)
READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""
_ONCE: Final = (
    *("Authorization", "Content-Encoding", "Content-Type", "Origin", "Quotaplane-Why"),
    *("If-Match", "If-None-Match"),
)
"""Headers refused if given twice: of two values, one program reads the first, another the last."""
_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f]")
_CHARSET: Final = re.compile(r";\s*charset\s*=\s*\"?([^\s\";]*)", re.IGNORECASE)

_Hold = Callable[[int], None]


class Guard:
    """An ASGI middleware.

    Args:
        app: the application behind it.
        max_body_bytes: a larger body is refused.
        most_held_bytes: most bytes of all bodies under way together, or of one if that is more.
        hosts: accepted names in the Host header; None: any. A server without tokens must check
            them. Otherwise the page of another site could map its own name to the address of this
            server (DNS rebinding), and the visitor's browser would let it read the answers.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Collection[str] | None,
        max_body_bytes: int = 1024 * 1024,
        most_held_bytes: int = _MOST_HELD_BYTES,
    ) -> None:
        self._app, self._max_body_bytes, self._hosts = app, max_body_bytes, hosts
        self._most_held_bytes = max(most_held_bytes, max_body_bytes)
        self._held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on with its whole body read."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        with self._room() as hold:
            await self._pass_on(scope, receive, send_with_headers, hold)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, hold: _Hold) -> None:
        try:
            headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
            self._check(scope, headers)
            body = await self._body(headers, receive, hold)
        except AnswerError as error:
            answer = error_answer(error.status, error.reason, error.headers)
            await answer(scope, receive, send)
            return
        flaw = _flaw_of_body(headers) if body else None
        if flaw is not None:
            await error_answer(415, flaw)(scope, receive, send)
            return
        given = False

        async def receive_body() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, receive_body, send)

    @contextmanager
    def _room(self) -> Iterator[_Hold]:
        """Count the bytes that a request holds; the yielded function raises if there is no room."""
        held = 0

        def hold(size_bytes: int) -> None:
            nonlocal held
            if self._held_bytes + size_bytes > self._most_held_bytes:
                raise AnswerError(
                    503,
                    "too many large requests at once; nothing was done",
                    {"Retry-After": "1", "Connection": "close"},
                )
            self._held_bytes += size_bytes
            held += size_bytes

        try:
            yield hold
        finally:
            self._held_bytes -= held

    def _check(self, scope: Scope, headers: dict[bytes, str]) -> None:
        _check_url((scope.get("raw_path") or b"") + b"?" + scope.get("query_string", b""))
        names = [name.decode("latin-1") for name, _ in scope["headers"]]
        for name in _ONCE:
            if names.count(name.lower()) > 1:
                raise AnswerError(400, f"header {name}: is given twice")
        if b"content-length" in headers and b"transfer-encoding" in headers:
            # A proxy may read the end of the body elsewhere (RFC 9112, 6.1).
            raise AnswerError(
                400,
                "Content-Length and Transfer-Encoding exclude each other",
                {"Connection": "close"},
            )
        host = headers.get(b"host", "")
        if self._hosts is not None and _name(host) not in self._hosts:
            raise AnswerError(400, "the Host header names another server than this one")
        origin = headers.get(b"origin")
        if origin is not None and scope["method"] not in READS and not _is_own(origin, host):
            raise AnswerError(403, "a page of another site may not change anything here")

    async def _body(self, headers: dict[bytes, str], receive: Receive, hold: _Hold) -> bytes:
        too_large = AnswerError(
            413, f"the body is larger than {self._max_body_bytes} bytes", {"Connection": "close"}
        )
        length = headers.get(b"content-length", "0")
        if length.isdecimal() and int(length) > self._max_body_bytes:
            raise too_large

        async def read() -> bytes:
            content = bytearray()
            while True:
                message = await receive()
                part = message.get("body", b"")
                hold(len(part))
                content += part
                if len(content) > self._max_body_bytes:
                    raise too_large
                if not message.get("more_body", False):
                    return bytes(content)

        try:
            return await asyncio.wait_for(read(), _BODY_WITHIN_S)
        except asyncio.TimeoutError:
            raise AnswerError(
                408, f"the body did not arrive within {_BODY_WITHIN_S:g} s", {"Connection": "close"}
            ) from None


def _check_url(target: bytes) -> None:
    """Check that every program decodes a path and its query alike.

    Raises:
        AnswerError: the URL is not percent-encoded UTF-8, or has a control character. Part of a
            name before a newline could otherwise match a group.
    """
    if _BAD_ESCAPE.search(target):
        raise AnswerError(400, "the URL has a % without two hex digits behind it: % itself is %25")
    try:
        text = unquote_to_bytes(target).decode("utf-8")
    except UnicodeDecodeError:
        raise AnswerError(400, "the URL is not UTF-8 after percent-decoding") from None
    if _CONTROL.search(text):
        raise AnswerError(400, "the URL has a control character")


def _flaw_of_body(headers: Mapping[bytes, str]) -> str | None:
    """The problem of a body's encoding and content type; None: it can be read.

    >>> _flaw_of_body({b"content-type": 'application/json; charset="UTF-8"'})
    >>> _flaw_of_body({b"content-type": "application/json;charset=latin-1"})
    "the body must be UTF-8, not 'latin-1'"
    """
    kind = headers.get(b"content-type", "")
    if not _is_json(kind):
        return "the body must be JSON (Content-Type: application/json)"
    charset = _CHARSET.search(kind)
    if charset is not None and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        return f"the body must be UTF-8, not {charset[1]!r}"
    coding = headers.get(b"content-encoding", "identity")
    if coding.strip().lower() != "identity":
        return f"the body must not be compressed (Content-Encoding: {coding})"
    return None


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


def _is_own(origin: str, host: str) -> bool:
    """Whether an Origin header names the host of the Host header.

    >>> _is_own("http://a:8460", "a:8460"), _is_own("http://[", "a:8460"), _is_own("null", "")
    (True, False, False)
    """
    try:
        return bool(host) and urlsplit(origin).netloc == host
    except ValueError:
        return False


def _name(host: str) -> str:
    """The name in a Host header.

    >>> _name("localhost:8460"), _name("[::1]:8460"), _name("")
    ('localhost', '::1', '')
    """
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
