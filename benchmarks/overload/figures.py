"""The figures of a phase, from what was seen outside of the job. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from benchmarks.overload.phases import (
    BUSY_SHARE,
    IN_TIME_S,
    PAIR_QUOTA,
    second_is_busy,
    swaps,
)
from quotaplane.model import BoolArray, FloatArray, IntArray

_TOLERANCE: Final = 1.001
_USEFUL: Final = 0.95


class Published(NamedTuple):
    """The limits of pairs that were in the limits topic, in the order of their arrival; (n,)."""

    at_s: FloatArray
    """When a consumer of the topic got it."""
    pair: IntArray
    second: BoolArray
    """Whether the limit is of the pair's second broker."""
    limit: FloatArray


def followed_after_s(found: Published, at_s: FloatArray, pair: IntArray) -> FloatArray:
    """(n,) seconds from each swap until the limits of both brokers are right; inf: never.

    Right: the busy broker may use ``BUSY_SHARE`` of the quota, both together no more than it. A
    limit counts until the next one; after ``IN_TIME_S`` it is too late, and not looked for.
    """
    after = np.full(len(at_s), np.inf)
    for number, (swap_s, of_pair) in enumerate(zip(at_s.tolist(), pair.tolist(), strict=True)):
        mine = np.flatnonzero((found.pair == of_pair) & (found.at_s <= swap_s + IN_TIME_S))
        busy = bool(second_is_busy(swap_s + 0.001)[of_pair])
        now = [np.inf, np.inf]
        for at in mine.tolist():
            now[int(found.second[at])] = float(found.limit[at])
            late_s = float(found.at_s[at]) - swap_s
            if late_s >= 0 and _right(now[busy], now[not busy]):
                after[number] = late_s
                break
    return after


def _right(busy: float, idle: float) -> bool:
    return busy >= BUSY_SHARE * PAIR_QUOTA and busy + idle <= PAIR_QUOTA * _TOLERANCE


def goodput(found: Published, begin_s: float, end_s: float) -> tuple[float, float]:
    """The share of swaps that limits followed in time, and the median seconds of those."""
    after = followed_after_s(found, *swaps(begin_s, end_s - IN_TIME_S))
    in_time = after[np.isfinite(after)]
    if not len(after):
        return float("nan"), float("nan")
    return len(in_time) / len(after), float(np.median(in_time)) if len(in_time) else float("inf")


def useful_after_s(found: Published, end_s: float, until_s: float) -> float:
    """Seconds from the end of a phase until limits follow swaps in time again, and go on to.

    They do if, of the swaps of each 5 s from then on, 95 % are followed. Infinite: not by
    ``until_s``.
    """
    last_s = until_s - IN_TIME_S
    at_s, pair = swaps(end_s, last_s)
    good = np.isfinite(followed_after_s(found, at_s, pair))
    useful = np.inf
    for begin_s in np.arange(last_s - 5.0, end_s - 0.001, -5.0).tolist():
        inside = (at_s >= begin_s) & (at_s < begin_s + 5.0)
        if inside.any() and good[inside].mean() < _USEFUL:
            break
        useful = max(begin_s - end_s, 0.0)
    return float(useful)


@dataclass(frozen=True)
class Write:
    """A quota that somebody else changed during the measurement; seconds since 1970."""

    begun_s: float
    committed_s: float
    published_s: float = float("inf")
    """When limits made of it were in the limits topic; infinite: not before the end."""


@dataclass(frozen=True)
class Figures:
    """The row of a phase in the table."""

    phase: str
    goodput: float
    """Share of swaps that limits followed in time."""
    followed_p50_s: float
    useful_after_s: float
    commit_p50_s: float
    commit_max_s: float
    publish_p50_s: float
    publish_max_s: float
    rounds: int
    """Rounds that ended."""
    peak_gb: float
    """Most memory of all the job's processes together."""
    load_average: float
    """Load average of the machine over the last minute, at the end."""
    normal_goodput: float
    """Goodput of the normal load before it, in the same run."""
    run_at: str


def of_writes(writes: Sequence[Write], begin_s: float, end_s: float) -> tuple[float, ...]:
    """Median and maximum of the seconds to commit a quota, and to publish its limits."""
    own = [write for write in writes if begin_s <= write.begun_s < end_s]
    return (
        *_median_and_max(write.committed_s - write.begun_s for write in own),
        *_median_and_max(write.published_s - write.begun_s for write in own),
    )


def _median_and_max(values: Iterable[float]) -> tuple[float, float]:
    found = sorted(values)
    return (found[len(found) // 2], found[-1]) if found else (float("nan"), float("nan"))
