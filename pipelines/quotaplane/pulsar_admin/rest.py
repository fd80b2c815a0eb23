"""A client of a Pulsar cluster's REST API, with TLS and authentication.

A broker that is not responsible redirects (307). The client follows redirects itself: an HTTP
library would drop the token when the host changes, and the token may go only to the cluster's own
brokers.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncGenerator, Collection
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

import httpx

from quotaplane.agents.conditions import Conditions
from quotaplane.errors import ClusterError, ConfigError
from quotaplane.parsing.addresses import clear_to
from quotaplane.parsing.bounded_json import JsonBoundsError
from quotaplane.settings import PulsarConnection, PulsarSecurity

if TYPE_CHECKING:
    from typing_extensions import Self

from quotaplane.pulsar_admin.http_answers import (
    UNCOMPRESSED,
    AccessWatch,
    ChosenLines,
    HttpAnswer,
    read_answer,
)
from quotaplane.pulsar_admin.oauth2 import fetch_token

_REDIRECTS: Final = 3
_AMBIGUOUS: Final = re.compile(r"(^|/)(\.|%2e){0,2}(/|$)|%2f|%5c|\\", re.IGNORECASE)
"""In a path without its first slash. ``Rest.path`` makes ``%2F`` of no name: its ``%`` becomes
``%25``."""
METRICS_PATH: Final = "/metrics/"
"""Path of a broker's metrics; without the last slash the broker answers with a redirect."""
_METRICS_WITHIN_S: Final = 60.0
"""A broker with 50,000 topics needs 8 s of a core for its metrics."""
_EARLIER_S: Final = 30.0
"""An OAuth2 token is fetched again this long before it expires."""


class RefusedError(ClusterError):
    """The cluster answered with an error; ``status`` is HTTP's (401, 404, 412, 500 ...)."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class NotFoundError(RefusedError):
    """The cluster has no such thing (404)."""


class Rest:
    """Requests to one cluster; an asynchronous context manager for one event loop.

    ``conditions`` are of the program; they have what the cluster refuses (see ``AccessWatch``).
    ``wire`` sends requests, for example to a cluster in memory; None: HTTP over the network.

    >>> Rest.path("persistent", "acme/orders", "a topic", "publishRate")
    '/admin/v2/persistent/acme/orders/a%20topic/publishRate'
    """

    def __init__(
        self,
        transport: PulsarConnection,
        *,
        concurrency: int = 16,
        conditions: Conditions | None = None,
        wire: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if transport.admin_url is None:
            raise ConfigError("transport.admin_url: is needed for the cluster's REST API")
        self.url = transport.admin_url.rstrip("/")
        self.conditions = conditions or Conditions(lambda _: None)
        self._access = AccessWatch(self.url, self.conditions)
        self._hosts: set[str | None] = {urlsplit(self.url).hostname}
        self._places = asyncio.Semaphore(concurrency)
        security = transport.security
        ways = (security.token, security.token_file, security.oauth2)
        self._has_token = any(way is not None for way in ways)
        self._client = httpx.AsyncClient(
            transport=wire,
            timeout=transport.timeout_s,
            verify=tls_context(security),
            auth=_Bearer(security, transport.timeout_s),
            headers=UNCOMPRESSED,
            limits=httpx.Limits(max_connections=concurrency),
            # Ignore proxies of the environment and .netrc: the settings decide.
            trust_env=False,
        )
        self._timeout_s = transport.timeout_s

    @staticmethod
    def path(*parts: str) -> str:
        """Join parts into a path; a part may contain slashes.

        A request with a path that has an empty part, ``.`` or ``..`` is refused.
        """
        return "/admin/v2/" + "/".join(quote(part, safe="/") for part in parts)

    async def get(self, path: str) -> Any:
        """GET a path; returns the parsed JSON, None for an empty answer (204).

        Raises:
            RefusedError: the cluster answered with an error.
            ClusterError: no answer in time, or one that is too large (``http_answers``,
                ``bounded_json``).
        """
        return await self.ask("GET", path)

    async def find(self, path: str) -> Any:
        """Like ``get``; None also where the cluster has no such thing (404)."""
        try:
            return await self.get(path)
        except NotFoundError:
            return None

    async def ask(
        self, method: str, path: str, body: object = None, *, timeout_s: float | None = None
    ) -> Any:
        """Make any request; like ``get``. ``timeout_s``: instead of the client's own."""
        answer = await self._answer(method, self.url, path, body, timeout_s)
        if answer.status == 204 or not answer.content:
            return None
        try:
            return answer.json()
        except JsonBoundsError as error:
            raise self.failure(f"{method} {path}: the answer has {error}") from None
        except ValueError:
            # Pulsar answers a single name as plain text.
            return answer.text()

    async def get_bytes(self, path: str, broker_url: str) -> bytes:
        """GET a path from this broker; like ``get``, but returns the raw bytes."""
        return (await self._answer("GET", broker_url.rstrip("/"), path, None)).content

    async def get_metrics(self, broker_url: str, names: Collection[bytes]) -> bytes:
        """The lines with these names of this broker's metrics; like ``get_bytes``.

        The metrics of many topics are larger than other answers may be, so they are never kept as
        a whole, and may take longer.
        """
        lines = ChosenLines(names)
        base, within_s = broker_url.rstrip("/"), max(self._timeout_s, _METRICS_WITHIN_S)
        return (await self._answer("GET", base, METRICS_PATH, None, within_s, lines)).content

    def check_may_send(self, method: str, path: str) -> None:
        """Called at the last moment before a request is sent; a subclass may refuse it.

        Raises:
            ClusterError: the request must not be sent.
        """

    async def _answer(
        self,
        method: str,
        base: str,
        path: str,
        body: object,
        timeout_s: float | None = None,
        lines: ChosenLines | None = None,
    ) -> HttpAnswer:
        where = f"{method} {path}"
        _check_path(path)
        within_s = self._timeout_s if timeout_s is None else timeout_s
        async with self._places:
            try:
                # Not httpx's time limit: that is for each part of an answer, not for the whole.
                answer = await asyncio.wait_for(
                    self._follow(method, base, path, body, within_s, lines), within_s
                )
            except (httpx.TimeoutException, asyncio.TimeoutError):
                why = f"no answer within {within_s:g} s"
                raise self._unanswered(where, why) from None
            except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
                # ValueError: a URL that a broker gave can't be parsed.
                why = " ".join(str(error).split()) or type(error).__name__
                raise self._unanswered(where, why) from None
        self._access.record(method, path, answer.status)
        if answer.status >= 300:
            refusal = NotFoundError if answer.status == 404 else RefusedError
            raise refusal(
                f"Pulsar's REST API at {self.url}: {where}: {_reason(answer)}", answer.status
            )
        return answer

    def failure(self, text: str) -> ClusterError:
        """An error about an answer of this API."""
        return ClusterError(f"Pulsar's REST API at {self.url}: {text}")

    def _unanswered(self, where: str, why: str) -> ClusterError:
        return self.failure(f"{where}: {why}; check transport.admin_url and transport.security")

    async def _follow(
        self,
        method: str,
        base: str,
        path: str,
        body: object,
        within_s: float,
        lines: ChosenLines | None,
    ) -> HttpAnswer:
        url = base + path
        if base != self.url:
            await self._check(url)
        for _ in range(_REDIRECTS):
            self.check_may_send(method, path)
            request = self._client.build_request(method, url, json=body, timeout=within_s)
            try:
                answer = await read_answer(self._client, request, lines=lines)
            except httpx.HTTPError as error:
                if url == base + path:
                    raise
                why = " ".join(str(error).split()) or type(error).__name__
                to = urlsplit(url).netloc
                raise self.failure(
                    f"{method} {path}: redirects to {to}, which does not answer: {why}"
                ) from None
            if answer.status != 307:
                return answer
            url = answer.next_url or ""
            await self._check(url)
        raise self.failure(f"{method} {path}: too many redirects")

    async def _check(self, url: str) -> None:
        """Check that the token would go to one of the cluster's brokers, and encrypted if ours is.

        Raises:
            ClusterError: it would not.
        """
        to = urlsplit(url)
        if to.hostname not in self._hosts:
            await self._learn_hosts()
        if to.hostname not in self._hosts:
            raise self.failure(
                f"redirects to {to.hostname}, which is not one of the cluster's brokers; check "
                "transport.admin_url"
            )
        if to.scheme != "https" and self.url.startswith("https:"):
            raise self.failure(
                f"redirects to {to.hostname} without TLS; check the brokers' webServicePortTls"
            )
        # The settings were checked for admin_url's host only, which may be a tunnel on loopback.
        if self._has_token and clear_to(url) is not None and clear_to(self.url) is None:
            raise self.failure(
                f"redirects to {to.hostname}, where the token would go in clear text; use https, "
                "or let transport.admin_url name a broker"
            )

    async def _learn_hosts(self) -> None:
        request = self._client.build_request("GET", self.url + self.path("brokers"))
        answer = await read_answer(self._client, request)
        with contextlib.suppress(ValueError):
            brokers = answer.json() if answer.status == 200 else []
            if isinstance(brokers, list):
                self._hosts |= {urlsplit(f"//{broker}").hostname for broker in brokers}

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _check_path(path: str) -> None:
    """Check that every program resolves a path alike.

    HTTP libraries, proxies and servers remove the parts ``.`` and ``..`` and may decode an encoded
    slash, so a name with these would make a request for something else.

    Raises:
        ClusterError: it has such a part, or an empty one.
    """
    if path == METRICS_PATH:
        return
    names = path.partition("?")[0].removeprefix("/")
    if not path.startswith("/") or _AMBIGUOUS.search(names):
        raise ClusterError(
            f"Pulsar's REST API: {path[:200]!r}: a name in it is empty, '.' or '..', or has an "
            "encoded slash; no request was made"
        )


def _reason(answer: HttpAnswer) -> str:
    """HTTP status and Pulsar's reason, with advice where we have one."""
    reason = ""
    if answer.content_type.startswith("application/json"):
        try:
            reason = str(answer.json().get("reason") or "")
        except (ValueError, AttributeError):
            reason = ""
    # The reason of an internal error has a stack trace: cut it off.
    reason = " ".join(reason.partition("Stacktrace:")[0].split())[:300]
    # The status line has the reason, too, but truncated, so it comes second.
    text = f"{answer.status} {reason or answer.reason_phrase}"
    if answer.status in (401, 403):
        text += "; check transport.security and what its role may do"
    return text


def tls_context(security: PulsarSecurity) -> ssl.SSLContext:
    """Make the TLS context of HTTPS connections.

    Raises:
        ConfigError: a certificate or key file can't be read; names the setting.
    """
    try:
        context = ssl.create_default_context(cafile=security.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"transport.security.ca_file: {security.ca_file}: {_in_a_line(error)}"
        ) from None
    if not security.verify_hostname:
        context.check_hostname = False
    if security.certificate_file is not None:
        try:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(security.certificate_file, security.key_file, password="")
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"transport.security.certificate_file: {security.certificate_file}, with "
                f"{security.key_file}: {_in_a_line(error)}"
            ) from None
    return context


def _in_a_line(error: OSError) -> str:
    return error.strerror or " ".join(str(error).split()) or type(error).__name__


class _Bearer(httpx.Auth):
    """Adds the token that the settings name to each request."""

    def __init__(self, security: PulsarSecurity, timeout_s: float) -> None:
        self._security = security
        self._timeout_s = timeout_s
        self._fetched = ""
        self._until_s = 0.0
        self._fetching = asyncio.Lock()

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        token = await self._token()
        if token:
            if not (token.isascii() and token.isprintable()) or " " in token:
                # httpx's own error for such a header would print the token.
                raise ClusterError(
                    "transport.security: the token contains characters that are not allowed in an "
                    "HTTP header"
                )
            request.headers["Authorization"] = f"Bearer {token}"
        yield request

    async def _token(self) -> str:
        security = self._security
        if security.token is not None:
            return security.token.get_secret_value()
        if security.token_file is not None:
            try:
                return Path(security.token_file).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or "not text"
                raise ClusterError(
                    f"transport.security.token_file: {security.token_file}: {why}"
                ) from None
        if security.oauth2 is None:
            return ""
        async with self._fetching:
            now_s = asyncio.get_running_loop().time()
            if now_s >= self._until_s:
                self._fetched, lives_s = await fetch_token(security, self._timeout_s)
                self._until_s = now_s + max(lives_s - _EARLIER_S, lives_s / 2)
            return self._fetched
