"""Reads one broker's load: its machine's resources, and what each of its bundles carries.

Brokers of the modular load manager answer with a load report. Those of the extensible one have
none: their statistics of topics are added up by bundle, and the machine's usage comes from their
metrics.
"""

from __future__ import annotations

import asyncio
import hashlib
import marshal
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from quotaplane.errors import ClusterError
from quotaplane.model import FloatArray, IntArray
from quotaplane.parsing.bounded_json import MALFORMED, parse_bounded
from quotaplane.pulsar_admin.rest import RefusedError, Rest
from quotaplane.pulsar_admin.topic_usage import MOST_TOPICS
from quotaplane.topics.bundle_names import is_of_one_broker

_REPORT: Final = Rest.path("broker-stats", "load-report")
_TOPICS: Final = Rest.path("broker-stats", "topics")
_RESOURCES: Final = ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut")
_GAUGES: Final = ("cpu", "memory", "directMemory", "bandwidth_in", "bandwidth_out")
_METRICS: Final = tuple(f"pulsar_lb_{name}_usage".encode() for name in _GAUGES)
_GAUGE: Final = re.compile(rb"^pulsar_lb_(\w+)_usage\{[^\n]*\} ([0-9.eE+-]+)", re.MULTILINE)
_RATES: Final = ("msgThroughputIn", "msgThroughputOut", "msgRateIn", "msgRateOut")
MOST_BUNDLES: Final = 100_000
"""Most bundles of a broker."""
_NO_REPORT: Final = (404, 405, 500, 501)


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


async def read_broker_stats(rest: Rest, broker_url: str) -> BrokerStats:
    """Read a broker's load from the broker itself.

    The statistics of bundles are empty for ``statsUpdateInitialDelayInSecs`` after its start.

    Raises:
        ClusterError: it can't be read, or the answer has no load.
    """
    try:
        report = await rest.get_bytes(_REPORT, broker_url)
    except RefusedError as error:
        if error.status not in _NO_REPORT:
            raise
        topics = await rest.get_bytes(_TOPICS, broker_url)
        metrics = await rest.get_metrics(broker_url, _METRICS)
        return await _parsed(broker_url, _TOPICS, lambda: stats_of_topics(topics, metrics))
    return await _parsed(broker_url, _REPORT, lambda: stats_in_report(report))


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

    Raises:
        MALFORMED: it is something else.
    """
    gauges = {name.decode(): float(value) for name, value in _GAUGE.findall(metrics)}
    usage = np.array([max(gauges.get(name, 0.0), 0.0) for name in _GAUGES])
    limit = np.array([100.0 if name in gauges else 0.0 for name in _GAUGES])
    bundles, rows, counts, sessions, found = [], [], [], [], 0
    for namespace, ranges in sorted(parse_bounded(topics).items()):
        for range_, domains in sorted(ranges.items()):
            name = f"{namespace}/{range_}"
            if is_of_one_broker(name):
                continue
            stats = [one for domain in domains.values() for one in domain.values()]
            found += len(stats)
            if found > MOST_TOPICS:
                raise ValueError(f"more than {MOST_TOPICS} topics")
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
