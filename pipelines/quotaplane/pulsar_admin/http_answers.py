"""Reads answers of HTTP servers with a bound on their size.

Nothing is decompressed: a server of which a compressed answer came could make 1 GB of 1 MB. Clients
ask for ``identity``, which also spares a broker the work of compressing its statistics.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import httpx

from quotaplane.bounded_json import parse_bounded
from quotaplane.errors import ClusterError

MOST_ANSWER_BYTES: Final = 64 << 20
"""A longer answer is refused. Statistics of 30,000 topics of a broker have about so many bytes."""

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


async def read_answer(
    client: httpx.AsyncClient, request: httpx.Request, most_bytes: int = MOST_ANSWER_BYTES
) -> HttpAnswer:
    """Make a request and read the answer as it comes, up to ``most_bytes``.

    Raises:
        ClusterError: the answer is longer, or compressed.
        httpx.HTTPError: as httpx.
    """
    response = await client.send(request, stream=True)
    try:
        content = await _content(response, most_bytes)
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


async def _content(response: httpx.Response, most_bytes: int) -> bytes:
    encoding = response.headers.get("content-encoding", "identity")
    if encoding.lower() not in ("", "identity"):
        if not response.is_success:  # the status says enough
            return b""
        raise ClusterError(
            f"Pulsar's REST API: {_place(response)}: the answer is compressed ({encoding[:20]!r}), "
            "which was not asked for; a proxy before the brokers must leave Accept-Encoding as it "
            "is"
        )
    content = bytearray()
    async for part in response.aiter_bytes():
        content += part
        if len(content) > most_bytes:
            raise ClusterError(
                f"Pulsar's REST API: {_place(response)}: the answer has more than {most_bytes} "
                "bytes and was not read to its end"
            )
    return bytes(content)


def _place(response: httpx.Response) -> str:
    url = response.request.url
    return f"{response.request.method} {url.scheme}://{url.netloc.decode('ascii')}{url.path}"
