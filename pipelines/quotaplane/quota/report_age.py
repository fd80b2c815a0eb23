"""The age of reports: which ones a round decides with, and up to when the topics have been read.

Rounds may run late, and clocks differ; neither makes a broker that reports a silent one.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from quotaplane.model import BoolArray, IntArray


def too_old(sender: IntArray, published_at_ms: IntArray, most_ms: float) -> BoolArray:
    """(m,) reports of a round that are too old to decide with; ``sender`` (m,): an index.

    A report is too old if its sender published another one of this round more than
    ``most_ms`` later. Both times are from one clock, so a wrong clock, a slow round and a
    backlog make no difference; and the newest report of a sender always counts.

    >>> too_old(np.array([0, 1, 1, 1]), np.array([-60, 20_001, 10_001, 10_000]), 10_000).tolist()
    [False, False, False, True]
    """
    late: BoolArray = published_at_ms < newest_ms(sender, published_at_ms)[sender] - most_ms
    return late


def on_hold(
    sender: IntArray, published_at_ms: IntArray, known_ms: int, timely_from_ms: float
) -> BoolArray:
    """(m,) reports of senders whose limits ``strict`` can't renew, while it can renew others'.

    ``strict`` issues no limit on a report that was published before ``timely_from_ms``, so its
    sender may soon use nothing. If such reports counted, its share would be kept for it all the
    same, and would be nobody's. While all reports are that old, as in a backlog, others could not
    get the share either, and a sender's own clock can't be told from a late round. ``known_ms``:
    when the newest report of the rounds before was published.

    >>> on_hold(np.array([0, 0, 1]), np.array([60, 80, 95]), 0, timely_from_ms=90).tolist()
    [True, True, False]
    >>> on_hold(np.array([0, 0, 1]), np.array([60, 80, 85]), 0, timely_from_ms=90).tolist()
    [False, False, False]
    """
    late: BoolArray = newest_ms(sender, published_at_ms)[sender] < timely_from_ms
    if max(known_ms, int(published_at_ms.max(initial=0))) < timely_from_ms:
        late[:] = False
    return late


def newest_ms(sender: IntArray, published_at_ms: IntArray) -> IntArray:
    """(s,) when each of s senders published its newest report, by the index in ``sender`` (m,)."""
    newest = np.full(sender.max(initial=-1) + 1, np.iinfo(np.int64).min)
    np.maximum.at(newest, sender, published_at_ms)
    return newest


def read_up_to_ms(headers: pa.Table | None, now_ms: int) -> int:
    """Up to when reports have been read after a round: the publish time of its newest one.

    In a round without reports none waits, so it is the time of the round; later it never is.

    >>> headers = pa.table({"published_at_ms": [500, 900]})
    >>> read_up_to_ms(headers, 1000), read_up_to_ms(headers, 800), read_up_to_ms(None, 1000)
    (900, 800, 1000)
    """
    if headers is None or not len(headers):
        return now_ms
    return min(int(headers["published_at_ms"].to_numpy().max()), now_ms)
