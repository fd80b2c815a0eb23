"""Reads the usage of topics: from a broker's live counters, or from its periodic statistics."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from quotaplane.bounded_json import parse_bounded
from quotaplane.errors import ClusterError
from quotaplane.model import BASIC, FloatArray
from quotaplane.pulsar_admin.http_answers import MALFORMED
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
"""By topic or partition: messages in, bytes in, messages out, bytes out."""


class StatsExposure(NamedTuple):
    """Which statistics of topics a cluster's brokers offer."""

    live: bool
    """There are live counters."""
    stats_interval_s: float
    """How often a broker updates its statistics."""
    first_stats_after_s: float = _DEFAULT_STATS_S
    """How long after its start a broker has none."""


async def read_stats_exposure(rest: Rest) -> StatsExposure:
    """Read from the brokers' configuration which statistics they offer.

    Raises:
        ClusterError: it can't be read.
    """
    configuration = await rest.get(_RUNTIME)
    try:
        live = configuration.get("exposeTopicLevelMetricsInPrometheus", "true") == "true"
        interval_s = max(float(configuration["statsUpdateFrequencyInSecs"]), 1.0)
        first_s = float(configuration.get("statsUpdateInitialDelayInSecs", _DEFAULT_STATS_S))
        return StatsExposure(live, interval_s, first_s)
    except MALFORMED:
        return StatsExposure(True, _DEFAULT_STATS_S)


class Sample(NamedTuple):
    """The usage of the n topics and partitions that a broker has loaded."""

    topics: list[str]
    usage: FloatArray
    """(n, 4) per second, in the first four of ``model.DIMENSIONS``; NaN: the topic was loaded after
    the previous read, at an unknown time."""


class Source(Protocol):
    """A source of one broker's samples."""

    async def read(self, rest: Rest, broker_url: str, now_s: float) -> Sample | None:
        """Read the usage since the previous read; None: nothing new.

        Raises:
            ClusterError: it can't be read.
        """


class Counters:
    """Samples from the live counters in a broker's Prometheus metrics."""

    def __init__(self) -> None:
        self._counts: Counts | None = None
        self._at_s = 0.0

    async def read(self, rest: Rest, broker_url: str, now_s: float) -> Sample | None:
        """See ``Source``."""
        metrics = await rest.get_bytes(_METRICS, broker_url)
        counts = await _parsed(broker_url, _METRICS, lambda: counters_in(metrics))
        previous, passed_s = self._counts, now_s - self._at_s
        self._counts, self._at_s = counts, now_s
        if previous is None or passed_s <= 0:
            return None
        # A new topic was loaded within the window and its counters began at 0 then. Divided by the
        # whole window, a busy topic that has just moved would look idle: report NaN.
        none, unknown = [0.0] * BASIC, [np.nan] * BASIC
        since = {
            t: previous.get(t, unknown if any(counted) else none) for t, counted in counts.items()
        }
        return Sample(list(counts), np.maximum(_rows(counts) - _rows(since), 0.0) / passed_s)


class Snapshots:
    """Samples from the statistics that a broker updates periodically.

    The rates in them are exact over the broker's own window, but omit clients that disconnected.
    The counters include those, but when the broker read them is known only to within ``every_s``.
    So the usage is the rate, or the lower bound that follows from the counters, if that is higher.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._answer = b""
        self._at_s = 0.0
        self._counts: Counts = {}

    async def read(self, rest: Rest, broker_url: str, now_s: float) -> Sample | None:
        """See ``Source``."""
        answer = await rest.get_bytes(_STATS, broker_url)
        if answer == self._answer:
            return None
        rates, counts = await _parsed(broker_url, _STATS, lambda: _statistics_in(answer))
        usage = _rows(rates)
        if self._answer:
            unknown = [np.nan] * BASIC
            grown = _rows(counts) - _rows({t: self._counts.get(t, unknown) for t in counts})
            usage = np.fmax(usage, grown / (now_s - self._at_s + self._every_s))
        self._answer, self._at_s, self._counts = answer, now_s, counts
        return Sample(list(rates), usage)


def counters_in(metrics: bytes) -> Counts:
    r"""Parse the counters of all topics in a broker's metrics.

    >>> counters_in(b'pulsar_in_bytes_total{namespace="a/b",topic="persistent://a/b/c"} 7.0\n')
    {'persistent://a/b/c': [0.0, 7.0, 0.0, 0.0]}
    """
    counts: Counts = {}
    for direction, unit, labels, value in _LINE.findall(metrics):
        label = dict(_LABEL.findall(labels.decode()))
        # Metrics by consumer repeat what the topic's metrics count.
        if "topic" not in label or "consumer_name" in label:
            continue
        topic = re.sub(r"\\(.)", r"\1", label["topic"])
        if label.get("partition", "-1") != "-1":
            topic = f"{topic}-partition-{label['partition']}"
        # Messages out have one line per subscription: add them up.
        counts.setdefault(topic, [0.0] * BASIC)[_COLUMN[direction, unit]] += float(value)
    return counts


def _statistics_in(answer: bytes) -> tuple[Counts, Counts]:
    """Parse a broker's statistics: rates and counters of all topics."""
    rates: Counts = {}
    counts: Counts = {}
    for bundles in parse_bounded(answer).values():
        for domains in bundles.values():
            for topic, stats in domains.get("persistent", {}).items():
                rates[topic] = [float(stats.get(key, 0.0)) for key in _RATES]
                counts[topic] = [float(stats.get(key, 0.0)) for key in _COUNTS]
    return rates, counts


async def _parsed(broker_url: str, path: str, parse: Callable[[], Any]) -> Any:
    try:
        # In a thread: parsing megabytes would block the event loop.
        return await asyncio.to_thread(parse)
    except MALFORMED:
        raise ClusterError(
            f"Pulsar's REST API at {broker_url}: GET {path}: the answer has no statistics"
        ) from None


def _rows(by_topic: Counts) -> FloatArray:
    return np.array(list(by_topic.values()), np.float64).reshape(-1, BASIC)
