"""What each broker was told about each group, and what of it holds now."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from quotaplane.groups.ids import ids_of
from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from quotaplane.wire.limits import LimitsMessage

_NO_END: Final = np.iinfo(np.int64).max

MOST_UNLISTED_BROKERS: Final = 64
MOST_UNLISTED_GROUPS: Final = 5_000
"""Kept of brokers and groups that the cluster does not list: new ones, or invented names."""

FORGET_AFTER_MS: Final = 600_000
"""A broker or group that the cluster does not list is forgotten so long after its last lease."""


class Book:
    """Limits by (broker, group), whatever order messages come in, and however often.

    Only publish and dispatch are kept: stock brokers have no rate for totals or mutations, and
    nothing to hold requests to terms with. Groups are known by id, as names and ids may both come.

    Of several messages the one with the newest version holds, but one whose lease is not over goes
    before one whose lease is: a version that somebody made up shuts out the real ones for a lease,
    and not for ever.
    """

    def __init__(self) -> None:
        self._brokers: dict[str, int] = {}
        self._ids: IntArray = np.zeros(0, np.int64)
        """Of the groups, sorted."""
        self._column: IntArray = np.zeros(0, np.int64)
        """Where each of them is in the arrays below."""
        # By (broker, group), both with room to grow; NaN = never told.
        self._limit: FloatArray = np.full((1, 1, BASIC), np.nan)
        self._safe: FloatArray = np.full((1, 1, BASIC), np.nan)
        self._until_ms: IntArray = np.full((1, 1), _NO_END)
        self._version: IntArray = np.full((1, 1, 2), -1, np.int64)
        self._told_ms: FloatArray = np.full(1, -np.inf)
        self._listed_brokers: frozenset[str] = frozenset()
        self._listed_ids: IntArray = np.zeros(0, np.int64)
        self.issued_at_ms = 0
        """When the newest of all messages was decided."""
        self.safe_changes = 0
        """So often safe limits changed."""
        self.not_enforced = 0
        """So many messages limited totals or mutations, or had terms: none of it can be done."""
        self.ignored = 0
        """So many messages were for brokers or groups beyond what is kept of unlisted ones."""

    def expect(self, brokers: Collection[str], groups: Sequence[str]) -> None:
        """These the cluster lists: there is always room for them."""
        self._listed_brokers = frozenset(brokers)
        self._listed_ids = np.unique(ids_of(groups))

    def receive(self, message: LimitsMessage, now_ms: float) -> int:
        """Take in one message; returns how many limits it changed."""
        # A stock broker tells nobody when it started: this is for one that reports in our format.
        if message.broker_started_at_ms:
            return 0
        self.issued_at_ms = max(self.issued_at_ms, message.issued_at_ms)
        if np.isfinite(message.limits[:, BASIC:]).any() or any(message.throttles or ()):
            self.not_enforced += 1
        broker = self._row(message.broker)
        if broker is None:
            self.ignored += 1
            return 0
        until_ms = message.issued_at_ms + message.lease_ms
        at, newer = self._newer(broker, message, now_ms, gone=False)
        limits = message.limits[newer, :BASIC]
        before = self._limit[broker, at]
        self._told_ms[at] = np.maximum(self._told_ms[at], message.issued_at_ms)
        self._limit[broker, at] = limits
        if message.safe_limits is not None:
            safe = message.safe_limits[newer, :BASIC]
            self.safe_changes += not np.array_equal(self._safe[broker, at], safe)
            self._safe[broker, at] = safe
        gone, _ = self._newer(broker, message, now_ms, gone=True)
        self.safe_changes += bool(np.isfinite(self._safe[broker, gone]).any())
        self._limit[broker, gone] = self._safe[broker, gone] = np.inf
        for those in (at, gone):
            self._until_ms[broker, those] = until_ms
            self._version[broker, those] = message.epoch, message.seq
        return int((before != limits).any(axis=1).sum()) + len(gone)

    def _row(self, broker: str) -> int | None:
        """Where a broker is; None: there is no room for one that the cluster does not list."""
        if broker not in self._brokers:
            unlisted = self._brokers.keys() - self._listed_brokers
            if broker not in self._listed_brokers and len(unlisted) >= MOST_UNLISTED_BROKERS:
                return None
            self._brokers[broker] = len(self._brokers)
        return self._brokers[broker]

    def _newer(
        self, broker: int, message: LimitsMessage, now_ms: float, *, gone: bool
    ) -> tuple[IntArray, IntArray]:
        """Columns of the listed or removed groups that take the message, and their places in it."""
        names = message.removed_groups if gone else message.groups
        numbers = message.removed_group_ids if gone else message.group_ids
        columns = self._columns(np.concatenate([ids_of(names), numbers]))
        places = np.flatnonzero(columns >= 0)
        at = columns[places]
        has, until_ms = self._version[broker, at], self._until_ms[broker, at]
        newer: BoolArray = (message.epoch > has[:, 0]) | (
            (message.epoch == has[:, 0]) & (message.seq > has[:, 1])
        )
        over = until_ms < now_ms
        if message.issued_at_ms + message.lease_ms >= now_ms:
            newer |= over
        else:
            # Of a pair that was never told anything there is no lease that could be over.
            newer &= over | (has[:, 0] < 0)
        return at[newer], places[newer]

    def _columns(self, ids: IntArray) -> IntArray:
        """Where these groups are; -1: there is no room for them, or they can't be groups."""
        places = self._places(ids)
        new = ids[(places < 0) & (ids >= 0)]
        if len(new):
            # In the order in which they came: neighbours in a message stay neighbours in memory.
            new = new[np.sort(np.unique(new, return_index=True)[1])]
            listed = np.isin(new, self._listed_ids)
            unlisted = int((~np.isin(self._ids, self._listed_ids)).sum())
            fits = listed | (np.cumsum(~listed) <= MOST_UNLISTED_GROUPS - unlisted)
            self.ignored += not fits.all()
            new = new[fits]
            self._column = np.append(self._column, len(self._ids) + np.arange(len(new)))
            self._ids = np.append(self._ids, new)
            order = np.argsort(self._ids)
            self._ids, self._column = self._ids[order], self._column[order]
            places = self._places(ids)
        self._make_room()
        return places

    def _places(self, ids: IntArray) -> IntArray:
        """Where these groups are; -1 = nowhere."""
        if not len(self._ids):
            return np.full(len(ids), -1, np.int64)
        place = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return np.where(self._ids[place] == ids, self._column[place], -1)

    def _make_room(self) -> None:
        needs = len(self._brokers), max(len(self._ids), 1)
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

    def forget(self, now_ms: float) -> None:
        """Forget brokers and groups that are not listed and whose leases are long over."""
        told: BoolArray = self._version[:, :, 0] >= 0
        recent: BoolArray = told & (self._until_ms >= now_ms - FORGET_AFTER_MS)
        of_broker = np.asarray(recent.any(axis=1))
        of_group = np.asarray(recent.any(axis=0))
        brokers = [
            name
            for name, row in self._brokers.items()
            if name in self._listed_brokers or of_broker[row]
        ]
        listed: BoolArray = np.isin(self._ids, self._listed_ids)
        stays = listed | of_group[self._column]
        if len(brokers) == len(self._brokers) and stays.all():
            return
        columns = self._column[stays]
        kept = np.ix_(np.array([self._brokers[name] for name in brokers], np.int64), columns)
        self._brokers = {name: row for row, name in enumerate(brokers)}
        self._ids, self._column = self._ids[stays], np.arange(len(columns))
        self._limit, self._safe = self._limit[kept], self._safe[kept]
        self._until_ms, self._version = self._until_ms[kept], self._version[kept]
        self._told_ms = self._told_ms[columns]

    def told_ms(self, groups: Sequence[str]) -> FloatArray:
        """When the newest limits of each group were decided, whichever broker's (g,)."""
        at = self._places(ids_of(groups))
        return np.where(at >= 0, self._told_ms[at], -np.inf)

    def in_force(
        self,
        brokers: Sequence[str],
        groups: Sequence[str],
        broker: IntArray,
        group: IntArray,
        now_ms: float,
    ) -> FloatArray:
        """Limits of k pairs at a time, (k, 4) per second: inf = unlimited, NaN = leave it alone.

        The limit told holds within its lease, afterwards the safe limit; ``now_ms=inf`` asks for
        safe limits. NaN is what was never told: the limit, or the safe limit of an ended lease.

        ``broker`` (k,) and ``group`` (k,) are indices into ``brokers`` and ``groups``, as reports
        and the cluster name them.
        """
        known_brokers = np.array([self._brokers.get(name, -1) for name in brokers], np.int64)
        known_groups = self._places(ids_of(groups))
        limits = np.full((len(broker), BASIC), np.nan)
        if not len(broker):
            return limits
        b, g = known_brokers[broker], known_groups[group]
        told = np.flatnonzero((b >= 0) & (g >= 0))
        b, g = b[told], g[told]
        until_ms = self._until_ms[b, g]
        over = (until_ms < now_ms) & (until_ms < _NO_END)
        limits[told] = np.where(over[:, None], self._safe[b, g], self._limit[b, g])
        return limits

    def told(self, groups: Sequence[str]) -> BoolArray:
        """Of which groups (g,) some broker was told anything, a removal too."""
        at = self._places(ids_of(groups))
        told: BoolArray = self._version[:, at, 0] >= 0
        return np.asarray(told.any(axis=0)) & (at >= 0)
