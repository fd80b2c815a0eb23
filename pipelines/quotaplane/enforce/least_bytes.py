"""The least publish rate in bytes: below it, one batch of messages would mute a producer for long.

A broker lets a message through whole, and then does not read from its producer's connection until
the rate has paid for it; it computes that time once, and a higher rate does not shorten it. At
1 byte per second a message of 1 kB costs a quarter of an hour. So a broker's limit of published
bytes is raised to ``LEAST_BYTES_PER_S`` for each of its topics, but to no more than an equal share
of what all brokers of the group have. All raises of a group together are at most ``MOST_RAISED`` of
its brokers' limits, and nothing with ``limits.transition: strict``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.model import DIMENSIONS, FloatArray, IntArray

LEAST_BYTES_PER_S: Final = 16_384
"""A full batch of Pulsar's clients has 128 KiB by default: at this rate it is paid for in 8 s."""
MOST_RAISED: Final = 0.1
PUBLISH_BYTES: Final = DIMENSIONS.index("publish_bytes")


def raised_limits(
    limits: FloatArray, group: IntArray, topics: IntArray, most_raised: float = MOST_RAISED
) -> FloatArray:
    """The limits (k, 4) of pairs of a broker and a group, with the least publish rate in bytes.

    An equal share is what a busy broker gets in any case, so a pair that has less is idle, or has a
    low weight. inf = unlimited and NaN = no limit received stay, and do not count.

    Args:
        limits: (k, 4) of each pair.
        group: (k,) of each pair, from 0.
        topics: (k,) topics and partitions of the group that the broker has.
        most_raised: part of the group's limits; 0 where they must not add up to more.

    >>> limits = np.full((3, 4), np.inf)
    >>> limits[:, PUBLISH_BYTES] = 1.0, 200_000.0, 99_999.0
    >>> raised_limits(limits, np.zeros(3, np.int64), np.array([1, 1, 4]))[:, PUBLISH_BYTES]
    array([ 16384., 200000.,  99999.])

    With four topics on the idle broker, 10 % of 300,000 is less than what they need:

    >>> raised_limits(limits, np.zeros(3, np.int64), np.array([4, 1, 4]))[:, PUBLISH_BYTES]
    array([ 30001., 200000.,  99999.])
    """
    own = limits[:, PUBLISH_BYTES]
    limited = np.isfinite(own)
    groups = int(group.max(initial=-1)) + 1
    total = np.bincount(group, np.where(limited, own, 0.0), groups)
    brokers = np.bincount(group, limited, groups)
    equal = (total / np.maximum(brokers, 1.0))[group]
    least = np.minimum(LEAST_BYTES_PER_S * topics, equal)
    added = np.where(limited, np.maximum(least - own, 0.0), 0.0)
    wanted = np.bincount(group, added, groups)
    part = np.ones(groups)
    np.divide(most_raised * total, wanted, out=part, where=wanted > 0.0)
    raised = limits.copy()
    raised[:, PUBLISH_BYTES] = own + added * np.minimum(part, 1.0)[group]
    return raised
