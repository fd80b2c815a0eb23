"""Reads what brokers know about the producers of topics: connections, and how often they waited."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from quotaplane.bounded_json import MALFORMED
from quotaplane.errors import ClusterError
from quotaplane.pulsar_admin.rest import METRICS_PATH, Rest
from quotaplane.pulsar_admin.topic_usage import MOST_LABELS, part_in

_QUERY: Final = "getPreciseBacklog=false&subscriptionBacklogSize=false&excludeConsumers=true"
_THROTTLED: Final = re.compile(
    rb"^pulsar_publish_rate_limit_times\{([^\n]*)\} ([0-9.eE+]+)", re.MULTILINE
)


class TopicPublishers(NamedTuple):
    """The producers of a topic or partition, from its live statistics."""

    messages: int
    """Published since the broker loaded it."""
    throttled: int
    """How often the broker stopped to read from a connection of these producers since then."""
    producers: dict[str, str]
    """By address of a connection: the name of one of the producers on it."""


async def read_publishers(rest: Rest, part: str) -> TopicPublishers:
    """Read the producers of a topic or partition that a broker has loaded.

    Raises:
        RefusedError: with status 404, it does not exist.
        ClusterError: they can't be read.
    """
    domain, _, name = part.partition("://")
    path = Rest.path(domain, name, "stats")
    answer = await rest.get(f"{path}?{_QUERY}")
    try:
        producers = {str(one["address"]): str(one["producerName"]) for one in answer["publishers"]}
        throttled = int(answer.get("publishRateLimitedTimes", 0))
        return TopicPublishers(int(answer["msgInCounter"]), throttled, producers)
    except MALFORMED:
        raise ClusterError(
            f"Pulsar's REST API at {rest.url}: GET {path}: the answer has no producers"
        ) from None


async def read_throttled(rest: Rest, broker_url: str) -> set[str]:
    """The topics and partitions of a broker of which it ever stopped to read from a connection.

    Raises:
        ClusterError: the broker's metrics can't be read.
    """
    return throttled_in(await rest.get_bytes(METRICS_PATH, broker_url))


def throttled_in(metrics: bytes) -> set[str]:
    r"""Parse these topics and partitions from a broker's metrics.

    >>> throttled_in(b'pulsar_publish_rate_limit_times{topic="persistent://a/b/c"} 2.0\n')
    {'persistent://a/b/c'}
    """
    return {
        part
        for labels, times in (line.groups() for line in _THROTTLED.finditer(metrics))
        if float(times) > 0 and len(labels) <= MOST_LABELS
        if (part := part_in(labels)) is not None
    }
