"""What topics use: by a broker's live counters, or by statistics that it renews now and then."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from quotaplane.errors import ClusterError
from quotaplane.model import BASIC, FloatArray
from quotaplane.pulsar_admin.rest import Rest

_METRICS: Final = "/metrics/"
_LINE: Final = re.compile(
    rb"^pulsar_(in|out)_(messages|bytes)_total\{([^\n]*)\} ([0-9.eE+]+)", re.MULTILINE
)
_LABEL: Final = re.compile(r'(topic|partition|consumer_name)="((?:[^"\\]|\\.)*)"')
_COLUMN: Final = {
    (b"in", b"messages"): 0,
    (b"in", b"bytes"): 1,
    (b"out", b"messages"): 2,
    (b"out", b"bytes"): 3,
}
_STATS: Final = Rest.path("broker-stats", "topics")
_RATES: Final = ("msgRateIn", "msgThroughputIn", "msgRateOut", "msgThroughputOut")
_COUNTS: Final = ("msgInCount", "bytesInCount", "msgOutCount", "bytesOutCount")
_RUNTIME: Final = Rest.path("brokers", "configuration", "runtime")
_DEFAULT_STATS_S: Final = 60.0

Counts = dict[str, list[float]]


class StatsExposure(NamedTuple):
    """What a cluster's brokers tell of their topics."""

    live: bool
    """Whether there are live counters."""
    stats_interval_s: float
    """How often statistics are renewed."""


async def read_stats_exposure(rest: Rest) -> StatsExposure:
    """What brokers tell.

    Raises:
        ClusterError: it can't be read.
    """
    said = await rest.get(_RUNTIME)
    try:
        live = said.get("exposeTopicLevelMetricsInPrometheus", "true") == "true"
        return StatsExposure(live, max(float(said["statsUpdateFrequencyInSecs"]), 1.0))
    except (AttributeError, KeyError, TypeError, ValueError):
        return StatsExposure(True, _DEFAULT_STATS_S)


class Sample(NamedTuple):
    """What a broker says of its n topics and partitions, those that are loaded."""

    topics: list[str]
    usage: FloatArray
    """(n, 4) per second, in the first four of ``model.DIMENSIONS``; NaN: it was loaded since the
    look before, and nobody knows when."""


class Source(Protocol):
    """One broker's topics, looked at again and again."""

    async def read(self, rest: Rest, broker_url: str, now_s: float) -> Sample | None:
        """What they used since the last look; None if there is nothing new.

        Raises:
            ClusterError: it can't be read.
        """


class Counters:
    """Live counters, among a broker's metrics."""

    def __init__(self) -> None:
        self._counts: Counts | None = None
        self._at_s = 0.0

    async def read(self, rest: Rest, broker_url: str, now_s: float) -> Sample | None:
        """See ``Source``."""
        said = await rest.get_bytes(_METRICS, broker_url)
        counts = await _parsed(broker_url, _METRICS, lambda: counters_in(said))
        before, passed_s = self._counts, now_s - self._at_s
        self._counts, self._at_s = counts, now_s
        if before is None or passed_s <= 0:
            return None
        # One that was not there was loaded since, and began to count then: over the whole window
        # a busy one that has just moved would look idle.
        none, unknown = [0.0] * BASIC, [np.nan] * BASIC
        since = {
            t: before.get(t, unknown if any(counted) else none) for t, counted in counts.items()
        }
        return Sample(list(counts), np.maximum(_rows(counts) - _rows(since), 0.0) / passed_s)


class Snapshots:
    """Statistics that a broker renews now and then.

    Its rates are exact over its own window, but leave out producers and consumers that have gone.
    Its counters have them, but nobody tells when they were read: between two looks, ``every_s``
    apart at most. So a topic used what the rates say, or what the counters prove, if that is more.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._said = b""
        self._at_s = 0.0
        self._counts: Counts = {}

    async def read(self, rest: Rest, broker_url: str, now_s: float) -> Sample | None:
        """See ``Source``."""
        said = await rest.get_bytes(_STATS, broker_url)
        if said == self._said:
            return None
        rates, counts = await _parsed(broker_url, _STATS, lambda: _statistics_in(said))
        usage = _rows(rates)
        if self._said:
            unknown = [np.nan] * BASIC
            grown = _rows(counts) - _rows({t: self._counts.get(t, unknown) for t in counts})
            usage = np.fmax(usage, grown / (now_s - self._at_s + self._every_s))
        self._said, self._at_s, self._counts = said, now_s, counts
        return Sample(list(rates), usage)


def counters_in(said: bytes) -> Counts:
    r"""Messages and bytes in and out of each topic, out of a broker's metrics.

    >>> counters_in(b'pulsar_in_bytes_total{namespace="a/b",topic="persistent://a/b/c"} 7.0\n')
    {'persistent://a/b/c': [0.0, 7.0, 0.0, 0.0]}
    """
    counts: Counts = {}
    for way, what, labels, value in _LINE.findall(said):
        label = dict(_LABEL.findall(labels.decode()))
        # What consumers get is also counted by itself, if they are looked at one by one.
        if "topic" not in label or "consumer_name" in label:
            continue
        topic = re.sub(r"\\(.)", r"\1", label["topic"])
        if label.get("partition", "-1") != "-1":
            topic = f"{topic}-partition-{label['partition']}"
        # Messages out come by subscription.
        counts.setdefault(topic, [0.0] * BASIC)[_COLUMN[way, what]] += float(value)
    return counts


def _statistics_in(said: bytes) -> tuple[Counts, Counts]:
    rates: Counts = {}
    counts: Counts = {}
    for bundles in json.loads(said).values():
        for domains in bundles.values():
            for topic, held in domains.get("persistent", {}).items():
                rates[topic] = [float(held.get(key, 0.0)) for key in _RATES]
                counts[topic] = [float(held.get(key, 0.0)) for key in _COUNTS]
    return rates, counts


async def _parsed(broker_url: str, path: str, parse: Callable[[], Any]) -> Any:
    try:
        # Megabytes, on which a loop that waits for answers must not be stuck.
        return await asyncio.to_thread(parse)
    except (ValueError, AttributeError, TypeError):
        raise ClusterError(
            f"Pulsar's REST API at {broker_url}: GET {path}: answers no statistics"
        ) from None


def _rows(by_topic: Counts) -> FloatArray:
    return np.array(list(by_topic.values()), np.float64).reshape(-1, BASIC)
