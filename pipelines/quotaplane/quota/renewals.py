"""Renewals: which unchanged limits a round publishes again, so that no lease ends.

Groups have turns, by their ids; the state has the time of each turn. So it makes no difference why
a round comes late: after a restart, or while rounds are slow, more turns are due at once.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.model import BoolArray, IntArray
from quotaplane.quota.config import StepConfig

_MOST_TURNS: Final = 1000


def due_turns(
    renewed_at_ms: IntArray, now_ms: int, config: StepConfig
) -> tuple[BoolArray, IntArray]:
    """(t,) turns that are renewed in this round: the oldest ones; (t,) ``renewed_at_ms`` after it.

    A round renews one of the ``refresh_rounds`` turns, or more if the round before it was long ago:
    as many as are renewed in that time if all are within ``LeaseTimes.quarter_ms``. All are due if
    the state does not say when they were renewed, because it is of another setting, or new.

    >>> from quotaplane.laws import get_law
    >>> config = StepConfig(get_law("max_min"), refresh_rounds=4, lease_ms=120_000)
    >>> due, renewed_at_ms = due_turns(np.array([20_000, 5_000, 10_000, 15_000]), 25_000, config)
    >>> due.tolist(), renewed_at_ms.tolist()
    ([False, True, False, False], [20000, 25000, 10000, 15000])
    >>> [int(due_turns(renewed_at_ms, at, config)[0].sum()) for at in (33_000, 55_000)]
    [2, 4]
    """
    turns = min(config.refresh_rounds, _MOST_TURNS)
    if len(renewed_at_ms) != turns:
        return np.ones(turns, bool), np.full(turns, now_ms)
    part = (now_ms - renewed_at_ms.max()) / config.lease.quarter_ms
    oldest = np.argsort(renewed_at_ms, kind="stable")[: max(int(np.ceil(part * turns)), 1)]
    due: BoolArray = np.zeros(turns, bool)
    due[oldest] = True
    return due, np.where(due, now_ms, renewed_at_ms)
