"""The phases of the benchmark, and the figures of one, from what was seen outside. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from quotaplane.model import BoolArray, FloatArray, IntArray

INTERVAL_S: Final = 5.0
"""How often a broker reports under normal load."""
FRESH_WITHIN_S: Final = 10.0
"""A report that a round uses later than this after its publication is no use to its broker."""


@dataclass(frozen=True)
class Phase:
    """What the brokers send for a while."""

    name: str
    times: int = 1
    """Reports of each broker in an interval."""
    invented_brokers: int = 0
    """Brokers that do not exist; each reports once in an interval."""
    undefined_groups: int = 0
    """Groups without a definition, in each report, with new names each time."""
    job_paused: bool = False
    """The job's processes stand still (SIGSTOP); the brokers go on."""


NORMAL: Final = Phase("normal")
FAULTS: Final = (
    Phase("3 x reports", times=3),
    Phase("10 x reports", times=10),
    Phase("1,000 invented brokers", invented_brokers=1000),
    Phase("1,000 undefined groups a report", undefined_groups=1000),
    Phase("job paused", job_paused=True),
)


def fresh(brokers: IntArray, published_s: FloatArray, used_s: FloatArray, count: int) -> BoolArray:
    """(intervals, brokers): a report of this interval was used while it was fresh.

    Args:
        brokers: (n) index of the broker of each report that was used.
        published_s: (n) when it was published, since the beginning.
        used_s: (n) when the round that used it began.
        count: number of brokers.

    >>> fresh(np.array([0, 1, 1]), np.array([1.0, 2.0, 6.0]), np.array([2.0, 30.0, 7.0]), 2)
    array([[ True, False],
           [False,  True]])
    """
    intervals = (published_s // INTERVAL_S).astype(np.int64)
    found = np.zeros((int(intervals.max(initial=-1)) + 1, count), bool)
    soon = used_s - published_s <= FRESH_WITHIN_S
    found[intervals[soon], brokers[soon]] = True
    return found


def goodput(found: BoolArray, begin_s: float, end_s: float) -> float:
    """Share of (interval, broker) pairs within this time whose report was used while fresh."""
    of_phase = found[int(np.ceil(begin_s / INTERVAL_S)) : int(end_s // INTERVAL_S)]
    return float(of_phase.mean()) if of_phase.size else float("nan")


def useful_after_s(found: BoolArray, end_s: float, until_s: float) -> float:
    """Seconds from the end of a phase to the interval from which on 99 % of all are fresh.

    Infinite if they are not by ``until_s``, the begin of the next phase.

    >>> found = np.array([[True], [False], [False], [True], [True]])
    >>> useful_after_s(found, end_s=10.0, until_s=25.0)
    5.0
    """
    first, last = int(np.ceil(end_s / INTERVAL_S)), int(until_s // INTERVAL_S)
    good = found[first:last].mean(axis=1) >= 0.99
    if not good.size or not good[-1]:
        return float("inf")
    bad = np.flatnonzero(~good)
    begin = first + (int(bad[-1]) + 1 if bad.size else 0)
    return max(begin * INTERVAL_S - end_s, 0.0)


@dataclass(frozen=True)
class Write:
    """A quota that somebody else changed during the measurement; seconds since the beginning."""

    begun_s: float
    committed_s: float
    published_s: float
    """When limits made of it were in the limits topic; infinite: never within the phase."""


@dataclass(frozen=True)
class Figures:
    """The row of a phase in the table."""

    phase: str
    goodput: float
    """As a share of all intervals of all brokers."""
    useful_after_s: float
    commit_p50_s: float
    commit_max_s: float
    publish_p50_s: float
    publish_max_s: float
    peak_gb: float
    """Most memory of all the job's processes together."""


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
