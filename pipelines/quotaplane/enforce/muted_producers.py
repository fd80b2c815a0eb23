"""Finds connections from which a broker may not read any more, after a quota was taken over.

Pulsar's own limiter of a group stops to read from a producer's connection, computes once for how
long, and does not look again when the quota changes: of 1 byte per second, that is minutes for a
message of some hundred bytes (docs/pulsar.md).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import NamedTuple


class Producer(NamedTuple):
    """A producer, and where it publishes."""

    part: str
    """The topic or partition."""
    name: str


def silent_parts(
    before: Mapping[str, int], now: Mapping[str, int], lately: Container[str]
) -> list[str]:
    """Topics and partitions to which nothing was published between two looks.

    Those of ``lately`` come first: a muted producer published a message not long ago, and it should
    not wait until thousands of idle ones are checked. Where nothing was published ever, nobody is
    muted.

    Whether the broker counts them as throttled is no criterion: it forgets that whenever it updates
    its statistics, and the producer stays muted.

    >>> silent_parts({"t": 5, "u": 5, "v": 0, "w": 1}, {"t": 5, "u": 6, "v": 0, "w": 1}, {"w"})
    ['w', 't']
    """
    silent = [part for part, count in now.items() if 0 < count == before.get(part)]
    return sorted(silent, key=lambda part: part not in lately)


def connections_of(producers: Mapping[str, Mapping[str, str]]) -> dict[str, Producer]:
    """Connections, and a producer on each, from the producers of each topic or partition.

    >>> connections_of({"t": {"/10.0.0.1:4711": "p"}, "u": {"/10.0.0.1:4711": "q"}})
    {'/10.0.0.1:4711': Producer(part='t', name='p')}
    """
    found: dict[str, Producer] = {}
    for part, name_of in producers.items():
        for address, name in name_of.items():
            found.setdefault(address, Producer(part, name))
    return found
