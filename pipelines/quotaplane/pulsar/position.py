"""Positions in a topic partition, as texts; equal positions are equal texts.

Spark compares offsets as JSON. An offset is ``{topic partition: position}``, sorted by name:

* ``"earliest"``: nothing was read yet;
* ``"latest"``: a query starts at the end, which its first read determines. Spark does not store a
  query's initial offset, so this text must be the same each time;
* ``"@1790000000000"``: next are messages published at this time (milliseconds since 1970) or later;
* ``"12:5:3"``: the id of the last message read (ledger, entry, index in its batch or -1);
* ``"1790000000000#17"``: for a non-persistent topic, whose ids have no meaning: the query that
  started at this time has received 17 messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from quotaplane.errors import TransportError
from quotaplane.settings.transports import is_live

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

Offset = dict[str, str]
"""Topic partition to position, sorted by name."""


class Id(NamedTuple):
    """A message's id. Later messages of a topic partition have higher ones.

    >>> Id.parse("12:5:3") < Id.parse("12:10:-1"), str(Id(12, 10, -1))
    (True, '12:10:-1')
    """

    ledger: int
    entry: int
    batch: int

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}:{self.batch}"

    @staticmethod
    def parse(text: str) -> Id:
        """Parse an id.

        Raises:
            TransportError: the text is not an id.
        """
        return Id(*_numbers(r"(-?\d+):(-?\d+):(-?\d+)", text, "a Pulsar topic"))


class Received(NamedTuple):
    """The position in a non-persistent topic: when the query started, messages received since.

    >>> Received.parse("1790000000000#17"), str(Received(1790000000000, 17))
    (Received(since_ms=1790000000000, seen=17), '1790000000000#17')
    """

    since_ms: int
    seen: int

    def __str__(self) -> str:
        return f"{self.since_ms}#{self.seen}"

    @staticmethod
    def parse(text: str) -> Received:
        """Parse such a position.

        Raises:
            TransportError: the text is not one.
        """
        return Received(*_numbers(r"(\d+)#(\d+)", text, "a live topic"))


def _numbers(form: str, text: str, where: str) -> Iterator[int]:
    match = re.fullmatch(form, text)
    if match is None:
        raise TransportError(f"{text!r} is not a position in {where}: not this checkpoint's")
    return map(int, match.groups())


def from_time(since_ms: int) -> str:
    """The position before messages published at ``since_ms`` or later."""
    return f"@{since_ms}"


def time_of(position: str) -> int | None:
    """The time of a position made by ``from_time``; None for others.

    >>> time_of("@17"), time_of("earliest")
    (17, None)
    """
    return int(position[1:]) if re.fullmatch(r"@\d+", position) else None


def as_offset(positions: Mapping[str, str]) -> Offset:
    """Sort positions, so that equal offsets are equal texts."""
    return dict(sorted(positions.items()))


def ranges(start: Mapping[str, str], end: Mapping[str, str]) -> list[tuple[str, str, Id]]:
    """The ranges between two offsets: (topic partition, position before the first, last id).

    A new topic partition is read from its beginning. So is one whose last id is lower than the
    start: it was created again. There is no range for live topics, which can't be read again, and
    none for the first read of a query that started at the end.

    >>> ranges({"a": "1:2:0", "b": "9:0:-1", "c": "3:0:-1"},
    ...     {"a": "1:7:0", "b": "4:0:-1", "c": "3:0:-1", "d": "5:5:-1"})
    [('a', '1:2:0', Id(ledger=1, entry=7, batch=0)), ('b', 'earliest', Id(ledger=4, entry=0,
    batch=-1)), ('d', 'earliest', Id(ledger=5, entry=5, batch=-1))]
    """
    parts = []
    for topic, after in end.items():
        before = start.get(topic, EARLIEST)
        if is_live(topic) or before == LATEST or after in (before, EARLIEST):
            continue
        if time_of(after) is not None:
            continue
        last = Id.parse(after)
        read_before = before == EARLIEST or time_of(before) is not None
        if not read_before and Id.parse(before) > last:
            before = EARLIEST
        parts.append((topic, before, last))
    return parts
