"""Changes by reports: usage, demand, acknowledged and adopted limits, and the rows to record."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from quotaplane.model import BoolArray, IntArray, Round, Transition
from quotaplane.quota.config import StepConfig
from quotaplane.quota.estimate.estimate import Known, Surroundings, estimate
from quotaplane.quota.estimate.window import Measurements
from quotaplane.quota.headroom import BLIND_PROBE
from quotaplane.quota.overuse import ReportedUse, reported_use
from quotaplane.quota.report_matching import MatchedReports
from quotaplane.quota.report_tables import limited_but_deleted, recorded_entries, undefined_entries
from quotaplane.quota.reported_limits import (
    acknowledged,
    adopt_limits,
    highest_in_window,
    lowest_in_window,
    may_have_changed,
)
from quotaplane.quota.reported_usage import read_usage
from quotaplane.quota.shard import Shard


@dataclass(frozen=True)
class ReportChanges:
    """The shard after a round's reports, and what these changed."""

    shard: Shard
    """With the brokers and leases that the reports name, updated from them."""
    touched: BoolArray
    """(g,) a report that counts names the group, or a lease of it has ``returned``."""
    adopted: BoolArray
    """(n,) a limit of an earlier epoch was taken over from its broker's report."""
    returned: BoolArray
    """(n,) a report names the lease again (see ``Shard.confirmed_at_ms``) after none did for so
    long that it was stale."""
    restarted: BoolArray
    """(b,) the broker was restarted and lost its limits."""
    recovered: IntArray
    """Indexes of brokers that are new, or were stale and report again."""
    use: ReportedUse | None = None
    """Use within limits, for debts; None: no reports, or limits never exceed quotas."""
    foreign: bool = False
    """Some broker obeys an earlier epoch."""
    used: pa.Table | None = None
    """The entries to record: see ``report_tables.recorded_entries``."""
    unknown: pa.Table | None = None
    """Entries of undefined groups: see ``report_tables.undefined_entries``."""
    limited_but_deleted: pa.Table | None = None
    """Those of ``unknown`` that their broker still limits: see ``report_tables``."""
    reports: int = 0
    """Reports that count."""
    entries: int = 0
    """Their entries of defined groups."""
    duplicates: int = 0
    """Reports that repeat one; like ``outdated`` without those set aside."""
    outdated: int = 0
    """Reports that are older than one used before."""


def no_reports(shard: Shard) -> ReportChanges:
    """The changes of a round without reports: none."""
    no_lease: BoolArray = np.zeros(len(shard.leases), bool)
    return ReportChanges(
        shard=shard,
        touched=np.zeros(len(shard.groups), bool),
        adopted=no_lease,
        returned=no_lease,
        restarted=np.zeros(len(shard.brokers), bool),
        recovered=np.empty(0, np.int64),
    )


def apply_reports(
    matched: MatchedReports,
    round_: Round,
    config: StepConfig,
    *,
    may_adopt: bool,
    last_round_ms: int,
) -> ReportChanges:
    """Update the leases from reports: usage, the demand estimate, and limits.

    ``last_round_ms``: the time of the round before.
    ``may_adopt``: limits of an earlier epoch in these reports may be taken over.
    """
    before, ordered, lease_index = matched.before, matched.ordered, matched.lease_index
    touched = np.zeros(len(before.groups), bool)
    touched[before.leases.group[lease_index]] = True
    reporting = np.zeros(len(before.brokers), bool)
    reporting[ordered.broker[ordered.counts]] = True
    started_at_ms = before.brokers.started_at_ms

    reported = read_usage(matched, round_, config)
    newest, newest_index = reported.newest(lease_index)
    seen_at_ms = before.leases.seen_at_ms.copy()
    # Of several reports of one lease the last assignment stays: the newest.
    seen_at_ms[lease_index] = reported.published_at_ms
    seen = Shard(before.groups, matched.brokers, replace(before.leases, seen_at_ms=seen_at_ms))
    returned = _returned(before, seen, round_, last_round_ms, config)
    touched[before.leases.group[returned]] = True

    earlier = (reported.applied_epoch >= 0) & (reported.applied_epoch < round_.epoch)
    leases, adopted = adopt_limits(matched, earlier & may_adopt)
    one_each = np.array_equal(newest_index, np.arange(len(leases)))
    at: IntArray | slice = slice(None) if one_each else newest_index  # a slice makes no copies
    measured = Measurements(
        usage=newest.usage,
        throttled=newest.throttled,
        event_size=newest.event_size,
        window_ms=newest.window_ms,
        observed=newest.observed,
        limit=lowest_in_window(leases, at, newest, round_.epoch),
        newest_limit=leases.limit[:, at],
        may_have_changed=may_have_changed(leases, at, newest),
    )
    highest = (
        highest_in_window(leases, lease_index, reported, round_.epoch) if config.over else None
    )
    settled = acknowledged(leases, newest_index, newest, round_.epoch)

    even = np.stack([before.equal_shares(place) for place in range(len(leases.dimensions))])
    known = estimate(
        Known(leases.usage, leases.estimates, leases.reports_refused),
        newest_index,
        measured,
        # A limit is small up to twice what an idle broker has.
        Surroundings(leases.dimensions, leases.group, 2.0 * BLIND_PROBE * even),
    )
    leases = replace(settled, seen_at_ms=seen_at_ms, **known._asdict())
    use = None
    if highest is not None:
        confirmed_at_ms = before.confirmed_at_ms(), seen.confirmed_at_ms()
        use = reported_use(leases, lease_index, reported, highest, confirmed_at_ms)
    after = Shard(before.groups, matched.brokers, leases)
    if adopted.any():
        # The earlier control plane may have enforced limits that are only computed now.
        unchanged = after.enforced() | ~adopted
        after = replace(after, leases=replace(leases, enforced=leases.enforced & unchanged))
    duplicate, outdated = ordered.duplicate, ~ordered.counts & ~ordered.duplicate
    return ReportChanges(
        shard=after,
        touched=touched,
        adopted=adopted,
        returned=returned,
        restarted=(started_at_ms >= 0) & (matched.brokers.started_at_ms != started_at_ms),
        recovered=np.flatnonzero(reporting & before.brokers.stale),
        use=use,
        foreign=bool(earlier.any()),
        used=recorded_entries(matched, reported, config),
        unknown=undefined_entries(matched.entries, matched.headers, matched.undefined),
        limited_but_deleted=limited_but_deleted(matched),
        reports=int(ordered.counts.sum()),
        entries=len(matched.chosen),
        duplicates=int((duplicate & ~matched.is_aside).sum()),
        outdated=int((outdated & ~matched.is_aside).sum()),
    )


def _returned(
    before: Shard, after: Shard, round_: Round, last_round_ms: int, config: StepConfig
) -> BoolArray:
    """(n,) leases that are named again after they were stale.

    ``before`` and ``after``: the shard before and after it was seen in this round's reports.
    """
    broker, seen_before_ms = before.leases.broker, before.confirmed_at_ms()
    # A group that is in its broker's latest report was unseen only while the broker was, however
    # old that report is: rounds may run late.
    left_out = seen_before_ms < before.brokers.seen_at_ms[broker]
    left_out &= before.silent_ms(round_.now_ms)[1] > config.stale_after_ms
    returned: BoolArray = before.brokers.stale[broker] | left_out
    if config.transition is Transition.STRICT:
        # The last round renewed nothing on so old reports, as the first one after a restart may be.
        missed = before.brokers.seen_at_ms < last_round_ms - config.stale_after_ms
        returned |= missed[broker]
    return returned & (after.confirmed_at_ms() > seen_before_ms)
