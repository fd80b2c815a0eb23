"""The lease: how long a published limit is in force, and when it certainly is no longer.

A limit is in force at its broker for one lease after it was issued (the term is Doorman's). The
broker measures that with its own clock. The control plane adds ``stale_after_ms`` to allow for the
difference of the clocks; and once more where it may have sent the last message that long after the
broker's last report.

Before it ends, a limit is renewed. Groups have turns for that, by their ids; the state has the time
of each turn. So it makes no difference why a round comes late: after a restart, or while rounds are
slow, more turns are due at once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from quotaplane.model import BoolArray, IntArray

_MOST_TURNS: Final = 1000


class LeaseTimes(NamedTuple):
    """The rules of a lease: its end and its renewal; times are in ms since 1970.

    >>> lease = LeaseTimes(120_000, stale_after_ms=10_000, expire_after_ms=15_000, strict=True)
    >>> lease.forgotten_after_ms
    140000
    >>> lease._replace(strict=False).forgotten_after_ms
    15000
    >>> lease.reserved_until_ms(now_ms=1_000_000), lease.learning_until_ms(1_000_000, 0)
    (1140000, 1130000)
    """

    lease_ms: float
    """How long a limit is in force after it was issued."""
    stale_after_ms: float
    """From a broker's last report until it counts as stale."""
    expire_after_ms: float
    """From a broker's last report until others get its share, under ``fast``."""
    strict: bool
    """Limits in force never exceed the quota: no share is given away before its lease is over."""

    @property
    def quarter_ms(self) -> float:
        """All limits are renewed within this time, so a restart may take most of a lease. A round
        decides with reports of so much time, so rounds may take as long and use all of them.
        """
        return self.lease_ms / 4

    @property
    def forgotten_after_ms(self) -> float:
        """From a broker's last report until others get its share.

        Strict: limits are sent to the broker for up to ``stale_after_ms`` after that report.
        """
        if not self.strict:
            return self.expire_after_ms
        return max(self.expire_after_ms, self.lease_ms + 2 * self.stale_after_ms)

    def ended_if_issued_before_ms(self, now_ms: int) -> float:
        """A limit that was issued before this time is not in force anywhere any more."""
        return now_ms - self.lease_ms - self.stale_after_ms

    def reserved_until_ms(self, now_ms: int) -> int:
        """How long the limits of a group that is deleted now may still be in force."""
        return now_ms + int(self.lease_ms + 2 * self.stale_after_ms)

    def learning_until_ms(self, now_ms: int, earlier_until_ms: float) -> int:
        """When learning mode ends in a shard that starts now without state.

        ``earlier_until_ms``: when the last limit of an earlier control plane ends.
        """
        end_ms = max(now_ms + self.lease_ms, earlier_until_ms)
        return int(end_ms + self.stale_after_ms)

    def due_turns(
        self, renewed_at_ms: IntArray, now_ms: int, refresh_rounds: int
    ) -> tuple[BoolArray, IntArray]:
        """(t,) turns that this round renews: the oldest; (t,) ``renewed_at_ms`` after it.

        A round renews one of the ``refresh_rounds`` turns, or more if the round before it was long
        ago: as many as are renewed in that time if all are within ``quarter_ms``. All are due if
        it is not known when they were renewed: the state is new or of another setting, or the job
        has just started.

        >>> lease = LeaseTimes(120_000, stale_after_ms=10_000, expire_after_ms=15_000, strict=True)
        >>> renewed_at_ms = np.array([20_000, 5_000, 10_000, 15_000])
        >>> due, renewed_at_ms = lease.due_turns(renewed_at_ms, 25_000, refresh_rounds=4)
        >>> due.tolist(), renewed_at_ms.tolist()
        ([False, True, False, False], [20000, 25000, 10000, 15000])
        >>> [int(lease.due_turns(renewed_at_ms, at, 4)[0].sum()) for at in (33_000, 55_000)]
        [2, 4]
        """
        turns = min(refresh_rounds, _MOST_TURNS)
        if len(renewed_at_ms) != turns:
            return np.ones(turns, bool), np.full(turns, now_ms)
        part = (now_ms - renewed_at_ms.max()) / self.quarter_ms
        oldest = np.argsort(renewed_at_ms, kind="stable")[: max(int(np.ceil(part * turns)), 1)]
        due: BoolArray = np.zeros(turns, bool)
        due[oldest] = True
        return due, np.where(due, now_ms, renewed_at_ms)
