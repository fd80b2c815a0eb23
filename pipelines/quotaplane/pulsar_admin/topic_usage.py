"""Reads the usage of topics: from a broker's live counters, or from its periodic statistics."""

from __future__ import annotations

import asyncio
import math
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from quotaplane.errors import ClusterError
from quotaplane.model import BASIC, FloatArray
from quotaplane.parsing.bounded_json import MALFORMED, parse_bounded
from quotaplane.pulsar_admin.rest import METRICS_PATH, Rest

_LINE: Final = re.compile(
    rb"^pulsar_(in|out)_(messages|bytes)_total\{([^\n]*)\} ([0-9.eE+]+)", re.MULTILINE
)
_NAMES: Final = (
    *(b"pulsar_in_messages_total", b"pulsar_in_bytes_total"),
    *(b"pulsar_out_messages_total", b"pulsar_out_bytes_total"),
)
_TOPIC: Final = re.compile(rb'(?:^|,)topic="([^"\\]*(?:\\.[^"\\]*)*)"')
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_PARTITION: Final = re.compile(rb'(?:^|,)partition="(-?[0-9]+)"')
_OF_CONSUMER: Final = b'consumer_name="'
"""The quotes in a label's value are escaped, so this is no part of one."""
MOST_LABELS: Final = 16_384
"""Bytes of the labels of a counter. Names in Pulsar have at most some hundreds."""
_REQUESTS_OF_COST: Final = 10
"""Number of the last requests to a broker from which its cost of one is estimated. With three, a
busy machine made brokers look slow, and they were read each 3 to 13 s."""
_EARLY: Final = 0.9
"""Fraction of its length from which a window counts as whole, as reads are not exactly on time."""
_EVEN_COUNTERS: Final = 100_000
_BYTES_PER_COUNTER: Final = 128
"""Most counters: ``_EVEN_COUNTERS``, and one per ``_BYTES_PER_COUNTER``. A topic's metrics have
four of them, or two more per subscription, in some 5,000 bytes."""
MOST_TOPICS: Final = 100_000
"""Topics and partitions of a broker."""
_COLUMN: Final = {
    (b"in", b"messages"): 0,
    (b"in", b"bytes"): 1,
    (b"out", b"messages"): 2,
    (b"out", b"bytes"): 3,
}
_STATS: Final = Rest.path("broker-stats", "topics")
_RATES: Final = ("msgRateIn", "msgThroughputIn", "msgRateOut", "msgThroughputOut")
_COUNTS: Final = ("msgInCount", "bytesInCount", "msgOutCount", "bytesOutCount")
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


def stats_exposure(configuration: Mapping[str, Any]) -> StatsExposure:
    """Which statistics brokers with this configuration offer."""
    try:
        live = configuration.get("exposeTopicLevelMetricsInPrometheus", "true") == "true"
        # Metrics from a buffer are up to a minute old: usage would seem 0, and then far too much.
        live &= configuration.get("metricsBufferResponse", "false") != "true"
        interval_s = float(configuration["statsUpdateFrequencyInSecs"])
        first_s = float(configuration.get("statsUpdateInitialDelayInSecs", _DEFAULT_STATS_S))
        if not (math.isfinite(interval_s) and 0 <= first_s < math.inf):
            raise ValueError
        return StatsExposure(live, max(interval_s, 1.0), first_s)
    except MALFORMED:
        return StatsExposure(True, _DEFAULT_STATS_S)


class Sample(NamedTuple):
    """The usage of the n topics and partitions that a broker has loaded."""

    topics: list[str]
    usage: FloatArray | None
    """(n, 4) per second, in the first four of ``model.DIMENSIONS``; NaN: the topic was loaded in
    the window, at an unknown time. None: the window is not over yet."""
    growth: FloatArray | None = None
    """(n, 4) how much the counters grew in the window; NaN: one went backwards. None: there are no
    live counters."""
    window_s: float = 0.0
    """From the previous read to this one."""


class RequestCost:
    """A broker's cost of a request: the least time of the last ten, as longer ones have waited.

    >>> cost = RequestCost()
    >>> for seconds in (0.3, 0.02, *[0.4] * 9):
    ...     cost.add(seconds)
    >>> cost.seconds
    0.02
    >>> cost.add(0.5)
    >>> cost.seconds
    0.4
    """

    def __init__(self) -> None:
        self._last_s: deque[float] = deque(maxlen=_REQUESTS_OF_COST)

    def add(self, seconds: float) -> None:
        """Add a request's time."""
        self._last_s.append(seconds)

    @property
    def seconds(self) -> float:
        """The cost of a request; 0 before the first."""
        return min(self._last_s, default=0.0)


class Source(Protocol):
    """A source of one broker's samples."""

    cost: RequestCost
    """The cost of a read."""

    async def read(self, rest: Rest, broker_url: str, now_s: float) -> Sample | None:
        """Read the usage since the previous read; None: nothing new. ``now_s``: when it begins.

        Raises:
            ClusterError: it can't be read.
        """


class Counters:
    """Samples from the live counters in a broker's Prometheus metrics.

    ``usage_every_s``: least length of the windows of ``Sample.usage``; ``growth`` is between reads.
    When the broker reads its counters is known to within the time of the request; a request that
    waits does so before that, most of the time.
    """

    def __init__(self, usage_every_s: float = 0.0) -> None:
        self.cost = RequestCost()
        self._usage_every_s = usage_every_s
        self._counts: Counts | None = None
        self._at_s = 0.0
        self._first: Counts = {}
        """The counters when the window of the usage began."""
        self._first_at_s = 0.0

    async def read(self, rest: Rest, broker_url: str, now_s: float) -> Sample | None:
        """See ``Source``."""
        metrics, took_s = await _timed(rest.get_metrics(broker_url, _NAMES))
        self.cost.add(took_s)
        now_s += took_s - self.cost.seconds / 2
        counts = await _parsed(broker_url, METRICS_PATH, lambda: counters_in(metrics))
        previous, passed_s = self._counts, now_s - self._at_s
        self._counts, self._at_s = counts, now_s
        if previous is None or passed_s <= 0:
            self._first, self._first_at_s = counts, now_s
            return None
        growth, usage = _growth(counts, previous), None
        whole_s = now_s - self._first_at_s
        if whole_s >= _EARLY * self._usage_every_s:
            whole = growth if self._first is previous else _growth(counts, self._first)
            usage = _plausible(np.maximum(whole, 0.0) / whole_s)
            # Divided by the whole window, a busy topic that has just moved would look idle.
            is_new = np.array([topic not in self._first for topic in counts], bool)
            usage[is_new & (whole > 0.0).any(axis=1)] = np.nan
            self._first, self._first_at_s = counts, now_s
        return Sample(list(counts), usage, _plausible(growth), passed_s)


class Snapshots:
    """Samples from the statistics that a broker updates periodically.

    The rates in them are exact over the broker's own window, but omit clients that disconnected.
    The counters include those, but when the broker read them is known only to within ``every_s``.
    So the usage is the rate, or the lower bound that follows from the counters, if that is higher.
    """

    def __init__(self, every_s: float) -> None:
        self.cost = RequestCost()
        self._every_s = every_s
        self._answer: bytes | None = None
        self._at_s = 0.0
        self._counts: Counts = {}

    async def read(self, rest: Rest, broker_url: str, now_s: float) -> Sample | None:
        """See ``Source``."""
        answer, took_s = await _timed(rest.get_bytes(_STATS, broker_url))
        self.cost.add(took_s)
        if answer == self._answer:
            return None
        rates, counts = await _parsed(broker_url, _STATS, lambda: _statistics_in(answer))
        usage = _rows(rates)
        if self._answer is not None:
            unknown = [np.nan] * BASIC
            grown = _rows(counts) - _rows({t: self._counts.get(t, unknown) for t in counts})
            usage = np.fmax(usage, grown / (now_s - self._at_s + self._every_s))
        self._answer, self._at_s, self._counts = answer, now_s, counts
        return Sample(list(rates), _plausible(usage))


def counters_in(metrics: bytes) -> Counts:
    r"""Parse the counters of all topics in a broker's metrics.

    >>> counters_in(b'pulsar_in_bytes_total{namespace="a/b",topic="persistent://a/b/c"} 7.0\n')
    {'persistent://a/b/c': [0.0, 7.0, 0.0, 0.0]}

    Raises:
        ValueError: more counters than the size allows, labels that are too long, or no numbers.
    """
    lines = metrics.count(b"\npulsar_in_") + metrics.count(b"\npulsar_out_")
    if lines > _EVEN_COUNTERS + len(metrics) // _BYTES_PER_COUNTER:
        raise ValueError(f"{lines} counters in {len(metrics)} bytes")
    counts: Counts = {}
    for line in _LINE.finditer(metrics):
        direction, unit, labels, value = line.groups()
        if len(labels) > MOST_LABELS:
            raise ValueError(f"labels of {len(labels)} bytes")
        # Metrics by consumer repeat what the topic's metrics count.
        topic = None if _OF_CONSUMER in labels else part_in(labels)
        if topic is None:
            continue
        # Messages out have one line per subscription: add them up.
        counted = counts.get(topic)
        if counted is None:
            counted = counts[topic] = [0.0] * BASIC
        counted[_COLUMN[direction, unit]] += float(value)
    return counts


def part_in(labels: bytes) -> str | None:
    r"""The topic or partition that the labels of a metric name.

    >>> part_in(b'topic="persistent://a/b/c",partition="2"'), part_in(b'cluster="c"')
    ('persistent://a/b/c-partition-2', None)
    """
    found = _TOPIC.search(labels)
    if found is None:
        return None
    topic = found[1].decode()
    if "\\" in topic:
        topic = _ESCAPED.sub(_unescaped, topic)
    # Most topics have no partition, and a search costs more than all the rest.
    if b'partition="' in labels:
        partition = _PARTITION.search(labels)
        if partition is not None and partition[1] != b"-1":
            topic = f"{topic}-partition-{partition[1].decode()}"
    return topic


def _statistics_in(answer: bytes) -> tuple[Counts, Counts]:
    """Parse a broker's statistics: rates and counters of all topics."""
    rates: Counts = {}
    counts: Counts = {}
    for bundles in parse_bounded(answer).values():
        for domains in bundles.values():
            topics = domains.get("persistent", {})
            if len(rates) + len(topics) > MOST_TOPICS:
                raise ValueError(f"more than {MOST_TOPICS} topics")
            for topic, stats in topics.items():
                rates[topic] = [float(stats.get(key, 0.0)) for key in _RATES]
                counts[topic] = [float(stats.get(key, 0.0)) for key in _COUNTS]
    return rates, counts


async def _timed(request: Awaitable[bytes]) -> tuple[bytes, float]:
    """The answer, and how many seconds it took."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    return await request, loop.time() - begun_s


async def _parsed(broker_url: str, path: str, parse: Callable[[], Any]) -> Any:
    try:
        # In a thread: parsing megabytes would block the event loop.
        return await asyncio.to_thread(parse)
    except MALFORMED as error:
        raise ClusterError(
            f"Pulsar's REST API at {broker_url}: GET {path}: the answer has no usable statistics "
            f"({type(error).__name__}: {str(error)[:200]})"
        ) from None


def _unescaped(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


def _growth(counts: Counts, since: Counts) -> FloatArray:
    """(n, 4) how much counters grew; those of a new topic began at 0, when it was loaded."""
    none = [0.0] * BASIC
    return _rows(counts) - _rows({topic: since.get(topic, none) for topic in counts})


def _plausible(usage: FloatArray) -> FloatArray:
    """The usage; NaN where it is infinite or negative, which no topic can have."""
    return np.where(np.isfinite(usage) & (usage >= 0), usage, np.nan)


def _rows(by_topic: Counts) -> FloatArray:
    return np.array(list(by_topic.values()), np.float64).reshape(-1, BASIC)
