"""The lease: how long a published limit is in force, and when it certainly is no longer.

A limit holds at its broker for a lease from when it was issued (Doorman calls this a lease, too).
The control plane does not see that clock. It adds ``stale_after_ms``, so that clocks may disagree
by as much, and as much again where the last message may have been sent that long after the last
report.
"""

from __future__ import annotations

from typing import NamedTuple


class Lease(NamedTuple):
    """The four questions about a lease's end; times are in ms since 1970.

    >>> lease = Lease(lease_ms=120_000, stale_after_ms=10_000, expire_after_ms=15_000, strict=True)
    >>> lease.forgotten_after_ms
    140000
    >>> lease._replace(strict=False).forgotten_after_ms
    15000
    >>> lease.reserved_until_ms(now_ms=1_000_000), lease.learning_until_ms(1_000_000, 0)
    (1140000, 1130000)
    """

    lease_ms: float
    """From when a limit is issued until it ends at its broker."""
    stale_after_ms: float
    """From a broker's last report until it counts as stale."""
    expire_after_ms: float
    """From a broker's last report until it is given up, under ``fast``."""
    strict: bool
    """Limits in force never exceed the quota: no share is given away before its lease ended."""

    @property
    def forgotten_after_ms(self) -> float:
        """From a broker's last report until its shares are given to others.

        Strict: a limit was published to it up to ``stale_after_ms`` after the report.
        """
        if not self.strict:
            return self.expire_after_ms
        return max(self.expire_after_ms, self.lease_ms + 2 * self.stale_after_ms)

    def ended_if_issued_before_ms(self, now_ms: int) -> float:
        """Limits that were issued before this are no longer in force anywhere."""
        return now_ms - self.lease_ms - self.stale_after_ms

    def reserved_until_ms(self, now_ms: int) -> int:
        """Until when the limits of a group that is deleted now may be in force."""
        return now_ms + int(self.lease_ms + 2 * self.stale_after_ms)

    def learning_until_ms(self, now_ms: int, earlier_until_ms: float) -> int:
        """Until when a shard that begins now without a state learns (Doorman's learning mode).

        ``earlier_until_ms``: when the last limits of an earlier control plane end.
        """
        end_ms = max(now_ms + self.lease_ms, earlier_until_ms)
        return int(end_ms + self.stale_after_ms)
