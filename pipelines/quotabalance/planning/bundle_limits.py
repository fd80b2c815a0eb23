"""How much a bundle may have before it is split, as Pulsar's settings say it. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from quotaplane.model import FloatArray, IntArray

WITHIN: Final = 4
"""The bundle exceeds no limit."""

LIMIT_LABELS: Final = ("Topics", "Sessions", "MsgRate", "Bandwidth")
"""The label of each limit's splits, in the order in which Pulsar compares."""
_UNITS: Final = ("topics", "sessions", "messages/s", "bytes/s")


class BundleLimits(NamedTuple):
    """The most of a bundle."""

    topics: int
    sessions: int
    """Producers and consumers; 0 or less: any number."""
    messages_per_s: float
    """In and out together, as ``bytes_per_s``."""
    bytes_per_s: float

    def exceeded(
        self, topics: IntArray, sessions: IntArray, bytes_per_s: FloatArray, messages: FloatArray
    ) -> IntArray:
        """The first limit that each bundle exceeds; all shapes (N,). ``WITHIN`` = none, or the
        bundle has fewer than two topics.

        >>> limits, of = BundleLimits(1000, 1000, 30000, 100e6), lambda *values: np.array(values)
        >>> limits.exceeded(of(1001, 1), of(0, 0), of(0, 2e8), of(0, 0)).tolist()
        [0, 4]
        """
        conditions = [
            topics > self.topics,
            (sessions > self.sessions) & (self.sessions > 0),
            messages > self.messages_per_s,
            bytes_per_s > self.bytes_per_s,
        ]
        found = np.select(conditions, range(WITHIN), WITHIN)
        return np.where(topics < 2, WITHIN, found).astype(np.int64)

    def text(self, limit: int) -> str:
        """The limit, for a reason.

        >>> BundleLimits(1000, 1000, 30000, 100e6).text(2)
        'more than 30000 messages/s'
        """
        return f"more than {self[limit]:.10g} {_UNITS[limit]}"
