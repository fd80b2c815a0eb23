"""The phases of the benchmark, and what its brokers do when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from quotaplane.model import BoolArray, FloatArray

INTERVAL_S: Final = 5.0
"""How often a broker reports under normal load."""
BROKERS: Final = 50
GROUPS: Final = 2_000
SPREAD: Final = 5
"""Brokers that each group is on."""
PAIRS: Final = BROKERS
"""Pair k is a group that only the brokers k and k + 1 have."""
PAIR_QUOTA: Final = 1000.0
SWAP_S: Final = 30.0
"""Time in which one broker of a pair wants all of its quota, the other nothing; then they swap."""
IN_TIME_S: Final = 4 * INTERVAL_S
"""Limits that follow a swap later than this are too late."""
BUSY_SHARE: Final = 0.8
"""A limit is right if the busy broker may use so much of the quota, and both together all of it."""


@dataclass(frozen=True)
class Phase:
    """Reports that the brokers send for a while."""

    key: str
    name: str
    times: int = 1
    """Reports of each broker in an interval."""
    invented_brokers: int = 0
    """Brokers that do not exist; each reports once in an interval."""
    undefined_groups: int = 0
    """Groups without a definition, in each report, with new names each time."""
    new_groups_per_s: int = 0
    """Groups that somebody defines, and brokers report."""
    job_paused: bool = False
    """The job's processes stand still (SIGSTOP); the brokers go on."""
    backlog_s: float = 0.0
    """The reports of so many seconds are in the topic when the phase ends, dated back."""


NORMAL: Final = Phase("normal", "normal")
FAULTS: Final = (
    Phase("x3", "3 x reports", times=3),
    Phase("x10", "10 x reports", times=10),
    Phase("invented", "1,000 invented brokers", invented_brokers=1000),
    Phase("undefined", "1,000 undefined groups a report", undefined_groups=1000),
    Phase("groups", "100 new groups a second", new_groups_per_s=100),
    Phase("pause", "job paused, 10 minutes of reports wait", job_paused=True, backlog_s=600.0),
)


def pair_name(pair: int) -> str:
    """The group of a pair.

    >>> pair_name(7)
    'probe/pair-007'
    """
    return f"probe/pair-{pair:03d}"


def swap_offsets_s() -> FloatArray:
    """(pairs,) the pairs do not swap all at once."""
    return np.arange(PAIRS) * SWAP_S / PAIRS


def second_is_busy(at_s: float) -> BoolArray:
    """(pairs,) whether the second broker of each pair is the busy one; seconds since 1970.

    >>> second_is_busy(0.0)[[0, -1]].tolist(), second_is_busy(30.0)[[0, -1]].tolist()
    ([False, False], [True, True])
    """
    found: BoolArray = ((at_s + swap_offsets_s()) // SWAP_S % 2).astype(bool)
    return found


def swaps(begin_s: float, end_s: float) -> tuple[FloatArray, FloatArray]:
    """(n,) when pairs swap within this time, and (n,) which ones.

    >>> at_s, pair = swaps(60.0, 90.0)
    >>> len(at_s), sorted(set(pair.tolist())) == list(range(PAIRS))
    (50, True)
    """
    turn = np.arange(np.floor(begin_s / SWAP_S), np.ceil(end_s / SWAP_S) + 1)
    at_s = turn[:, None] * SWAP_S - swap_offsets_s()
    pair = np.broadcast_to(np.arange(PAIRS), at_s.shape)
    inside = (at_s >= begin_s) & (at_s < end_s)
    return at_s[inside], pair[inside]
