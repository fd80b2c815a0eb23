"""Departures: brokers that left their cluster's own list, which is better evidence than silence."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import BoolArray
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.config import StepConfig


def find_departed(brokers: Brokers, departures: pa.Table | None, config: StepConfig) -> BoolArray:
    """(b,) brokers that left the list and have not reported since; ``departures``: see ``Events``.

    Nobody, if more than half of the known brokers are said to have left: then the list is more
    likely wrong than they are dead, and silence decides. Nobody under strict: what a broker has
    may be in force until its lease end, whether it is alive or not.

    A report is older than the list if its publish time says so, unless it was read so long after
    that time that the clock that stamps it may be behind: then by the round that read it.
    """
    left_at_ms = np.full(len(brokers), -1, np.int64)
    if departures is not None and len(departures) and not config.lease.strict:
        names = pa.array(brokers.names, pa.string())
        index = pc.index_in(departures["broker"].combine_chunks(), value_set=names)
        known = index.is_valid().to_numpy(zero_copy_only=False)
        left_at_ms[index.drop_null().to_numpy()] = departures["left_at_ms"].to_numpy()[known]
    left = left_at_ms >= 0
    if 2 * np.count_nonzero(left) > len(brokers):
        return np.zeros(len(brokers), bool)
    late = brokers.read_at_ms - brokers.seen_at_ms > config.stale_after_ms
    reported_at_ms = np.where(late, brokers.read_at_ms, brokers.seen_at_ms)
    departed: BoolArray = left & (reported_at_ms <= left_at_ms)
    return departed
