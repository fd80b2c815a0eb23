"""Where Pulsar divides a bundle: its four split algorithms."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from quotabalance.stock.java import wrap_int
from quotabalance.stock.stock_settings import StockSettings
from quotaplane.errors import InputError
from quotaplane.topics.bundle_names import BundleName

_MB = 1024 * 1024


class TopicRates(NamedTuple):
    """The load of a topic."""

    bytes_per_s: float
    """In and out together."""
    messages_per_s: float


def topic_hash(topic: str) -> int:
    """The hash that decides which bundle a topic is in: CRC-32 of its full name, unsigned.

    >>> f"{topic_hash('persistent://acme/orders/t'):#010x}"
    '0xca7b60c6'
    """
    return zlib.crc32(topic.encode())


def range_equally_divide(bundle: BundleName) -> tuple[int, ...]:
    """The middle of the range."""
    return (bundle.low + (bundle.high - bundle.low) // 2,)


def topic_count_equally_divide(topics: Iterable[str]) -> tuple[int, ...]:
    """Between the two topics in the middle; () with fewer than two topics.

    Two topics whose hashes differ by 1 or 0 give the lower hash, which may be the bundle's own
    lower bound; Pulsar then refuses the split.
    """
    hashes = sorted(map(topic_hash, topics))
    if len(hashes) < 2:
        return ()
    middle = len(hashes) // 2
    start, end = hashes[middle - 1], hashes[middle]
    return (start + (end - start) // 2,)


def specified_positions_divide(
    bundle: BundleName, topics: int, positions: Iterable[int]
) -> tuple[int, ...]:
    """Those of the positions that are strictly inside the range; () with fewer than two topics.

    A position that is given twice stays twice, as in Pulsar.

    Raises:
        InputError: there are no positions.
    """
    ordered = sorted(positions)
    if not ordered:
        raise InputError("specified_positions_divide: positions can't be empty")
    if topics < 2:
        return ()
    return tuple(at for at in ordered if bundle.low < at < bundle.high)


def flow_or_qps_equally_divide(
    topics: Mapping[str, TopicRates], settings: StockSettings
) -> tuple[int, ...]:
    """So that no part has more than a bundle may have, as far as topics allow it.

    () with fewer than two topics with traffic, or if the bundle has less than
    ``flowOrQpsDifferenceThresholdPercentage`` more than the most of messages and of bytes.

    Args:
        topics: of the bundle, each with its rates. Pulsar leaves out topics without statistics;
            so leave them out here.
        settings: ``loadBalancerNamespaceBundleMaxMsgRate`` and ``...MaxBandwidthMbytes``.

    >>> load = {f"persistent://acme/orders/{n}": TopicRates(0.0, 20_000.0) for n in range(4)}
    >>> len(flow_or_qps_equally_divide(load, StockSettings()))
    3
    """
    if len(topics) < 2:
        return ()
    by_hash: dict[int, TopicRates] = {}
    hashes: list[int] = []
    messages = size = 0.0
    for name, rates in topics.items():
        if rates.messages_per_s <= 0 and rates.bytes_per_s <= 0:
            continue
        at = topic_hash(name)
        hashes.append(at)
        by_hash[at] = rates  # of two topics with the same hash, the last one counts for both
        messages += rates.messages_per_s
        size += rates.bytes_per_s
    most_messages = float(settings.loadBalancerNamespaceBundleMaxMsgRate)
    most_bytes = float(settings.loadBalancerNamespaceBundleMaxBandwidthMbytes * _MB)
    factor = 1 + settings.flowOrQpsDifferenceThresholdPercentage / 100.0
    if len(by_hash) < 2 or (messages < most_messages * factor and size < most_bytes * factor):
        return ()
    return _cuts(sorted(hashes), by_hash, most_messages, most_bytes)


def _cuts(
    hashes: Sequence[int],
    by_hash: Mapping[int, TopicRates],
    most_messages: float,
    most_bytes: float,
) -> tuple[int, ...]:
    """Walk the topics by hash; cut before the one that would be too much."""
    cuts: list[int] = []
    size, messages = by_hash[hashes[0]]
    for before, at in pairwise(hashes):
        more, more_messages = by_hash[at]
        if messages + more_messages > most_messages or size + more > most_bytes:
            cuts.append(before + (at - before) // 2 + 1)
            messages, size = more_messages, more
        else:
            messages += more_messages
            size += more
    return tuple(cuts)


def default_boundaries(
    bundle: BundleName, topics: Mapping[str, TopicRates], settings: StockSettings
) -> tuple[int, ...]:
    """The boundaries of an automatic split (``defaultNamespaceBundleSplitAlgorithm``).

    () with ``specified_positions_divide``, as no positions are specified then. With a name that
    Pulsar does not know it takes the middle of the range.

    >>> default_boundaries(BundleName("acme/orders", 0, 8), {}, StockSettings())
    (4,)
    """
    name = settings.defaultNamespaceBundleSplitAlgorithm
    if name == "topic_count_equally_divide":
        return topic_count_equally_divide(topics)
    if name == "flow_or_qps_equally_divide":
        return flow_or_qps_equally_divide(topics, settings)
    return () if name == "specified_positions_divide" else range_equally_divide(bundle)


def most_bytes_of_triggers(settings: StockSettings) -> int:
    """Bytes per second above which both managers split. In 32 bits: from 2048 MB on it is negative,
    and every bundle with two topics is split.

    >>> most_bytes_of_triggers(StockSettings(loadBalancerNamespaceBundleMaxBandwidthMbytes=2048))
    -2147483648
    """
    return wrap_int(settings.loadBalancerNamespaceBundleMaxBandwidthMbytes * _MB)
