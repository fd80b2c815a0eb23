"""Reads and moves bundles: owners, unloads to a broker, splits, and the topics of a bundle."""

from __future__ import annotations

import math
import zlib
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from quotaplane.errors import ClusterError
from quotaplane.model import FloatArray, IntArray
from quotaplane.parsing.bounded_json import MALFORMED, parse_bounded
from quotaplane.pulsar_admin.active_brokers import BrokerAddress, address_in
from quotaplane.pulsar_admin.bulk import read_names
from quotaplane.pulsar_admin.rest import RefusedError, Rest

_TOPICS: Final = Rest.path("broker-stats", "topics")
_NAMES: Final = 1 << 20
_BITS: Final = 32


async def owned_bundles(rest: Rest, cluster: str, broker: str) -> set[str]:
    """The bundles that a broker owns now; asking changes nothing.

    Raises:
        ClusterError: they can't be read.
    """
    path = Rest.path("brokers", cluster, broker, "ownedNamespaces")
    answer = await rest.get(path)
    if not isinstance(answer, dict):
        raise rest.failure(f"GET {path}: not a list of bundles")
    return set(answer)


async def unload(rest: Rest, bundle: str, target: str, timeout_s: float) -> None:
    """Unload a bundle, with the wish that this broker gets it; returns once it is unloaded.

    Raises:
        ClusterError: it was refused, or there is no answer, so the bundle's place is uncertain.
    """
    path = Rest.path("namespaces", bundle, "unload")
    await rest.ask(
        "PUT", f"{path}?destinationBroker={quote(target, safe=':')}", timeout_s=timeout_s
    )


async def claim(rest: Rest, bundle: str, broker_url: str) -> BrokerAddress | None:
    """Look a bundle up at a broker, which takes it if no broker has it; returns the owner.

    The lookup is marked as decided by the leader, so the broker does not ask for another opinion.
    None: the bundle is being unloaded, or changes hands at the moment.

    Raises:
        ClusterError: the broker does not answer, or refuses us.
    """
    path = f"/lookup/v2/topic/{topic_in(bundle).replace('://', '/')}?authoritative=true"
    try:
        answer = await rest.get_bytes(path, broker_url)
    except RefusedError as error:
        if error.status in (401, 403, 404):
            raise
        return None
    try:
        return address_in(rest, path, parse_bounded(answer))
    except ValueError:
        return None


def topic_in(bundle: str) -> str:
    """The name of a topic that would be in the bundle; non-persistent, so a lookup needs no topic.

    >>> topic_in("acme/orders/0x00000000_0xffffffff")
    'non-persistent://acme/orders/quotaplane-lookup-0'
    """
    namespace, _, range_ = bundle.rpartition("/")
    low, high = (int(bound, 16) for bound in range_.split("_"))
    last = high == 2**_BITS - 1
    for number in range(_NAMES):
        topic = f"non-persistent://{namespace}/quotaplane-lookup-{number}"
        if low <= zlib.crc32(topic.encode()) < high + last:
            return topic
    raise ClusterError(f"bundle {bundle}: its range is too small to look it up")


async def split(rest: Rest, bundle: str, boundaries: tuple[int, ...], timeout_s: float) -> None:
    """Split a bundle at these hashes. The new bundles stay on the broker; connections last.

    Raises:
        ClusterError: it was refused, or there is no answer, so it is uncertain.
    """
    path = Rest.path("namespaces", bundle, "split")
    query = "?unload=false&splitAlgorithmName=specified_positions_divide"
    await rest.ask("PUT", path + query, list(boundaries), timeout_s=timeout_s)


async def bundle_bounds(rest: Rest, namespace: str) -> list[int]:
    """The bounds of a namespace's bundles, ascending.

    Raises:
        ClusterError: they can't be read.
    """
    path = Rest.path("namespaces", namespace, "bundles")
    answer = await rest.get(path)
    try:
        return sorted(int(bound, 16) for bound in answer["boundaries"])
    except MALFORMED:
        raise rest.failure(f"GET {path}: the answer has no boundaries") from None


async def topic_weights(rest: Rest, bundle: str, broker_url: str) -> tuple[IntArray, FloatArray]:
    """A bundle's topics at its owner: hash and bytes per second of each, (n,).

    Persistent topics that the broker has not loaded have no traffic.

    Raises:
        ClusterError: they can't be read.
    """
    answer = await rest.get_bytes(_TOPICS, broker_url)
    namespace, _, range_ = bundle.rpartition("/")
    try:
        domains: dict[str, Any] = parse_bounded(answer).get(namespace, {}).get(range_, {})
        topics = {name: one for domain in domains.values() for name, one in domain.items()}
        weights = [
            float(one.get("msgThroughputIn", 0.0)) + float(one.get("msgThroughputOut", 0.0))
            for one in topics.values()
        ]
        if not all(0 <= weight < math.inf for weight in weights):
            raise ValueError
    except MALFORMED:
        raise ClusterError(
            f"Pulsar's REST API at {broker_url}: GET {_TOPICS}: the answer has no statistics"
        ) from None
    low, high = (int(bound, 16) for bound in range_.split("_"))
    for name in await read_names(rest, Rest.path("persistent", namespace)):
        if name not in topics and low <= zlib.crc32(name.encode()) < high:
            topics[name] = {}
            weights.append(0.0)
    hashes = [zlib.crc32(name.encode()) for name in topics]
    return np.array(hashes, np.int64), np.array(weights, np.float64)
