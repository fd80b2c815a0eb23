"""Reads one broker's load: its machine's resources, and what each of its bundles carries.

Brokers of the modular load manager answer with a load report. Those of the extensible one have
none (they answer 500): their statistics of topics are added up by bundle, and the machine's usage
comes from their metrics, in per cent.
"""

from __future__ import annotations

import asyncio
import hashlib
import marshal
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from quotaplane.errors import ClusterError
from quotaplane.model import FloatArray, IntArray
from quotaplane.parsing.bounded_json import MALFORMED, parse_bounded
from quotaplane.pulsar_admin.rest import METRICS_PATH, Rest
from quotaplane.pulsar_admin.topic_usage import MOST_TOPICS
from quotaplane.topics.bundle_names import is_of_one_broker

_REPORT: Final = Rest.path("broker-stats", "load-report")
_TOPICS: Final = Rest.path("broker-stats", "topics")
_METRICS: Final = Rest.path("broker-stats", "metrics")
"""Metrics as JSON, without those of topics: ``/metrics/`` costs seconds if there are many."""
_RESOURCES: Final = ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut")
_GAUGES: Final = tuple(
    f"brk_lb_{name}_usage"
    for name in ("cpu", "memory", "directMemory", "bandwidth_in", "bandwidth_out")
)
_STARTED: Final = b"process_start_time_seconds"
_STARTING_MS: Final = 20_000
"""How long a process needs until it is a broker; the metrics have its start only."""
_OF_LEADER: Final = tuple(
    f"{domain}://pulsar/system/loadbalancer-{name}"
    for domain, name in (
        ("persistent", "service-unit-state"),
        ("non-persistent", "broker-load-data"),
        ("non-persistent", "top-bundles-load-data"),
    )
)
"""Topics of the extensible manager that its leader has, not the owner of their bundles."""
_RATES: Final = ("msgThroughputIn", "msgThroughputOut", "msgRateIn", "msgRateOut")
MOST_BUNDLES: Final = 100_000
"""Most bundles of a broker."""


class BrokerStats(NamedTuple):
    """The load of one broker with n bundles."""

    usage: FloatArray
    """(5,) cpu, memory, directMemory, bandwidthIn, bandwidthOut, in the unit of ``limit``."""
    limit: FloatArray
    """(5,) capacity of the machine; 0 = not known."""
    bundles: list[str]
    """Without those that can be on this broker only."""
    rates: FloatArray
    """(n, 4) bytes per second in and out, messages per second in and out."""
    topics: IntArray
    """(n,)"""
    sessions: IntArray
    """(n,) producers and consumers."""
    mark: bytes
    """Changes with the statistics of the bundles."""
    started_at_ms: int = 0
    """When the broker started; 0 = it does not say."""


async def read_broker_stats(
    rest: Rest, broker_url: str, *, extensible: bool = False
) -> BrokerStats:
    """Read a broker's load from the broker itself.

    The statistics of bundles are empty for ``statsUpdateInitialDelayInSecs`` after its start.

    Args:
        rest: client of the cluster.
        broker_url: of this broker.
        extensible: it has the extensible load manager.

    Raises:
        ClusterError: it can't be read, or the answer has no load.
    """
    if extensible:
        topics = await rest.get_bytes(_TOPICS, broker_url)
        metrics = await rest.get_bytes(_METRICS, broker_url)
        stats = await _parsed(broker_url, _TOPICS, lambda: stats_of_topics(topics, metrics))
        # All metrics are cheap only without topics, and its start matters only then.
        return (
            stats if stats.bundles else stats._replace(started_at_ms=await _start(rest, broker_url))
        )
    report = await rest.get_bytes(_REPORT, broker_url)
    return await _parsed(broker_url, _REPORT, lambda: stats_in_report(report))


async def _start(rest: Rest, broker_url: str) -> int:
    """When a broker started, by its metrics; 0: they do not say."""
    found = (await rest.get_metrics(broker_url, [_STARTED])).split()
    try:
        return int(float(found[-1]) * 1000) + _STARTING_MS if found else 0
    except MALFORMED:
        raise rest.failure(f"GET {METRICS_PATH}: the process's start is no time") from None


def stats_in_report(report: bytes) -> BrokerStats:
    """Parse a load report (``LocalBrokerData``).

    A limit below 0 is Pulsar's for a network card of unknown speed.

    >>> import json
    >>> report = {name: {"usage": 1.0, "limit": -1000.0} for name in _RESOURCES}
    >>> stats = {"msgThroughputIn": 3.0, "msgThroughputOut": 4.0, "msgRateIn": 1.0,
    ...     "msgRateOut": 2.0, "consumerCount": 5, "producerCount": 6, "topics": 7}
    >>> report["lastStats"] = {"acme/orders/0x00000000_0xffffffff": stats}
    >>> found = stats_in_report(json.dumps(report).encode())
    >>> found.rates.tolist(), found.sessions.tolist(), found.limit.tolist()
    ([[3.0, 4.0, 1.0, 2.0]], [11], [0.0, 0.0, 0.0, 0.0, 0.0])

    Raises:
        MALFORMED: it is something else.
    """
    answer = parse_bounded(report)
    usage = np.array([float(answer[name]["usage"]) for name in _RESOURCES])
    limit = np.array([float(answer[name]["limit"]) for name in _RESOURCES])
    stats: dict[str, Any] = answer["lastStats"]
    if len(stats) > MOST_BUNDLES:
        raise ValueError(f"{len(stats)} bundles")
    chosen = {name: stats[name] for name in sorted(stats) if not is_of_one_broker(name)}
    rows = [[float(one[key]) for key in _RATES] for one in chosen.values()]
    topics = [int(one["topics"]) for one in chosen.values()]
    sessions = [int(one["producerCount"]) + int(one["consumerCount"]) for one in chosen.values()]
    # Not JSON, which takes as long as all the rest. Version 2, as later ones depend on references.
    mark = hashlib.sha256(
        marshal.dumps([(name, stats[name]) for name in sorted(stats)], 2)
    ).digest()
    found = _stats(usage, limit, list(chosen), rows, topics, sessions, mark)
    return found._replace(started_at_ms=int(answer.get("startTimestamp", 0)))


def stats_of_topics(topics: bytes, metrics: bytes) -> BrokerStats:
    """Add up statistics of topics by bundle, with the machine's usage from the metrics.

    The metrics have usage in per cent, so the limits are 100; 0 where the metric is missing.

    >>> import json
    >>> one = {"msgThroughputIn": 5.0, "producerCount": 1}
    >>> metrics = b'[{"metrics": {"brk_lb_cpu_usage": 50.0}, "dimensions": {}}]'
    >>> found = stats_of_topics(json.dumps({"acme/orders": {"0x00000000_0xffffffff": {
    ...     "persistent": {"persistent://acme/orders/a": one}}}}).encode(), metrics)
    >>> found.bundles, found.rates.tolist(), found.topics.tolist(), found.sessions.tolist()
    (['acme/orders/0x00000000_0xffffffff'], [[5.0, 0.0, 0.0, 0.0]], [1], [1])
    >>> found.usage.tolist(), found.limit.tolist()
    ([50.0, 0.0, 0.0, 0.0, 0.0], [100.0, 0.0, 0.0, 0.0, 0.0])

    Raises:
        MALFORMED: it is something else.
    """
    gauges: dict[str, Any] = {}
    for one in parse_bounded(metrics):
        gauges |= {name: one["metrics"][name] for name in _GAUGES if name in one["metrics"]}
    usage = np.array([max(float(gauges.get(name, 0.0)), 0.0) for name in _GAUGES])
    limit = np.array([100.0 if name in gauges else 0.0 for name in _GAUGES])
    bundles, rows, counts, sessions, found = [], [], [], [], 0
    for namespace, ranges in sorted(parse_bounded(topics).items()):
        for range_, domains in sorted(ranges.items()):
            name = f"{namespace}/{range_}"
            if is_of_one_broker(name):
                continue
            topics_here = [(topic, one) for d in domains.values() for topic, one in d.items()]
            found += len(topics_here)
            if found > MOST_TOPICS:
                raise ValueError(f"more than {MOST_TOPICS} topics")
            stats = [one for topic, one in topics_here if not topic.startswith(_OF_LEADER)]
            if topics_here and not stats:
                continue
            bundles.append(name)
            rows.append([sum(float(one.get(key, 0.0)) for one in stats) for key in _RATES])
            counts.append(len(stats))
            sessions.append(sum(map(_sessions, stats)))
    mark = hashlib.sha256(topics).digest()
    return _stats(usage, limit, bundles, rows, counts, sessions, mark)


def _stats(
    usage: FloatArray,
    limit: FloatArray,
    bundles: list[str],
    rows: list[list[float]],
    topics: list[int],
    sessions: list[int],
    mark: bytes,
) -> BrokerStats:
    # Pulsar prints "NaN" for what it could not measure: 0 would be an invention, so it is refused.
    rates = np.array(rows, np.float64).reshape(-1, len(_RATES))
    if not (np.isfinite(usage).all() and np.isfinite(limit).all() and np.isfinite(rates).all()):
        raise ValueError("a number is not finite")
    if usage.min() < 0 or rates.min(initial=0.0) < 0:
        raise ValueError("a number is negative")
    return BrokerStats(
        usage,
        np.maximum(limit, 0.0),
        bundles,
        rates,
        np.array(topics, np.int64),
        np.array(sessions, np.int64),
        mark,
    )


def _sessions(topic: Mapping[str, Any]) -> int:
    subscriptions = topic.get("subscriptions", {}).values()
    consumers = sum(len(one.get("consumers", ())) for one in subscriptions)
    return int(topic.get("producerCount", 0)) + consumers


async def _parsed(broker_url: str, path: str, parse: Callable[[], BrokerStats]) -> BrokerStats:
    try:
        # In a thread: parsing megabytes would block the event loop.
        return await asyncio.to_thread(parse)
    except MALFORMED as error:
        raise ClusterError(
            f"Pulsar's REST API at {broker_url}: GET {path}: the answer has no usable load "
            f"({type(error).__name__}: {str(error)[:200]})"
        ) from None
