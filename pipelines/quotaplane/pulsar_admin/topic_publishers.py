"""Reads what brokers know about the producers of topics: connections, and how much they publish."""

from __future__ import annotations

import asyncio
import re
from typing import Final, NamedTuple

from quotaplane.errors import ClusterError
from quotaplane.parsing.bounded_json import MALFORMED
from quotaplane.pulsar_admin.rest import METRICS_PATH, Rest
from quotaplane.pulsar_admin.topic_usage import MOST_LABELS, part_in

_QUERY: Final = "getPreciseBacklog=false&subscriptionBacklogSize=false&excludeConsumers=true"
_MESSAGES: Final = b"in_messages_total"
_PRODUCERS: Final = b"producers_count"
_NAMES: Final = (
    *(b"pulsar_in_messages_total", b"pulsar_producers_count"),
    *(b"pulsar_rate_in", b"pulsar_publish_rate_limit_times"),
)
_LINE: Final = re.compile(
    rb"^pulsar_(in_messages_total|producers_count|rate_in|publish_rate_limit_times)"
    rb"\{([^\n]*)\} ([0-9.eE+]+)",
    re.MULTILINE,
)


class TopicPublishers(NamedTuple):
    """The producers of a topic or partition, from its live statistics."""

    messages: int
    """Published since the broker loaded it."""
    lately: bool
    """See ``Published.lately``."""
    producers: dict[str, str]
    """By address of a connection: the name of one of the producers on it."""


class Published(NamedTuple):
    """How much was published to a broker's topics and partitions, of those that have producers."""

    messages: dict[str, int]
    """Since the broker loaded them."""
    lately: set[str]
    """Topics published to since the last but one update of the broker's statistics.

    The statistics show a message in their last interval and, since then, a message after which the
    broker stopped reading from the producer. Each update sets that count to 0.
    """


async def read_publishers(rest: Rest, part: str) -> TopicPublishers:
    """Read the producers of a topic or partition that a broker has loaded.

    Raises:
        NotFoundError: it does not exist.
        ClusterError: they can't be read.
    """
    domain, _, name = part.partition("://")
    path = Rest.path(domain, name, "stats")
    answer = await rest.get(f"{path}?{_QUERY}")
    try:
        producers = {str(one["address"]): str(one["producerName"]) for one in answer["publishers"]}
        lately = answer.get("msgRateIn", 0) > 0 or answer.get("publishRateLimitedTimes", 0) > 0
        return TopicPublishers(int(answer["msgInCounter"]), lately, producers)
    except MALFORMED:
        raise rest.failure(f"GET {path}: the answer has no producers") from None


async def read_published(rest: Rest, broker_url: str) -> Published:
    """Read how much was published to a broker's topics and partitions with producers.

    Raises:
        ClusterError: the broker's metrics can't be read.
    """
    metrics = await rest.get_metrics(broker_url, _NAMES)
    try:
        return await asyncio.to_thread(published_in, metrics)
    except MALFORMED:
        raise ClusterError(
            f"Pulsar's REST API at {broker_url}: GET {METRICS_PATH}: the answer is malformed"
        ) from None


def published_in(metrics: bytes) -> Published:
    r"""Parse how much was published from a broker's metrics.

    >>> lines = [b'pulsar_in_messages_total{topic="persistent://a/b/c"} 2',
    ...          b'pulsar_producers_count{topic="persistent://a/b/c"} 1',
    ...          b'pulsar_rate_in{topic="persistent://a/b/c"} 0.02']
    >>> published_in(b"\n".join(lines))
    Published(messages={'persistent://a/b/c': 2}, lately={'persistent://a/b/c'})
    """
    messages: dict[str, int] = {}
    produced: set[str] = set()
    lately: set[str] = set()
    for kind, labels, text in (line.groups() for line in _LINE.finditer(metrics)):
        value = float(text)
        part = part_in(labels) if value > 0 and len(labels) <= MOST_LABELS else None
        if part is None:
            continue
        if kind == _MESSAGES:
            messages[part] = int(value)
        else:
            (produced if kind == _PRODUCERS else lately).add(part)
    found = {part: count for part, count in messages.items() if part in produced}
    return Published(found, lately & found.keys())
