"""Reads answers of HTTP servers with a bound on their size, and states which requests are refused.

Nothing is decompressed: a server of which a compressed answer came could make 1 GB of 1 MB. Clients
ask for ``identity``, which also spares a broker the work of compressing its statistics.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final, NamedTuple

import httpx

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import ACCESS_REFUSED
from quotaplane.errors import ClusterError
from quotaplane.parsing.bounded_json import parse_bounded

MOST_ANSWER_BYTES: Final = 64 << 20
"""A longer answer is refused. Statistics of 30,000 topics of a broker are about as long."""

_MOST_LINED_BYTES: Final = 2 << 30
"""The same where only some lines are kept. A topic has 8 kB of a broker's metrics, with a
subscription 12 kB."""
_MOST_LINE_BYTES: Final = 1 << 20
"""Lines of which this much came without an end are refused."""

_REFUSALS: Final = (401, 403)

UNCOMPRESSED: Final = {"Accept-Encoding": "identity"}
"""Headers of every request."""


class HttpAnswer(NamedTuple):
    """A whole answer."""

    status: int
    reason_phrase: str
    content_type: str
    next_url: str | None
    """Where a redirect leads."""
    content: bytes

    def json(self) -> Any:
        """The parsed content.

        Raises:
            ValueError: as ``parse_bounded``.
        """
        return parse_bounded(self.content)

    def text(self) -> str:
        """The content as text."""
        return self.content.decode("utf-8", "replace")


class ChosenLines:
    r"""Selects, from a text that comes in parts, the whole lines that begin with one of some names.

    >>> chosen = ChosenLines([b"b"])
    >>> [chosen.take(part) for part in (b"a 1\nb", b" 2\nc 3\nb 4", b"\n")]
    [b'', b'b 2\n', b'b 4\n']
    """

    def __init__(self, names: Collection[bytes]) -> None:
        self._names = names
        anyone = b"|".join(map(re.escape, names))
        self._line = re.compile(rb"^(?:%s)\b[^\n]*\n" % anyone, re.MULTILINE)
        self._begun = b""

    def take(self, part: bytes) -> bytes:
        """The chosen lines that end in the next part.

        Raises:
            ClusterError: a line is too long.
        """
        text = self._begun + part
        end = text.rfind(b"\n") + 1
        self._begun = text[end:]
        if len(self._begun) > _MOST_LINE_BYTES:
            raise ClusterError(
                f"Pulsar's REST API: the answer has a line of more than {_MOST_LINE_BYTES} bytes"
            )
        # The expression looks at each line, which takes ten times as long.
        if not any(name in text for name in self._names):
            return b""
        return b"".join(self._line.findall(text, 0, end))


async def read_answer(
    client: httpx.AsyncClient,
    request: httpx.Request,
    most_bytes: int = MOST_ANSWER_BYTES,
    lines: ChosenLines | None = None,
) -> HttpAnswer:
    """Make a request and read the answer as it comes, up to ``most_bytes``.

    ``lines``: of a successful answer only these are kept, and ``most_bytes`` is a bound on them.

    Raises:
        ClusterError: the answer is longer, or compressed.
        httpx.HTTPError: as httpx.
    """
    response = await client.send(request, stream=True)
    try:
        content = await _content(response, most_bytes, lines if response.is_success else None)
    finally:
        await response.aclose()
    following = response.next_request
    return HttpAnswer(
        response.status_code,
        response.reason_phrase,
        response.headers.get("content-type", ""),
        None if following is None else str(following.url),
        content,
    )


async def _content(response: httpx.Response, most_bytes: int, lines: ChosenLines | None) -> bytes:
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.lower() not in ("", "identity"):
        if not response.is_success:  # the status says enough
            return b""
        raise ClusterError(
            f"{_place(response)}: the answer is compressed ({encoding[:20]!r}), "
            "which was not asked for; a proxy in between must leave Accept-Encoding as it is"
        )
    content, read_bytes = bytearray(), 0
    async for part in response.aiter_bytes():
        read_bytes += len(part)
        content += part if lines is None else lines.take(part)
        if len(content) > most_bytes or read_bytes > _MOST_LINED_BYTES:
            most = most_bytes if len(content) > most_bytes else _MOST_LINED_BYTES
            raise ClusterError(
                f"{_place(response)}: the answer has more than {most} bytes "
                "and was not read to its end"
            )
    if lines is not None:
        content += lines.take(b"\n")
    return bytes(content)


def _place(response: httpx.Response) -> str:
    url = response.request.url
    return f"{response.request.method} {url.scheme}://{url.netloc.decode('ascii')}{url.path}"


class AccessWatch:
    """States which requests are refused with 401 or 403.

    A refusal at the start ends a program with an error. So only refusals after a request that the
    cluster admitted count: a token has expired, or a right was taken away or never given.
    """

    def __init__(self, url: str, conditions: Conditions) -> None:
        self._url, self._conditions = url, conditions
        self._admitted = False

    def record(self, method: str, path: str, status: int) -> None:
        """Record the status of the cluster's answer to a request."""
        refused = status in _REFUSALS
        self._admitted = self._admitted or not refused
        if self._admitted:
            text = (
                f"{status} of Pulsar's REST API at {self._url}; the token has expired or a right "
                "is missing; requests are repeated, and nothing changes until they are admitted "
                "(docs/operate/runbook/access-is-refused.md)"
            )
            request = f"{method} {path.partition('?')[0]}"
            self._conditions.note(ACCESS_REFUSED, request, text if refused else None, times=1)
