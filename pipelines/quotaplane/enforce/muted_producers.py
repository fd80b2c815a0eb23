"""Finds connections from which a broker does not read any more, after a quota was taken over.

Pulsar's own limiter of a group stops to read from a producer's connection, computes once for how
long, and does not look again when the quota changes: of 1 byte per second, that is minutes for a
message of some hundred bytes (docs/pulsar.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Publishing(NamedTuple):
    """The producers of a topic or partition, as its broker knows them."""

    messages: int
    """Published since the broker loaded it."""
    throttled: int
    """How often the broker stopped to read from a connection of these producers since then."""
    producers: Mapping[str, str]
    """By address of a connection: the name of one of the producers on it."""


class Producer(NamedTuple):
    """A producer, and where it publishes."""

    part: str
    """The topic or partition."""
    name: str


def may_be_muted(publishing: Publishing) -> bool:
    """Whether a producer of the topic or partition may be muted, by one look at it.

    >>> may_be_muted(Publishing(5, 0, {"/10.0.0.1:4711": "p"}))
    False
    """
    return publishing.throttled > 0 and bool(publishing.producers)


def muted_connections(
    before: Mapping[str, Publishing], now: Mapping[str, Publishing]
) -> dict[str, Producer]:
    """Connections that may be muted, and a producer on each; by part, looked at twice.

    The broker stopped to read from them at some time, and nothing was published between the looks.
    A producer that is only idle looks the same; its connection answers when it is checked.

    >>> silent, busy = (Publishing(count, 1, {"/10.0.0.1:4711": "p"}) for count in (5, 6))
    >>> muted_connections({"t": silent, "u": silent}, {"t": silent, "u": busy})
    {'/10.0.0.1:4711': Producer(part='t', name='p')}
    """
    found: dict[str, Producer] = {}
    for part, publishing in now.items():
        if part in before and publishing.messages == before[part].messages:
            for address, name in publishing.producers.items():
                if address in before[part].producers:
                    found.setdefault(address, Producer(part, name))
    return found
