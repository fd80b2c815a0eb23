"""The limits of all brokers of a cluster, as the enforcer receives them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from quotaplane.client.receiver import ReceivedLimits
from quotaplane.groups.ids import ids_of
from quotaplane.model import BASIC, UNLIMITED, BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from quotaplane.wire.limits import LimitsMessage

MOST_UNLISTED_BROKERS: Final = 64
MOST_UNLISTED_GROUPS: Final = 5_000
"""Kept of brokers and groups that the cluster does not list: new ones, or invented names."""

FORGET_AFTER_MS: Final = 600_000
"""A broker or group that the cluster does not list is forgotten so long after its last lease."""


class ClusterLimits:
    """Limits by (broker, group), whatever order messages come in, and however often.

    Only publish and dispatch are kept: stock brokers have no rate for totals, mutations or request
    time, and nothing to hold requests to terms with. NaN stands for what no message had.

    Of several messages the one with the newest version holds, but one whose lease is not over goes
    before one whose lease is: a version that somebody made up shuts out the real ones for a lease,
    and not for ever.
    """

    def __init__(self) -> None:
        self._limits = ReceivedLimits(
            unset=np.nan,
            unset_safe=np.nan,
            removed=UNLIMITED,
            dimensions=BASIC,
            throttles=False,
            admits=self._admits,
        )
        self._listed_brokers: frozenset[str] = frozenset()
        self._listed_ids: IntArray = np.zeros(0, np.int64)
        self.issued_at_ms = 0
        """When the newest of all messages was decided: the one with the highest version, as the
        job's clock may have been set back."""
        self._newest = (-1, -1)
        self.safe_changes = 0
        """Number of changes of safe limits."""
        self.not_enforced = 0
        """Messages with totals, mutations, request time or terms: rates of topics can't."""
        self.ignored = 0
        """Messages for brokers or groups beyond the bound for unlisted ones."""

    @property
    def room(self) -> tuple[int, int]:
        """Brokers and groups that memory is reserved for."""
        return self._limits.room

    def expect(self, brokers: Collection[str], groups: Sequence[str]) -> None:
        """These the cluster lists: there is always room for them."""
        self._listed_brokers = frozenset(brokers)
        self._listed_ids = np.unique(ids_of(groups))

    def receive(self, message: LimitsMessage, now_ms: float, wall_ms: float | None = None) -> int:
        """Take in one message; returns how many limits it changed.

        ``now_ms`` is of a clock that nobody sets, as in all methods here; ``wall_ms`` of one like
        that of the message. None: the two are one.
        """
        # A stock broker does not report its start: this is for one that reports in our format.
        if message.broker_started_at_ms:
            return 0
        version = message.epoch, message.seq
        if version >= self._newest:
            self._newest, self.issued_at_ms = version, message.issued_at_ms
        if np.isfinite(message.limits[:, BASIC:]).any() or any(message.throttles or ()):
            self.not_enforced += 1
        if not self._has_room_for(message.broker):
            self.ignored += 1
            return 0
        self._limits.add_broker(message.broker)
        issued_ms = message.issued_on(
            wall_ms=now_ms if wall_ms is None else wall_ms, steady_ms=now_ms
        )
        applied = self._limits.apply(message, now_ms, issued_ms=issued_ms)
        self.safe_changes += applied.safe_changed
        return applied.changed

    def _has_room_for(self, broker: str) -> bool:
        """Whether a broker is known, listed, or one of a few others."""
        known = self._limits.brokers
        if broker in known or broker in self._listed_brokers:
            return True
        return len(set(known) - self._listed_brokers) < MOST_UNLISTED_BROKERS

    def _admits(self, ids: IntArray) -> BoolArray:
        """Which new groups are listed, or some of a few others."""
        listed = np.isin(ids, self._listed_ids)
        unlisted = int((~np.isin(self._limits.ids, self._listed_ids)).sum())
        fits: BoolArray = listed | (np.cumsum(~listed) <= MOST_UNLISTED_GROUPS - unlisted)
        self.ignored += not fits.all()
        return fits

    def forget(self, now_ms: float) -> None:
        """Forget brokers and groups that are not listed and whose leases are long over."""
        self._limits.forget(now_ms - FORGET_AFTER_MS, self._listed_brokers, self._listed_ids)

    def decided_ms(self, groups: Sequence[str]) -> FloatArray:
        """When the newest limits of each group were decided, whichever broker's (g,)."""
        return self._limits.decided_ms(self._limits.columns_of(groups))

    def in_force(
        self,
        brokers: Sequence[str],
        groups: Sequence[str],
        broker: IntArray,
        group: IntArray,
        now_ms: float,
    ) -> FloatArray:
        """Limits of k pairs at a time, (k, 4) per second: inf = unlimited, NaN = leave it alone.

        A limit holds within its lease, afterwards the safe limit; ``now_ms=inf`` asks for safe
        limits. NaN: no message had the limit, or the safe limit after the lease.

        ``broker`` (k,) and ``group`` (k,) are indices into ``brokers`` and ``groups``, as reports
        and the cluster name them.
        """
        if not len(broker):
            return np.full((0, BASIC), np.nan)
        rows, columns = self._limits.rows(brokers), self._limits.columns_of(groups)
        return self._limits.of(rows[broker], columns[group], now_ms)

    def lease_ends_ms(self) -> IntArray:
        """When the leases of the listed brokers' limits for listed groups end (k,)."""
        limits = self._limits
        return limits.lease_ends_ms(
            limits.rows(self._listed_brokers), limits.columns(self._listed_ids)
        )

    def is_known(self, groups: Sequence[str]) -> BoolArray:
        """Which groups (g,) some message had, as a limit or as a removal."""
        return self._limits.is_known(self._limits.columns_of(groups))
