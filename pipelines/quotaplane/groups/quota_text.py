"""Quotas as people write them: ``write 10MB/min``, ``1000 reqs/sec``.

The words, units and timeframes are those of ZooKeeper's throttle quotas: a type (read or write; by
default both), an amount of bytes (K to P) or requests, and a timeframe. Kafka's ``mutations`` of
topics and partitions (KIP-599) and its ``milliseconds`` of request threads (KIP-124) have no type.
"""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

from quotaplane.errors import InputError
from quotaplane.model import DECLARED_DIMENSIONS, MAX_RATE

_TYPES: Final = {"write": "publish", "read": "dispatch", "both": "total"}

_SIZES: Final = {
    f"{letter}{b}": 1024**power for power, letter in enumerate("kmgtp", start=1) for b in ("", "b")
} | {"b": 1}
"""Powers of 1024: the document calls 1048576 bytes 1 MB."""

_UNITS: Final = {
    "bytes": ("byte", "bytes"),
    "messages": ("req", "reqs", "request", "requests"),
    "milliseconds": ("ms", "millisecond", "milliseconds"),
}
"""Words for units that are written differently from their names."""

_WORDS: Final = {
    unit: _UNITS.get(unit, (unit.removesuffix("s"), unit))
    for unit in dict.fromkeys(("bytes", *(one.unit for one in DECLARED_DIMENSIONS)))
}
_KINDS: Final = {word: unit for unit, words in _WORDS.items() for word in words}

_SIDED: Final = {
    one.unit
    for one in DECLARED_DIMENSIONS
    if one.name in {f"{side}_{one.unit}" for side in _TYPES.values()}
}
_ONE_SIDED: Final = {one.unit: one.name for one in DECLARED_DIMENSIONS if one.unit not in _SIDED}
"""By unit, the dimension that has neither reads nor writes."""

_PLURALS: Final = [words[-1] for words in _WORDS.values()]

_TIMEFRAMES: Final = {
    **dict.fromkeys(("s", "sec", "second"), 1),
    **dict.fromkeys(("min", "minute"), 60),
    **dict.fromkeys(("h", "hour"), 3600),
    **dict.fromkeys(("d", "day"), 86_400),
}

_FORM: Final = re.compile(
    r"(?:(?P<type>[a-z]+)\s+)?(?P<number>(?:0|[1-9][0-9]*)(?:\.[0-9]+)?)"
    r"(?:\s*(?P<one>[a-z]+))?(?:\s+(?P<two>[a-z]+))?\s*/\s*(?P<timeframe>[a-z]+)"
)

_BITS: Final = re.compile(r"[0-9]\s*[KMGTP]b\b")

QUOTA_FORM: Final = f"[read|write|both] NUMBER[K|M|G|T|P] [{'|'.join(_PLURALS)}]/(s|min|hour|day)"
"""The form that ``parse_quota`` reads, for messages."""

_EXAMPLES: Final = '"write 10MB/min" or "read 1000 reqs/sec"'


_MOST_CHARS: Final = 200
_SHOWN: Final = 20
"""Characters of a too long text that a message shows."""


class GivenQuota(NamedTuple):
    """A parsed quota."""

    dimension: str
    """One of ``model.DIMENSIONS``."""
    rate_per_s: float
    """In the dimension's unit."""
    timeframe_s: int
    """The window over which usage is measured: 1, 60, 3600 or 86400."""


def parse_quota(text: str) -> GivenQuota:
    """Read ``[read|write|both] NUMBER[B|K|M|G|T|P] [bytes|requests|mutations|ms] / TIMEFRAME``.

    ZooKeeper's own examples, which say nothing of reads or writes, are of both together:

    >>> parse_quota("1048576 bytes/sec")
    GivenQuota(dimension='total_bytes', rate_per_s=1048576.0, timeframe_s=1)
    >>> parse_quota("1000 reqs/sec").dimension
    'total_messages'

    10 MB a minute are 10 x 1024 x 1024 / 60 bytes a second:

    >>> parse_quota("write 10MB/min")
    GivenQuota(dimension='publish_bytes', rate_per_s=174762.66666666666, timeframe_s=60)
    >>> parse_quota("Read 5G / hour")
    GivenQuota(dimension='dispatch_bytes', rate_per_s=1491308.088888889, timeframe_s=3600)
    >>> parse_quota("5 mutations/s")
    GivenQuota(dimension='controller_mutations', rate_per_s=5.0, timeframe_s=1)

    20 percent of Kafka's request_percentage:

    >>> parse_quota("200 ms/s")
    GivenQuota(dimension='request_ms', rate_per_s=200.0, timeframe_s=1)

    Raises:
        InputError: says which part is wrong, and what may be there.
    """
    if len(text) > _MOST_CHARS:
        raise InputError(f"{text[:_SHOWN]!r}... is no quota: longer than {_MOST_CHARS} characters")
    if _BITS.search(text):
        raise InputError(f"{text!r}: a small b behind a capital may mean bits: write KB, MB, GB")
    found = _FORM.fullmatch(text.strip().lower())
    if found is None:
        raise InputError(f"{text!r} is no quota: must be {QUOTA_FORM}, such as {_EXAMPLES}")
    wanted, one, two = found["type"], found["one"], found["two"]
    if wanted is not None and wanted not in _TYPES:
        raise InputError(f"{text!r}: {wanted!r} must be read, write or both")
    words = [word for word in (one, two) if word is not None]
    size = words.pop(0) if words and words[0] in _SIZES else None
    if len(words) > 1 or (words and words[0] not in _KINDS):
        raise InputError(
            f"{text!r}: {words[0]!r} must be B, K, M, G, T or P, or one of "
            f"{_listed(_PLURALS, 'and').replace('requests', 'requests (reqs)')}"
        )
    kind = _KINDS[words[0]] if words else "bytes"
    if not words and size is None:
        raise InputError(f"{text!r} does not say of what: {_listed(_PLURALS, 'or')}")
    if size is not None and kind != "bytes":
        raise InputError(f"{text!r}: {size!r} is for bytes, not for {words[0]}")
    if kind in _ONE_SIDED and wanted is not None:
        raise InputError(f"{text!r}: {kind} are neither read nor written")
    if found["timeframe"] not in _TIMEFRAMES:
        raise InputError(
            f"{text!r}: {found['timeframe']!r} must be one of {', '.join(_TIMEFRAMES)}"
        )
    timeframe_s = _TIMEFRAMES[found["timeframe"]]
    amount = float(found["number"]) * _SIZES[size or "b"]
    rate = amount / timeframe_s
    # A rate that was rounded down would not allow the last unit of the written amount.
    while rate * timeframe_s < amount or rate * (timeframe_s * 1000.0) / 1000.0 < amount:
        rate = math.nextafter(rate, math.inf)
    if rate > MAX_RATE:
        raise InputError(f"{text!r} is more than {MAX_RATE:g} per second")
    dimension = _ONE_SIDED.get(kind, f"{_TYPES[wanted or 'both']}_{kind}")
    return GivenQuota(dimension, rate, timeframe_s)


def _listed(words: list[str], last: str) -> str:
    """The words in a sentence.

    >>> _listed(["a", "b", "c"], "or")
    'a, b or c'
    """
    return f"{', '.join(words[:-1])} {last} {words[-1]}"
