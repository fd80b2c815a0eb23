"""Lists topic partitions, and gets facts from the REST API that the client does not provide."""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pulsar

from quotaplane.errors import ClusterError, TransportError
from quotaplane.pulsar.client import MISSING, partitions_of
from quotaplane.pulsar.options import Options
from quotaplane.pulsar.position import Id
from quotaplane.pulsar_admin.rest import NotFoundError, Rest
from quotaplane.settings import PulsarConnection


def topic_partitions(client: pulsar.Client, options: Options) -> list[str]:
    """Full names of all topic partitions to read now.

    Raises:
        TransportError: the cluster does not answer or refuses.
    """
    if options.topics_pattern is not None:
        return _matching(options, options.topics_pattern)
    return [
        partition for topic in options.topics for partition in partitions_of(client, options, topic)
    ]


def _matching(place: PulsarConnection, pattern: str) -> list[str]:
    domain, _, rest = pattern.partition("://")
    tenant, namespace, wanted = rest.split("/", 2)
    name = re.compile(wanted)
    topics = _get(place, Rest.path(domain, tenant, namespace))
    # Pulsar's own topics begin with two underscores.
    return sorted(
        topic
        for topic in topics
        if (match := re.fullmatch(r".*/((?!__)[^/]+?)(-partition-\d+)?", topic))
        and name.fullmatch(match[1])
    )


def is_there(place: PulsarConnection, topic: str) -> bool | None:
    """Does the topic exist? None: not known without using it, as there is no ``admin_url``.

    Raises:
        TransportError: the REST API does not answer or refuses.
    """
    if place.admin_url is None:
        return None
    domain, _, name = topic.partition("://")

    try:
        _get(place, Rest.path(domain, name, "partitions") + "?checkAllowAutoCreation=false")
    except TransportError as error:
        if isinstance(error.__cause__, NotFoundError):
            return False
        raise
    return True


def must_be_there(place: PulsarConnection, topic: str) -> None:
    """Raise if the topic is known not to exist.

    Raises:
        TransportError: it does not, or the REST API does not answer or refuses.
    """
    if is_there(place, topic) is False:
        raise TransportError(f"Pulsar at {place.service_url}: topic {topic!r} {MISSING}")


def is_compacted(place: PulsarConnection, topic: str) -> bool | None:
    """Is the topic compacted from some size on? None: not known, as ``last_entry``."""
    if place.admin_url is None:
        return None
    domain, _, name = topic.partition("://")
    try:
        threshold = _get(place, Rest.path(domain, name, "compactionThreshold") + "?applied=true")
    except TransportError:
        return None
    return bool(threshold)


def last_entry(place: PulsarConnection, topic: str) -> Id | None:
    """The topic partition's last entry, deleted or not; None: not known.

    If a topic is loaded again after all its entries were deleted, it has a new ledger without
    entries, which says nothing about earlier ones.
    """
    if place.admin_url is None:
        return None
    domain, _, name = topic.partition("://")
    try:
        stats = _get(place, Rest.path(domain, name, "internalStats"))
        last = Id.parse(f"{stats['lastConfirmedEntry']}:-1")
    except (TransportError, KeyError, TypeError):
        return None
    return last if last.entry >= 0 else None


def _get(place: PulsarConnection, path: str) -> Any:
    """GET from the REST API, in a thread: a notebook's thread already runs an event loop.

    Raises:
        TransportError: the REST API does not answer or refuses; the cause says which.
    """

    async def asked() -> Any:
        async with Rest(place) as api:
            return await api.get(path)

    with ThreadPoolExecutor(1) as thread:
        try:
            return thread.submit(asyncio.run, asked()).result()
        except ClusterError as error:
            raise TransportError(str(error)) from error
