"""The age of reports: which ones a round decides with, whatever the clocks of their brokers say."""

from __future__ import annotations

import numpy as np

from quotaplane.model import BoolArray, IntArray


def too_old(sender: IntArray, published_at_ms: IntArray, stale_after_ms: float) -> BoolArray:
    """(m,) reports of a round that are too old to decide with; ``sender`` (m,): an index.

    A report is too old if its sender published another one of this round more than
    ``stale_after_ms`` later. Both times are from one clock, so a wrong clock, a slow round and a
    backlog make no difference; and the newest report of a sender always counts.

    >>> too_old(np.array([0, 1, 1, 1]), np.array([-60, 20_001, 10_001, 10_000]), 10_000).tolist()
    [False, False, False, True]
    """
    newest_ms = np.full(sender.max(initial=-1) + 1, np.iinfo(np.int64).min)
    np.maximum.at(newest_ms, sender, published_at_ms)
    late: BoolArray = published_at_ms < newest_ms[sender] - stale_after_ms
    return late
