"""Reported usage applied to leases: usage, the demand estimate, and acknowledged limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from quotaplane.arrays import to_single
from quotaplane.groups.hierarchy import even_shares, least_on_path
from quotaplane.model import DIMENSIONS, BoolArray, FloatArray, IntArray
from quotaplane.quota.demand import learn
from quotaplane.quota.demand_changes import MOST_WINDOWS
from quotaplane.quota.dimensions_in_use import last_reported
from quotaplane.quota.division import tree_quota
from quotaplane.quota.groups import Groups
from quotaplane.quota.headroom import BLIND_PROBE
from quotaplane.quota.leases import Leases
from quotaplane.quota.noise import counting_noise, noise_of_groups, to_half, with_prior
from quotaplane.quota.track import Track, Window

_STOCK_DELAY_WINDOWS: Final = 4
"""Stock brokers do not report which limit they applied. A new limit counts as on its way for this
many windows: with fewer, limits never settle where messages arrive two intervals late."""

_ENFORCED_AFTER_MS: Final = 1500.0
"""From the begin of the round that issued a limit until the enforcer has brought it into force, if
neither has much to do: it looks for limits each half a second, and Pulsar applies a new rate within
a second."""

_OBSERVED_LEVEL_MS: Final = 20_000.0
"""Observed windows of so much time together make a level."""
_MOST_OBSERVED: Final = 20
"""The same in windows, at most."""

_LEAST_RATE: Final = 1e-6
"""Usage below this, per second, is no usage: one message in eleven days."""
_FAR_ABOVE: Final = 1.25
"""Multiple of a limit that bursts do not reach."""
_BLIND_PRIOR: Final = np.sqrt(2.0)
"""A broker that reports no refusals is taken for noisier than counting, until it is known: a false
suspicion costs more there than a late one."""

NEWEST: Final = 8
"""Most reports of one lease that a round learns from, the newest: the cost of a backlog is bounded.
The estimate moves by a sixth or more with each report of a broker, so after 8 a quarter is left of
the one before; with short observed windows two thirds. Older reports are in the history, too."""


def adopt_limits(
    leases: Leases,
    lease_index: IntArray,
    earlier: BoolArray,
    limits: FloatArray | None,
    groups: Groups,
) -> tuple[Leases, BoolArray]:
    """Take over limits of an earlier epoch that brokers report, for leases without a limit.

    Args:
        leases: of the shard.
        lease_index: (m,) each entry's lease, as in ``update_usage``.
        earlier: (m,) the broker obeys an earlier epoch.
        limits: (d, m) in force at the broker; NaN = not reported.
        groups: no limit is taken over that exceeds the quota of its group, or one above it.

    Returns:
        The leases; (n,) whose limit was taken over.
    """
    adopted = np.zeros(len(leases), bool)
    if limits is None or not earlier.any():
        return leases, adopted
    has_limits = ~np.isnan(limits).all(axis=0)
    chosen = np.flatnonzero(earlier & ~leases.has_limit[lease_index] & has_limits)
    index = lease_index[chosen]
    reported = np.where(np.isnan(limits), np.inf, limits)[:, chosen]
    limit = leases.limit.copy()
    # Of several reports of one lease the last assignment stays.
    limit[:, index] = to_single(np.minimum(reported, least_quota(groups)[:, leases.group[index]]))
    adopted[index] = True
    leases = replace(
        leases,
        limit=limit,
        # Others may have a lowered limit that is not acknowledged yet: theirs stay.
        previous_limit=np.where(adopted, limit, leases.previous_limit),
        max_in_force=np.where(adopted, limit, leases.max_in_force),
        has_limit=leases.has_limit | adopted,
        notified=leases.notified | adopted,
    )
    return leases, adopted


def least_quota(groups: Groups) -> FloatArray:
    """(d, g) the lowest quota that holds for each group: its own, or one above it."""
    above = [least_on_path(groups.parent, tree_quota(groups, d)) for d in range(len(groups.quota))]
    return np.minimum(groups.quota, np.stack(above))


@dataclass(frozen=True)
class ReportedUsage:
    """The contents of m report entries."""

    usage: FloatArray
    """(d, m) per second; NaN = unchanged since the report before."""
    throttled: FloatArray
    """(d, m) refused or delayed per second; NaN = not reported."""
    published_at_ms: IntArray
    """(m,) when the report was published."""
    event_size: FloatArray
    """(d, m) units that one event carries: 1 message, or the mean bytes of a message; NaN: not
    known."""
    window_ms: FloatArray
    """(m,) the time over which usage was measured."""
    applied_epoch: IntArray
    """(m,) the epoch that the broker obeys; -1 = not reported."""
    applied_seq: FloatArray
    """(m,) round of the limit that was probably in force: the group's, else the broker's newest of
    any group; -1 = not reported."""
    acked_seq: FloatArray
    """(m,) round of the limit of this very group; NaN = not reported. Another group's round is no
    acknowledgement: this group's message may have been lost."""
    observed: BoolArray
    """(m,) the report is the enforcer's."""

    def take(self, chosen: BoolArray | slice) -> ReportedUsage:
        """The chosen entries."""
        return ReportedUsage(
            usage=self.usage[:, chosen],
            throttled=self.throttled[:, chosen],
            event_size=self.event_size[:, chosen],
            published_at_ms=self.published_at_ms[chosen],
            window_ms=self.window_ms[chosen],
            applied_epoch=self.applied_epoch[chosen],
            applied_seq=self.applied_seq[chosen],
            acked_seq=self.acked_seq[chosen],
            observed=self.observed[chosen],
        )


@dataclass
class _UsageColumns:
    """Copies of the columns of ``Leases`` that reports change; written in place."""

    usage: FloatArray
    track: Track
    reports_refused: BoolArray
    max_in_force: FloatArray
    seen_at_ms: IntArray


class _OfGroups(NamedTuple):
    """What is alike for the brokers of a group; (d, g)."""

    noise: FloatArray
    """See ``noise.noise_of_groups``."""
    small_limit: FloatArray
    """Per second; see ``Window``."""

    def take(self, groups: IntArray) -> _OfGroups:
        """(d, m) those of the given groups."""
        return _OfGroups(*(values[:, groups] for values in self))


def update_usage(
    leases: Leases,
    lease_index: IntArray,
    reported: ReportedUsage,
    groups: Groups,
    *,
    epoch: int,
    saturated_from: float,
) -> Leases:
    """Write reported usage into the leases and update each demand estimate, report by report.

    Args:
        leases: of the shard.
        lease_index: (m,) each entry's lease, ascending; entries of one lease are sorted by time.
        reported: the m entries.
        groups: of the shard.
        epoch: of this control plane.
        saturated_from: see ``demand.observe``.
    """
    of_groups = _OfGroups(
        noise_of_groups(leases.track.noise, leases.group, len(groups)),
        _small_limits(leases, groups),
    )
    columns = _UsageColumns(
        usage=leases.usage.copy(),
        track=leases.track.map_arrays(np.copy),
        reports_refused=leases.reports_refused.copy(),
        max_in_force=leases.max_in_force.copy(),
        seen_at_ms=leases.seen_at_ms.copy(),
    )
    pass_of, reported = _passes(lease_index, reported)
    # The usual case, one entry for every lease in order, needs no index arrays.
    one_each = not pass_of.any() and len(lease_index) == len(leases)
    for number in range(int(pass_of.max(initial=-1)) + 1):
        entries: BoolArray | slice = pass_of == number if pass_of.any() else slice(None)
        chosen: IntArray | slice = slice(None) if one_each else lease_index[entries]
        its_groups = of_groups.take(leases.group[chosen])
        _update_once(
            leases, columns, chosen, reported.take(entries), its_groups, epoch, saturated_from
        )
    return replace(
        leases,
        usage=columns.usage,
        track=columns.track,
        reports_refused=columns.reports_refused,
        max_in_force=columns.max_in_force,
        seen_at_ms=columns.seen_at_ms,
    )


def _passes(lease_index: IntArray, reported: ReportedUsage) -> tuple[IntArray, ReportedUsage]:
    """(m,) the pass that uses each entry: 0, 1, ... for the newest of a lease; below 0: none.

    Each pass takes one entry per lease. If the first entry of a lease that is used says
    "unchanged", it gets the last value of the entries before it, which are not used.
    """
    begin = np.flatnonzero(np.diff(lease_index, prepend=-1))
    if len(begin) == len(lease_index):
        return np.zeros(len(lease_index), np.int64), reported
    count = np.diff(begin, append=len(lease_index))
    skipped = np.maximum(count - NEWEST, 0)
    pass_of = np.arange(len(lease_index)) - np.repeat(begin + skipped, count)
    if not (pass_of < 0).any():
        return pass_of, reported
    first = np.flatnonzero((pass_of == 0) & np.repeat(count > NEWEST, count))
    last = last_reported(reported.usage, lease_index)[:, first]
    usage, throttled = reported.usage.copy(), reported.throttled.copy()
    usage[:, first] = np.take_along_axis(reported.usage, last, axis=1)
    throttled[:, first] = np.take_along_axis(reported.throttled, last, axis=1)
    return pass_of, replace(reported, usage=usage, throttled=throttled)


def _update_once(
    leases: Leases,
    columns: _UsageColumns,
    chosen: IntArray | slice,
    reported: ReportedUsage,
    of_groups: _OfGroups,
    epoch: int,
    saturated_from: float,
) -> None:
    """Update ``columns`` with one entry for each of the m chosen leases.

    ``of_groups`` (d, m): of the group of each.
    """
    limit, issued_seq = leases.limit[:, chosen], leases.issued_seq[chosen]
    ours = reported.applied_epoch == epoch
    in_window = limit_in_window(leases, chosen, reported, epoch)

    unchanged, last_usage = np.isnan(reported.usage), columns.usage[:, chosen]
    usage = reported.usage
    usage = to_single(np.where(unchanged, last_usage, usage) if unchanged.any() else usage)
    usage = np.where(usage < _LEAST_RATE, 0.0, usage)
    counted = ~np.isnan(reported.throttled)
    before = columns.track.take(chosen)
    prior = counting_noise(reported.event_size, reported.window_ms)
    prior = np.where(counted, prior, _BLIND_PRIOR * prior)
    noise = to_half(with_prior(before.noise, of_groups.noise, prior))
    in_window = _as_usage_shows(leases, chosen, reported, usage, in_window)
    outdated = in_window < limit
    window = Window(
        used_before=last_usage,
        usage=usage,
        limit=in_window,
        throttled=reported.throttled,
        outdated=outdated,
        small_limit=of_groups.small_limit,
        unchanged=unchanged,
        most_windows=_most_windows(reported),
        in_batches=_in_batches(reported, leases.dimensions),
    )
    after = learn(before.with_noise(noise), window, saturated_from=saturated_from)
    # Refusals must be reported in all dimensions: a broker that reports them gets little headroom,
    # so in a dimension without them it could not show that it wants more.
    reports_refused = counted.any(axis=0) & (counted | unchanged).all(axis=0)
    reports_refused |= columns.reports_refused[chosen] & unchanged.all(axis=0)
    if unchanged.any():
        # If the broker reports refusals, "unchanged" covers them, too: the estimate stays.
        after = before.where(unchanged & reports_refused, after)
    columns.usage[:, chosen] = usage
    columns.track.put(
        chosen,
        replace(after, demand=to_single(after.demand), old_demand=to_single(after.old_demand)),
    )
    columns.reports_refused[chosen] = reports_refused
    columns.seen_at_ms[chosen] = reported.published_at_ms
    acknowledged = ours & (reported.acked_seq >= issued_seq)
    max_in_force = columns.max_in_force[:, chosen]
    if (acknowledged & (max_in_force != limit).any(axis=0)).any():
        columns.max_in_force[:, chosen] = np.where(acknowledged, limit, max_in_force)


def _most_windows(reported: ReportedUsage) -> IntArray | None:
    """(m,) most windows that a level is the mean of; None: as many as usual.

    The enforcer's windows are short, so noise is large beside what they count: a level that
    followed it would move everybody's limits, and each write of a rate lets a burst through.
    """
    if not reported.observed.any():
        return None
    window_ms = np.maximum(reported.window_ms, 1.0)
    windows = np.clip(_OBSERVED_LEVEL_MS / window_ms, MOST_WINDOWS, _MOST_OBSERVED)
    return np.where(reported.observed, windows, MOST_WINDOWS).astype(np.int64)


def _in_batches(reported: ReportedUsage, dimensions: tuple[int, ...]) -> BoolArray | None:
    """(d, m) usage that comes a second's worth at once; None: none does.

    So brokers dispatch under a rate. Only the enforcer's windows are that short.
    """
    if not reported.observed.any():
        return None
    dispatch = [DIMENSIONS[dimension].startswith("dispatch") for dimension in dimensions]
    return np.array(dispatch)[:, None] & reported.observed


def _as_usage_shows(
    leases: Leases,
    chosen: IntArray | slice,
    reported: ReportedUsage,
    usage: FloatArray,
    in_window: FloatArray,
) -> FloatArray:
    """(d, m) the limit in the window, where usage says more about it than the times do.

    Usage far above the lower one of two limits shows that the newer one was in force. But if it was
    for a part of the window only, a broker that is held back shows something between the two: then
    the usage itself counts as the limit, which says that the demand is at least as high. A broker
    that reports which limit it applied needs no such guess.
    """
    limit = leases.limit[:, chosen]
    far_above = usage > _FAR_ABOVE * in_window
    if not far_above.any():
        return in_window
    began_ms = reported.published_at_ms - reported.window_ms
    limit_unknown = reported.observed | (reported.applied_seq < 0)
    in_part = limit_unknown & (leases.issued_at_ms[chosen] > began_ms - _ENFORCED_AFTER_MS)
    in_part = far_above & in_part & np.isnan(reported.throttled) & (usage < limit)
    shown = np.where(far_above, np.maximum(in_window, limit), in_window)
    return np.where(in_part & np.isfinite(limit), usage, shown)


def _small_limits(leases: Leases, groups: Groups) -> FloatArray:
    """(d, g) limits that are small for a broker of the group: twice what an idle one has."""
    brokers = np.bincount(leases.group, minlength=len(groups))
    even = [
        even_shares(groups.parent, tree_quota(groups, dimension), brokers)
        for dimension in range(len(leases.dimensions))
    ]
    small: FloatArray = 2.0 * BLIND_PROBE * np.stack(even)
    return small


def limit_in_window(
    leases: Leases,
    chosen: IntArray | slice,
    reported: ReportedUsage,
    epoch: int,
    while_changing: Callable[[FloatArray, FloatArray], FloatArray] = np.minimum,
) -> FloatArray:
    """(d, m) the limit under which each reported usage was measured, of the chosen leases.

    Usage shows something about demand only in comparison with this limit. While a newer limit was
    on its way it is the lower of both, because either may have held the broker back, or what
    ``while_changing`` makes of both.
    """
    limit, issued_seq = leases.limit[:, chosen], leases.issued_seq[chosen]
    ours = reported.applied_epoch == epoch
    behind = (reported.applied_seq >= 0) & (~ours | (reported.applied_seq < issued_seq))
    # A broker that reports which limit it applied may only have changed it within the window.
    delay_ms = reported.window_ms * np.where(reported.applied_seq < 0, _STOCK_DELAY_WINDOWS, 1)
    on_its_way = ~behind & (leases.issued_at_ms[chosen] > reported.published_at_ms - delay_ms)
    in_window = limit
    if on_its_way.any():
        either = while_changing(in_window, leases.previous_limit[:, chosen])
        in_window = np.where(on_its_way, either, in_window)
    if behind.any():
        in_window = np.where(behind, leases.previous_limit[:, chosen], in_window)
    if not leases.enforced.all():
        in_window = np.where(leases.enforced[chosen], in_window, np.inf)
    return in_window
