"""Limits as reports show them: which were in force in a window, acknowledged, or adopted.

An adopted limit is one of an earlier epoch, which a broker still obeys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from quotaplane.arrays import to_single
from quotaplane.model import BASIC, LIMIT_COLUMNS, BoolArray, FloatArray, IntArray
from quotaplane.quota.leases import Leases
from quotaplane.quota.report_matching import MatchedReports
from quotaplane.quota.reported_usage import ReportedUsage, columns_of

_MOST: Final = float(np.finfo(np.float64).max)

_STOCK_DELAY_WINDOWS: Final = 4
"""Stock brokers do not report which limit they applied. A new limit counts as on its way for this
many windows: with fewer, limits never settle where messages arrive two intervals late."""

_ENFORCED_AFTER_MS: Final = 1500.0
"""From the begin of the round that issued a limit until the enforcer has brought it into force, if
neither has much to do: it looks for limits each half a second, and Pulsar applies a new rate within
a second."""


def limited_dimensions(entries: pa.Table) -> set[int]:
    """The dimensions beyond the basic ones in which brokers report a limit."""
    return {
        dimension
        for dimension, name in enumerate(LIMIT_COLUMNS)
        if dimension >= BASIC
        and name in entries.column_names
        and np.isfinite(entries[name].to_numpy()).any()
    }


def adopt_limits(matched: MatchedReports, earlier: BoolArray) -> tuple[Leases, BoolArray]:
    """Take over limits of an earlier epoch that brokers report, for leases without a limit.

    No limit is taken over that exceeds the quota of its group, or one above it.

    Args:
        matched: the reports.
        earlier: (m,) the entries whose broker obeys an earlier epoch, if limits may be taken over.

    Returns:
        The leases; (n,) whose limit was taken over.
    """
    leases, entries, lease_index = matched.before.leases, matched.entries, matched.lease_index
    adopted = np.zeros(len(leases), bool)
    if not earlier.any() or not any(name in entries.column_names for name in LIMIT_COLUMNS):
        return leases, adopted
    limits = columns_of(entries, [LIMIT_COLUMNS[d] for d in leases.dimensions], matched.chosen)
    has_limits = ~np.isnan(limits).all(axis=0)
    new = np.flatnonzero(earlier & ~leases.has_limit[lease_index] & has_limits)
    index = lease_index[new]
    reported = np.where(np.isnan(limits), np.inf, limits)[:, new]
    limit = leases.limit.copy()
    # Of several reports of one lease the last assignment stays.
    limit[:, index] = to_single(
        np.minimum(reported, matched.before.groups.least_quota()[:, leases.group[index]])
    )
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


def acknowledged(
    leases: Leases, lease_index: IntArray, reported: ReportedUsage, epoch: int
) -> Leases:
    """The leases, where an acknowledged limit is the only one in force.

    ``lease_index`` (m,): the lease of each entry; ``epoch``: of this control plane.
    """
    ours = reported.applied_epoch == epoch
    acknowledges = ours & (reported.acked_seq >= leases.issued_seq[lease_index])
    settled = np.zeros(len(leases), bool)
    settled[lease_index[acknowledges]] = True
    if not (settled & (leases.max_in_force != leases.limit).any(axis=0)).any():
        return leases
    return replace(leases, max_in_force=np.where(settled, leases.limit, leases.max_in_force))


def may_have_changed(leases: Leases, at: IntArray | slice, reported: ReportedUsage) -> BoolArray:
    """(m,) whether the newest limit may have come into force within the window; ``at``: its lease.

    A broker that reports which limit it applied leaves no doubt.
    """
    began_ms = reported.published_at_ms - reported.window_ms
    limit_unknown = reported.observed | (reported.applied_seq < 0)
    changed: BoolArray = limit_unknown & (leases.issued_at_ms[at] > began_ms - _ENFORCED_AFTER_MS)
    return changed


def lowest_in_window(
    leases: Leases, at: IntArray | slice, reported: ReportedUsage, epoch: int
) -> FloatArray:
    """(d, m) the limit under which each reported usage was measured; ``at``: the lease of each.

    Usage shows something about demand only in comparison with this limit. While a newer limit was
    on its way it is the lower of both, because either may have held the broker back.
    """
    return _in_window(leases, at, reported, epoch, np.minimum)


def highest_in_window(
    leases: Leases, at: IntArray | slice, reported: ReportedUsage, epoch: int
) -> FloatArray:
    """(d, m) the highest limit that may have been in force; ``at``: the lease of each usage."""
    highest = _in_window(leases, at, reported, epoch, np.maximum)
    # A broker that obeys a limit before the last one may have had any of ours, also a higher one.
    earlier = (reported.applied_epoch == epoch) & (reported.applied_seq >= 0)
    earlier &= reported.applied_seq < leases.issued_seq[at]
    return np.where(earlier, np.maximum(highest, _MOST), highest)


def _in_window(
    leases: Leases,
    at: IntArray | slice,
    reported: ReportedUsage,
    epoch: int,
    of_both: Callable[[FloatArray, FloatArray], FloatArray],
) -> FloatArray:
    limit, issued_seq = leases.limit[:, at], leases.issued_seq[at]
    ours = reported.applied_epoch == epoch
    behind = (reported.applied_seq >= 0) & (~ours | (reported.applied_seq < issued_seq))
    # A broker that reports which limit it applied may only have changed it within the window.
    delay_ms = reported.window_ms * np.where(reported.applied_seq < 0, _STOCK_DELAY_WINDOWS, 1)
    on_its_way = ~behind & (leases.issued_at_ms[at] > reported.published_at_ms - delay_ms)
    in_window = limit
    if on_its_way.any():
        either = of_both(limit, leases.previous_limit[:, at])
        in_window = np.where(on_its_way, either, in_window)
    if behind.any():
        in_window = np.where(behind, leases.previous_limit[:, at], in_window)
    if not leases.enforced.all():
        in_window = np.where(leases.enforced[at], in_window, np.inf)
    return in_window
