"""Overuse: what brokers used beyond a quota, kept as a debt, and limits that may exceed the quota.

With ``limits.over`` = x the limits of a group may add up to (1 + x) times its quota Q, less what it
owes. Pure numpy. Amounts are in units: rates times seconds; a round is h seconds.

While every round has reports of all use up to its own time, and limits change with the round, the
debt never exceeds x Q h: debt + (limits - Q) h is at most that. So any stretch of T rounds uses at
most T Q h + x Q h within limits.

Use that no report shows yet counts as the limit, and is corrected later. A correction may take off
what covered a debt of then: of each round that reports are late, what limits exceeded the quota by.
That is x Q h for each, or more where limits went from one broker to another meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from quotaplane.arrays import find, to_single
from quotaplane.groups.hierarchy import subtree_totals
from quotaplane.model import DIMENSIONS, BoolArray, FloatArray, IntArray
from quotaplane.quota.config import StepConfig
from quotaplane.quota.leases import Leases
from quotaplane.quota.reported_usage import ReportedUsage
from quotaplane.quota.shard import Shard

_MOST_ROUNDS: Final = 4.0
"""The debt is at most so many times x Q h. Late reports and long rounds can make as much; more
comes from a quota that was lowered, and that would be paid back for too long."""


class ReportedUse(NamedTuple):
    """The use of n leases since their reports before those of this round."""

    usage: FloatArray
    """(d, n) per second and within limits, mean of the windows; 0 where nothing is limited."""
    reported_s: FloatArray
    """(n,) length of the windows together."""
    unreported_s: FloatArray
    """(n,) the rest of the time since the report before: reports of it were lost."""


def reported_use(
    after: Leases,
    lease_index: IntArray,
    reported: ReportedUsage,
    highest: FloatArray,
    confirmed_at_ms: tuple[IntArray, IntArray],
) -> ReportedUse:
    """The use that m entries of reports show, and those that light reports leave out.

    Args:
        after: the leases after the reports.
        lease_index: (m,) the lease of each entry.
        reported: the m entries.
        highest: (d, m) see ``reported_limits.highest_in_window``.
        confirmed_at_ms: (n,) see ``Shard.confirmed_at_ms``, before and after the reports.
    """
    n, window_ms = len(after), reported.window_ms
    # Where an entry says "unchanged", or there is none, the lease's new usage is as good.
    unchanged = np.isnan(reported.usage)
    used = np.where(unchanged, after.usage[:, lease_index], reported.usage)
    used = np.where(np.isfinite(highest), np.minimum(used, highest), 0.0) * window_ms
    windows = np.bincount(lease_index, weights=window_ms, minlength=n)
    sums = np.stack([np.bincount(lease_index, weights=row, minlength=n) for row in used])
    mean = np.divide(sums, windows, out=np.zeros(sums.shape), where=windows > 0.0)
    before_ms, after_ms = confirmed_at_ms
    since_ms = np.where(before_ms < 0, windows, after_ms - before_ms)
    left_out = (windows == 0.0) & (since_ms > 0)
    mean = np.where(left_out, np.minimum(after.usage, _bound(after)), mean)
    reported_ms = np.where(left_out, since_ms, np.minimum(windows, since_ms))
    return ReportedUse(mean, reported_ms / 1000.0, (since_ms - reported_ms) / 1000.0)


@dataclass(frozen=True)
class Overuse:
    """The debts of a shard's groups: k pairs of a group and a dimension, those that are not 0."""

    group_id: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    dimension: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    """Index in ``model.DIMENSIONS``."""
    debt: FloatArray = field(default_factory=lambda: np.empty(0))
    """Units that its brokers, and those of all groups below, used beyond the quota."""
    assumed: FloatArray = field(default_factory=lambda: np.empty(0))
    """Units that its own brokers may have used since their newest reports: they are in the debt
    until reports show what was used."""
    counted_at_ms: int = 0
    """Up to when use was counted; 0: not begun."""

    def __len__(self) -> int:
        return len(self.group_id)

    def next(
        self,
        shard: Shard,
        new: ReportedUse | None,
        ends: BoolArray,
        now_ms: int,
        config: StepConfig,
    ) -> tuple[Overuse, FloatArray]:
        """The debts after the use up to now, and as (d, G) rates: what can pay them in a round.

        Only use within limits counts, as nothing bounds the other.

        Args:
            shard: after the reports of this round, before limits change.
            new: the use that these reports show; None: there are none.
            ends: (n,) leases that end in this round.
            now_ms: the time of this round.
            config: the settings.
        """
        groups, leases = shard.groups, shard.leases
        debt, assumed = self._of(groups.ids, leases.dimensions)
        elapsed_s = max(now_ms - self.counted_at_ms, 0) / 1000.0 if self.counted_at_ms else 0.0
        since = _most_since(shard, now_ms)
        used = since
        if new is not None:
            used = since + new.usage * new.reported_s + _bound(leases) * new.unreported_s
        for place in range(len(leases.dimensions)):
            quota = groups.tree_quota(place)
            count = _by_group(leases, used[place], len(groups)) - assumed[place]
            spent = subtree_totals(groups.parent, count)
            limited = np.isfinite(quota)
            rate = np.where(limited, quota, 0.0)
            owed = np.where(limited, debt[place] + spent - rate * elapsed_s, 0.0)
            most = _MOST_ROUNDS * config.over * rate * config.round_s
            debt[place] = np.clip(owed, 0.0, most) if self.counted_at_ms else 0.0
            assumed[place] = _by_group(leases, np.where(ends, 0.0, since[place]), len(groups))
        debt, assumed = to_single(debt), to_single(assumed)
        return _stored(shard, debt, assumed, now_ms), debt / config.round_s

    def _of(self, ids: IntArray, dimensions: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        """(d, G) debts and assumed units of these groups, by ascending id."""
        debt, assumed = np.zeros((2, len(dimensions), len(ids)))
        if len(self):
            at = find(ids, self.group_id)
            places = np.full(len(DIMENSIONS), -1)
            places[list(dimensions)] = np.arange(len(dimensions))
            place = places[self.dimension]
            there = (at >= 0) & (place >= 0)
            debt[place[there], at[there]] = self.debt[there]
            assumed[place[there], at[there]] = self.assumed[there]
        return debt, assumed


def _stored(shard: Shard, debt: FloatArray, assumed: FloatArray, now_ms: int) -> Overuse:
    place, group = np.nonzero((debt > 0.0) | (assumed > 0.0))
    return Overuse(
        group_id=shard.groups.ids[group],
        dimension=np.array(shard.leases.dimensions, np.int64)[place],
        debt=debt[place, group],
        assumed=assumed[place, group],
        counted_at_ms=now_ms,
    )


def _bound(leases: Leases) -> FloatArray:
    """(d, n) the most that each broker may have used within its last two limits, per second.

    0 where it has none.
    """
    before = np.where(np.isfinite(leases.previous_limit), leases.previous_limit, 0.0)
    return np.where(_counts(leases), np.maximum(leases.limit, before), 0.0)


def _most_since(shard: Shard, now_ms: int) -> FloatArray:
    """(d, n) units that each broker may have used since its newest report."""
    leases = shard.leases
    seen_at_ms = np.minimum(shard.confirmed_at_ms(), now_ms)
    changed_at_ms = np.clip(leases.issued_at_ms, seen_at_ms, now_ms)
    limit = np.where(_counts(leases), leases.limit, 0.0)
    before = np.where(np.isfinite(leases.previous_limit), _bound(leases), 0.0)
    most: FloatArray = limit * (now_ms - changed_at_ms) + before * (changed_at_ms - seen_at_ms)
    return most / 1000.0


def _counts(leases: Leases) -> BoolArray:
    """(d, n) where the broker must obey a limit."""
    counts: BoolArray = np.isfinite(leases.limit) & leases.has_limit & leases.enforced
    return counts


def _by_group(leases: Leases, units: FloatArray, groups: int) -> FloatArray:
    """(n,) -> (G,)"""
    sums = np.bincount(leases.group, weights=units, minlength=groups)
    return sums.astype(np.float64, copy=False)
