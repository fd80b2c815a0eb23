"""The lease: how long a published limit is in force, and when it certainly is no longer.

A limit is in force at its broker for one lease after it was issued (the term is Doorman's). The
broker measures that with its own clock. The control plane adds ``stale_after_ms`` to allow for the
difference of the clocks; and once more where it may have sent the last message that long after the
broker's last report.
"""

from __future__ import annotations

from typing import NamedTuple


class LeaseTimes(NamedTuple):
    """The four questions about a lease's end; times are in ms since 1970.

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
