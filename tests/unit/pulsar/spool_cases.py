"""Messages of a non-persistent topic as a query receives them, batch after batch."""

from __future__ import annotations

from pathlib import Path

from quotaplane.errors import TransportError
from quotaplane.pulsar.message import Row
from quotaplane.pulsar.position import Offset
from quotaplane.pulsar.spool import Spool
from tests.unit.pulsar.pulsar_cases import LIVE, TOPIC

BEGAN_MS = 1_790_000_000_000


def offset(seen: int, since_ms: int = BEGAN_MS) -> Offset:
    """After so many messages of the live topic, and as many of a persistent one."""
    return {LIVE: f"{since_ms}#{seen}", TOPIC: f"1:{seen}:-1"}


def row(number: int, topic: str = LIVE, value: bytes = b"") -> Row:
    text = value or b"report %d" % number
    return Row("b", text, topic, f"{BEGAN_MS}#{number}", BEGAN_MS + number, None, {"a": "b"})


def rows(first: int, last: int) -> list[Row]:
    """Live messages ``first`` to ``last``, with persistent ones between them."""
    return [row(n, topic) for n in range(first, last + 1) for topic in (LIVE, TOPIC)]


def values(spool: Spool, start: Offset, end: Offset) -> list[bytes]:
    return [value for batch in spool.read(start, end) for value in batch["value"].to_pylist()]


def live_values(first: int, last: int) -> list[bytes]:
    return [b"report %d" % number for number in range(first, last + 1)]


def found(folder: Path, start: Offset, end: Offset) -> list[bytes] | str:
    """The values of a batch that runs again, or the first words of the error."""
    try:
        return values(Spool(str(folder)), start, end)
    except TransportError as error:
        return str(error).removeprefix(str(folder))
