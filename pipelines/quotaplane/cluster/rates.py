"""Rates of topics: what they are held to, and what they use; one topic or one broker at a time."""

from __future__ import annotations

import asyncio
import json
from typing import Final, NamedTuple

import numpy as np

from quotaplane.cluster.rest import Rest
from quotaplane.errors import ClusterError
from quotaplane.model import BASIC, FloatArray

_PATHS: Final = ("publishRate", "dispatchRate")
_KEYS: Final = (
    ("publishThrottlingRateInMsg", "publishThrottlingRateInByte"),
    ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte"),
)
_ALSO: Final[tuple[dict[str, object], ...]] = (
    {},
    {"relativeToPublishRate": False, "ratePeriodInSecond": 1},
)
_RATES: Final = ("msgRateIn", "msgThroughputIn", "msgRateOut", "msgThroughputOut")
_COUNTS: Final = ("msgInCount", "bytesInCount", "msgOutCount", "bytesOutCount")
_TOPICS: Final = Rest.path("broker-stats", "topics")
_RUNTIME: Final = Rest.path("brokers", "configuration", "runtime")


def rate_path(topic: str, kind: int) -> str:
    """Where a topic's rate is; ``kind`` is 0 for publish, 1 for dispatch.

    >>> rate_path("persistent://acme/orders/a topic", 1)
    '/admin/v2/persistent/acme/orders/a%20topic/dispatchRate'
    """
    domain, _, rest_of_it = topic.partition("://")
    return Rest.path(domain, rest_of_it, _PATHS[kind])


def rate_body(kind: int, rates: FloatArray) -> dict[str, object]:
    """Rates (2,), in messages and bytes, as Pulsar wants them; inf = unlimited.

    >>> rate_body(0, np.array([30.0, np.inf]))
    {'publishThrottlingRateInMsg': 30, 'publishThrottlingRateInByte': -1}
    """
    whole = [int(rate) if np.isfinite(rate) else -1 for rate in rates]
    return {**dict(zip(_KEYS[kind], whole, strict=True)), **_ALSO[kind]}


async def read_rate(rest: Rest, topic: str, kind: int) -> FloatArray:
    """What is in force on a topic, (2,) in messages and bytes; inf = unlimited.

    Raises:
        ClusterError: it can't be read.
    """
    said = await rest.get(rate_path(topic, kind))
    if said is None:
        return np.full(2, np.inf)
    try:
        # Dispatch relative to publish, or over longer than a second, is none of ours.
        if said.get("relativeToPublishRate") or said.get("ratePeriodInSecond", 1) != 1:
            return np.full(2, np.inf)
        rates = np.array([float(said.get(key, -1)) for key in _KEYS[kind]])
    except (AttributeError, TypeError, ValueError):
        path = rate_path(topic, kind)
        raise ClusterError(f"Pulsar's REST API at {rest.url}: GET {path}: no rates") from None
    return np.where(rates > 0, rates, np.inf)


async def write_rate(rest: Rest, topic: str, kind: int, rates: FloatArray) -> None:
    """Put rates (2,) in force, or take the rate away if both are unlimited.

    Raises:
        ClusterError: it is not sure that they are.
    """
    if np.isinf(rates).all():
        await rest.ask("DELETE", rate_path(topic, kind))
    else:
        await rest.ask("POST", rate_path(topic, kind), rate_body(kind, rates))


async def read_stats_interval_s(rest: Rest) -> float:
    """How often brokers renew their topics' statistics.

    Raises:
        ClusterError: it can't be read.
    """
    said = await rest.get(_RUNTIME)
    try:
        return max(float(said["statsUpdateFrequencyInSecs"]), 1.0)
    except (KeyError, TypeError, ValueError):
        return 60.0


class Sample(NamedTuple):
    """What a broker says of its n topics and partitions."""

    topics: list[str]
    usage: FloatArray
    """(n, 4) per second, in the first four of ``model.DIMENSIONS``."""


class Snapshots:
    """The statistics of one broker's topics, which it renews now and then.

    Its rates are exact over its own window, but leave out producers and consumers that have gone.
    Its counters have them, but nobody tells when they were read: between two looks, ``every_s``
    apart at most. So a topic used what the rates say, or what the counters prove, if that is more.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._said = b""
        self._at_s = 0.0
        self._counts: dict[str, list[float]] = {}

    async def read(self, rest: Rest, broker_url: str, now_s: float) -> Sample | None:
        """What the broker says now; None if it is what it said last time.

        Raises:
            ClusterError: it can't be read.
        """
        said = await rest.get_bytes(_TOPICS, broker_url)
        if said == self._said:
            return None
        try:
            # Megabytes, on which a loop that waits for answers must not be stuck.
            topics, rates, counts = await asyncio.to_thread(_parsed, said)
        except (ValueError, AttributeError, TypeError):
            where = f"Pulsar's REST API at {broker_url}: GET {_TOPICS}"
            raise ClusterError(f"{where}: answers no statistics") from None
        usage = np.array(rates).reshape(-1, BASIC)
        if self._said:
            unknown = [np.nan] * BASIC
            before = np.array([self._counts.get(topic, unknown) for topic in topics])
            grown = np.array(counts).reshape(-1, BASIC) - before.reshape(-1, BASIC)
            usage = np.fmax(usage, grown / (now_s - self._at_s + self._every_s))
        self._said, self._at_s = said, now_s
        self._counts = dict(zip(topics, counts, strict=True))
        return Sample(topics, usage)


def _parsed(said: bytes) -> tuple[list[str], list[list[float]], list[list[float]]]:
    topics: list[str] = []
    rates: list[list[float]] = []
    counts: list[list[float]] = []
    for bundles in json.loads(said).values():
        for domains in bundles.values():
            for topic, held in domains.get("persistent", {}).items():
                topics.append(topic)
                rates.append([float(held.get(key, 0.0)) for key in _RATES])
                counts.append([float(held.get(key, 0.0)) for key in _COUNTS])
    return topics, rates, counts
