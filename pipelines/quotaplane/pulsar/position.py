"""Where reading a topic partition stands, as a text that is the same for the same place.

Spark compares offsets as JSON. An offset is ``{topic partition: position}``, sorted by name:

* ``"earliest"``: nothing was read yet;
* ``"latest"``: a query begins here, and its first read says where that is: Spark does not keep the
  offset a query began at, so it must be the same whenever it is asked for;
* ``"@1790000000000"``: what was published at this time (milliseconds since 1970) or later is next;
* ``"12:5:3"``: the message with this id was the last one (ledger, entry, place in its batch or -1);
* ``"1790000000000#17"``: of a non-persistent topic, whose ids tell nothing: 17 messages were
  received by a query that began at this time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from quotaplane.errors import TransportError

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
        """The id out of its text.

        Raises:
            TransportError: it is none.
        """
        found = re.fullmatch(r"(-?\d+):(-?\d+):(-?\d+)", text)
        if found is None:
            raise TransportError(
                f"{text!r} is no position in a Pulsar topic: not this checkpoint's"
            )
        return Id(*map(int, found.groups()))


class Received(NamedTuple):
    """How far a non-persistent topic was followed.

    >>> Received.parse("1790000000000#17"), str(Received(1790000000000, 17))
    (Received(since_ms=1790000000000, seen=17), '1790000000000#17')
    """

    since_ms: int
    seen: int

    def __str__(self) -> str:
        return f"{self.since_ms}#{self.seen}"

    @staticmethod
    def parse(text: str) -> Received:
        """The count out of its text.

        Raises:
            TransportError: it is none.
        """
        found = re.fullmatch(r"(\d+)#(\d+)", text)
        if found is None:
            raise TransportError(f"{text!r} is no position in a live topic: not this checkpoint's")
        return Received(*map(int, found.groups()))


def is_live(topic: str) -> bool:
    """Is the topic non-persistent: only those hear a message who listen when it is sent?"""
    return topic.startswith("non-persistent://")


def from_time(since_ms: int) -> str:
    """The position before what was published at ``since_ms`` or later."""
    return f"@{since_ms}"


def time_of(position: str) -> int | None:
    """The time in ``from_time``'s position; None if it is another one.

    >>> time_of("@17"), time_of("earliest")
    (17, None)
    """
    return int(position[1:]) if re.fullmatch(r"@\d+", position) else None


def as_offset(positions: Mapping[str, str]) -> Offset:
    """Positions in the one order that makes equal offsets equal texts."""
    return dict(sorted(positions.items()))


def ranges(start: Mapping[str, str], end: Mapping[str, str]) -> list[tuple[str, str, Id]]:
    """What lies between two offsets: (topic partition, position before the first, last id).

    A topic partition that appeared meanwhile is read from its beginning. So is one whose last id is
    lower than the start: it was made anew. What was received live can't be read again, and the
    first read of a query that began at the end found nothing.

    >>> ranges({"a": "1:2:0", "b": "9:0:-1", "c": "3:0:-1"},
    ...     {"a": "1:7:0", "b": "4:0:-1", "c": "3:0:-1", "d": "5:5:-1"})
    [('a', '1:2:0', Id(ledger=1, entry=7, batch=0)), ('b', 'earliest', Id(ledger=4, entry=0,
    batch=-1)), ('d', 'earliest', Id(ledger=5, entry=5, batch=-1))]
    """
    found = []
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
        found.append((topic, before, last))
    return found
