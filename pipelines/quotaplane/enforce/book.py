"""What each broker was told about each group, and what of it holds now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray
from quotaplane.wire.ids import ids_of

if TYPE_CHECKING:
    from quotaplane.wire.limits import LimitsMessage

_NO_END: Final = np.iinfo(np.int64).max


class Book:
    """Limits by (broker, group), whatever order messages come in, and however often.

    Only publish and dispatch are kept: stock brokers have no rate for totals or mutations, and
    nothing to hold requests to terms with. Groups are known by id, as names and ids may both come.
    """

    def __init__(self) -> None:
        self._brokers: dict[str, int] = {}
        self._groups: dict[int, int] = {}
        # By (broker, group), both with room to grow; NaN = never told.
        self._limit: FloatArray = np.full((1, 1, BASIC), np.nan)
        self._safe: FloatArray = np.full((1, 1, BASIC), np.nan)
        self._until_ms: IntArray = np.full((1, 1), _NO_END)
        self._version: IntArray = np.full((1, 1, 2), -1, np.int64)
        self._told_ms: FloatArray = np.full(1, -np.inf)
        self.issued_at_ms = 0
        """When the newest of all messages was decided."""
        self.not_enforced = 0
        """So many messages limited totals or mutations, or had terms: none of it can be done."""

    def receive(self, message: LimitsMessage) -> int:
        """Take in one message; returns how many limits it changed."""
        # A stock broker tells nobody when it started: this is for one that reports in our format.
        if message.broker_started_at_ms:
            return 0
        self.issued_at_ms = max(self.issued_at_ms, message.issued_at_ms)
        if np.isfinite(message.limits[:, BASIC:]).any() or any(message.throttles or ()):
            self.not_enforced += 1
        broker = self._brokers.setdefault(message.broker, len(self._brokers))
        version = np.array([message.epoch, message.seq])
        at, newer = self._newer(broker, message.groups, message.group_ids, version)
        limits = message.limits[newer, :BASIC]
        before = self._limit[broker, at]
        self._told_ms[at] = np.maximum(self._told_ms[at], message.issued_at_ms)
        self._limit[broker, at] = limits
        self._until_ms[broker, at] = message.issued_at_ms + message.lease_ms
        self._version[broker, at] = version
        if message.safe_limits is not None:
            self._safe[broker, at] = message.safe_limits[newer, :BASIC]
        gone, _ = self._newer(broker, message.removed_groups, message.removed_group_ids, version)
        self._limit[broker, gone] = self._safe[broker, gone] = np.inf
        self._until_ms[broker, gone] = _NO_END
        self._version[broker, gone] = version
        return int((before != limits).any(axis=1).sum()) + len(gone)

    def _newer(
        self, broker: int, names: Sequence[str], numbers: IntArray, version: IntArray
    ) -> tuple[IntArray, BoolArray]:
        """Places of those groups for which the message is news, and which ones these are."""
        ids = [*ids_of(names).tolist(), *numbers.tolist()]
        groups = self._groups
        at = np.fromiter((groups.setdefault(one, len(groups)) for one in ids), np.int64, len(ids))
        self._make_room()
        has = self._version[broker, at]
        newer: BoolArray = (version[0] > has[:, 0]) | (
            (version[0] == has[:, 0]) & (version[1] > has[:, 1])
        )
        return at[newer], newer

    def _make_room(self) -> None:
        needs = len(self._brokers), max(len(self._groups), 1)
        has = self._until_ms.shape
        if needs[0] <= has[0] and needs[1] <= has[1]:
            return
        # Half as much again: groups come one by one, and a copy each time would be quadratic.
        more = [
            max(0, (3 * n + 1) // 2 - h) if n > h else 0 for n, h in zip(needs, has, strict=True)
        ]
        room = [(0, n) for n in more]
        self._told_ms = np.pad(self._told_ms, room[1], constant_values=-np.inf)
        self._limit = np.pad(self._limit, [*room, (0, 0)], constant_values=np.nan)
        self._safe = np.pad(self._safe, [*room, (0, 0)], constant_values=np.nan)
        self._until_ms = np.pad(self._until_ms, room, constant_values=_NO_END)
        self._version = np.pad(self._version, [*room, (0, 0)], constant_values=-1)

    def told_ms(self, groups: Sequence[str]) -> FloatArray:
        """When the newest limits of each group were decided, whichever broker's (g,)."""
        at = np.array([self._groups.get(one, -1) for one in ids_of(groups).tolist()], np.int64)
        return np.where(at >= 0, self._told_ms[at], -np.inf)

    def in_force(
        self,
        brokers: Sequence[str],
        groups: Sequence[str],
        broker: IntArray,
        group: IntArray,
        now_ms: float,
        *,
        keep_removed: bool = False,
    ) -> FloatArray:
        """Limits of k pairs at a time, (k, 4) per second: inf = unlimited, NaN = leave it alone.

        The limit told holds within its lease, afterwards the safe limit; ``now_ms=inf`` asks for
        safe limits. NaN is what was never told: the limit, or the safe limit of an ended lease.
        With ``keep_removed`` it is also what was removed.

        ``broker`` (k,) and ``group`` (k,) are indices into ``brokers`` and ``groups``, as reports
        and the cluster name them.
        """
        known_brokers = np.array([self._brokers.get(name, -1) for name in brokers], np.int64)
        ids = ids_of(groups).tolist()
        known_groups = np.array([self._groups.get(one, -1) for one in ids], np.int64)
        limits = np.full((len(broker), BASIC), np.nan)
        if not len(broker):
            return limits
        b, g = known_brokers[broker], known_groups[group]
        told = np.flatnonzero((b >= 0) & (g >= 0))
        b, g = b[told], g[told]
        until_ms = self._until_ms[b, g]
        over = (until_ms < now_ms) & (until_ms < _NO_END)
        limits[told] = np.where(over[:, None], self._safe[b, g], self._limit[b, g])
        if keep_removed:
            # Every limit has a lease.
            limits[told[until_ms == _NO_END]] = np.nan
        return limits

    def removed(self, brokers: Sequence[str], groups: Sequence[str]) -> list[str]:
        """Those of the groups that were removed from one of the brokers, and not told anew."""
        known = [self._brokers[name] for name in brokers if name in self._brokers]
        broker = np.array(known, np.int64)[:, None]
        at = np.array([self._groups.get(one, -1) for one in ids_of(groups).tolist()], np.int64)
        ended = (self._version[broker, at, 0] >= 0) & (self._until_ms[broker, at] == _NO_END)
        found = (ended & (at >= 0)).any(axis=0)
        return [groups[one] for one in np.flatnonzero(found).tolist()]
