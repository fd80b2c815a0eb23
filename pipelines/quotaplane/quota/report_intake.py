"""Report intake: select the reports that count and apply their entries to the leases.

Duplicates and reordering do no harm. A report counts once, if it is newer than all that were used
of its broker; several reports of one broker in a round are used in the order they were made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import (
    EVENTS,
    LIMIT_COLUMNS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    BoolArray,
    FloatArray,
    IntArray,
    Round,
)
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.config import StepConfig
from quotaplane.quota.dimensions_in_use import with_totals
from quotaplane.quota.leases import Leases, fresh_leases
from quotaplane.quota.overuse import Told, told
from quotaplane.quota.report_order import ReportOrder, note_newest, order_reports
from quotaplane.quota.report_tables import (
    limited_but_deleted,
    observed_ones,
    summed,
    undefined_entries,
    used_entries,
)
from quotaplane.quota.shard import Shard
from quotaplane.quota.usage import ReportedUsage, adopt_limits, limit_in_window, update_usage

_MOST: Final = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class TakenReports:
    """The shard after a round's reports, and what these changed."""

    shard: Shard
    """With the brokers and leases that the reports name, updated from them."""
    touched: BoolArray
    """(g,) a report that counts names the group."""
    adopted: BoolArray
    """(n,) a limit of an earlier epoch was taken over from its broker's report."""
    returned: BoolArray
    """(n,) a report names the lease again after none did for so long that it was stale."""
    restarted: BoolArray
    """(b,) the broker was restarted and lost its limits."""
    recovered: IntArray
    """Indexes of brokers that are new, or were stale and report again."""
    told: Told | None = None
    """What the reports say of use, for debts; None: nothing, or limits never exceed quotas."""
    foreign: bool = False
    """Some broker obeys an earlier epoch."""
    used: pa.Table | None = None
    """The entries to record: see ``report_tables.used_entries``."""
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


def no_reports(shard: Shard) -> TakenReports:
    """The result of a round without reports."""
    no_lease: BoolArray = np.zeros(len(shard.leases), bool)
    return TakenReports(
        shard=shard,
        touched=np.zeros(len(shard.groups), bool),
        adopted=no_lease,
        returned=no_lease,
        restarted=np.zeros(len(shard.brokers), bool),
        recovered=np.empty(0, np.int64),
    )


@dataclass(frozen=True)
class _Matched:
    """The entries of reports that count: m of defined groups, sorted like leases, and k others."""

    chosen: IntArray
    """(m,) row in the table of entries."""
    report: IntArray
    """(m,) index of the report."""
    group: IntArray
    """(m,) index of the group."""
    aside: IntArray
    """Rows of the table of entries, of defined groups, that are recorded only."""
    aside_group: IntArray
    """The index of each one's group."""
    undefined: IntArray
    """(k,) row in the table of entries; sorted by group id, then by time."""
    id_defined: BoolArray
    """For each row of the table: a defined group has this id, though perhaps another name."""


def take_reports(
    shard: Shard,
    headers: pa.Table,
    entries: pa.Table,
    aside: tuple[pa.Table, pa.Table] | None,
    round_: Round,
    config: StepConfig,
    *,
    may_adopt: bool,
) -> TakenReports:
    """Use the reports that count, and record them and others.

    ``headers`` has a row per report and ``entries`` one per group in a report; ``entries.report``
    is the index of its header. Usage is a rate per second; NaN is "unchanged". ``aside``: see
    ``Events``. ``may_adopt``: limits of an earlier epoch in these reports may be taken over.
    """
    is_aside: BoolArray = np.zeros(len(headers), bool)
    if aside is not None:
        is_aside = np.arange(len(headers) + len(aside[0])) >= len(headers)
        headers, entries = _joined(headers, entries, *aside)
    latest_start_ms = round_.now_ms + config.max_clock_skew_ms
    brokers, ordered = order_reports(
        shard.brokers, headers, is_aside, latest_start_ms=latest_start_ms
    )
    matched = _match(shard, entries, ordered)
    broker = ordered.broker[matched.report]
    leases, lease_index = _with_leases(shard.leases, matched.group, broker, len(brokers))
    reported = _reported_usage(headers, entries, matched, leases, round_)
    earlier = (reported.applied_epoch >= 0) & (reported.applied_epoch < round_.epoch)
    limits = _reported_limits(entries, matched, leases) if may_adopt else None
    leases, adopted = adopt_limits(leases, lease_index, earlier, limits, shard.groups)
    usage, throttled = with_totals(reported.usage, reported.throttled, leases, lease_index)
    reported = replace(reported, usage=usage, throttled=throttled)
    has_entries = np.bincount(entries["report"].to_numpy(), minlength=len(headers)) > 0
    after = note_newest(brokers, ordered, headers, has_entries, round_.now_ms)
    leases = _by_clocks_of_now(leases, brokers, after, config)
    seen_before_ms = leases.seen_at_ms
    leases = update_usage(
        leases,
        lease_index,
        reported,
        shard.groups,
        epoch=round_.epoch,
        saturated_from=config.saturated_from,
    )
    touched = np.zeros(len(shard.groups), bool)
    touched[matched.group] = True
    reporting = np.zeros(len(brokers), bool)
    reporting[ordered.broker[ordered.counts]] = True
    rates = dict(zip((RATE_COLUMNS[d] for d in leases.dimensions), usage, strict=True))
    refused = (THROTTLED_COLUMNS[d] for d in leases.dimensions)
    rates.update(zip(refused, throttled, strict=True))
    return TakenReports(
        shard=Shard(shard.groups, after, leases),
        touched=touched,
        adopted=adopted,
        returned=_returned(
            Shard(shard.groups, brokers, replace(leases, seen_at_ms=seen_before_ms)),
            leases.seen_at_ms,
            round_,
            config,
        ),
        restarted=(brokers.started_at_ms >= 0) & (after.started_at_ms != brokers.started_at_ms),
        recovered=np.flatnonzero(reporting & brokers.stale),
        told=(
            _told(seen_before_ms, leases, lease_index, reported, round_.epoch)
            if config.over
            else None
        ),
        foreign=bool(earlier.any()),
        used=_recorded(shard, headers, entries, matched, rates, leases.dimensions, config),
        unknown=undefined_entries(entries, headers, matched.undefined),
        limited_but_deleted=limited_but_deleted(
            entries, matched.undefined[~matched.id_defined[matched.undefined]], ordered.broker
        ),
        reports=int(ordered.counts.sum()),
        entries=len(matched.chosen),
        duplicates=int((ordered.duplicate & ~is_aside).sum()),
        outdated=int((~ordered.counts & ~ordered.duplicate & ~is_aside).sum()),
    )


def _joined(
    headers: pa.Table, entries: pa.Table, more_headers: pa.Table, more_entries: pa.Table
) -> tuple[pa.Table, pa.Table]:
    """The reports, and then more of them."""
    report = more_entries["report"].to_numpy() + np.int32(len(headers))
    moved = more_entries.set_column(0, entries.schema.field("report"), pa.array(report))
    return (
        pa.concat_tables([headers, more_headers]).combine_chunks(),
        pa.concat_tables([entries, moved]).combine_chunks(),
    )


def _recorded(
    shard: Shard,
    headers: pa.Table,
    entries: pa.Table,
    matched: _Matched,
    rates: Mapping[str, FloatArray],
    dimensions: Sequence[int],
    config: StepConfig,
) -> pa.Table:
    """``TakenReports.used``; ``rates`` are those of the entries that count."""
    rows = np.concatenate([matched.chosen, matched.aside])
    totals = summed(entries, matched.aside, dimensions)
    columns = {
        name: np.concatenate([values, totals.get(name, _column(entries, name, matched.aside))])
        for name, values in rates.items()
    }
    group = np.concatenate([matched.group, matched.aside_group])
    counted = np.arange(len(rows)) < len(matched.chosen)
    names = shard.groups.names
    used = used_entries(entries, headers, rows, names, group, columns, counted)
    if config.earlier.recorded_ms > headers["published_at_ms"].to_numpy().min(initial=0):
        new = pc.greater(used["published_at_ms"], int(config.earlier.recorded_ms))
        used = used.filter(new)
    return used


def _told(
    seen_before_ms: IntArray,
    leases: Leases,
    lease_index: IntArray,
    reported: ReportedUsage,
    epoch: int,
) -> Told:
    """See ``overuse.told``."""
    bound = limit_in_window(leases, lease_index, reported, epoch, while_changing=np.maximum)
    # A broker that obeys a limit before the last one may have had any of ours, also a higher one.
    earlier = (reported.applied_epoch == epoch) & (reported.applied_seq >= 0)
    earlier &= reported.applied_seq < leases.issued_seq[lease_index]
    bound = np.where(earlier, np.maximum(bound, _MOST), bound)
    return told(seen_before_ms, leases, lease_index, reported.usage, bound, reported.window_ms)


def _match(shard: Shard, entries: pa.Table, ordered: ReportOrder) -> _Matched:
    """Look up the groups of all entries, and sort the entries of reports that count."""
    groups = shard.groups
    report, ids = entries["report"].to_numpy(), entries["group_id"].to_numpy()
    group = np.searchsorted(groups.ids, ids)
    id_defined: BoolArray = np.zeros(len(ids), bool)
    inside = group < len(groups)
    id_defined[inside] = groups.ids[group[inside]] == ids[inside]
    defined = _with_same_name(id_defined, entries["group"], groups.names, group)
    counts, aside = ordered.counts[report], (ordered.recorded & ~ordered.counts)[report]
    # Sorted like the leases, then by time: later array operations read memory in order, and the
    # record does not depend on the order in which reports arrived.
    by_lease = group * len(ordered.broker) + ordered.rank[report]
    chosen, aside = (
        which[np.argsort(by_lease[which], kind="stable")]
        for which in map(np.flatnonzero, (counts & defined, aside & defined))
    )
    undefined = np.flatnonzero(counts & ~defined)
    undefined = undefined[np.lexsort((ordered.rank[report[undefined]], ids[undefined]))]
    return _Matched(
        chosen, report[chosen], group[chosen], aside, group[aside], undefined, id_defined
    )


def _with_same_name(
    id_defined: BoolArray, reported: pa.ChunkedArray, names: pa.StringArray, group: IntArray
) -> BoolArray:
    """The entries of ``id_defined`` whose ``reported`` name is that of their ``group``, too.

    Two names may have the same id: such names can be constructed (docs/adr/0005). A name is null
    where the report has only the id.
    """
    if not id_defined.any():
        return id_defined
    equal = pc.equal(reported, names.take(pa.array(group, mask=~id_defined)))
    same: BoolArray = id_defined & equal.fill_null(True).to_numpy()
    return same


def _with_leases(
    leases: Leases, group: IntArray, broker: IntArray, brokers: int
) -> tuple[Leases, IntArray]:
    """The leases with any new (group, broker) added, and the index of each pair among them."""
    existing, wanted = leases.group * brokers + leases.broker, group * brokers + broker
    index = np.searchsorted(existing, wanted)
    found = np.zeros(len(wanted), bool)
    inside = index < len(existing)
    found[inside] = existing[index[inside]] == wanted[inside]
    if found.all():
        return leases, index
    new = np.unique(wanted[~found])
    fresh = fresh_leases(new // brokers, new % brokers, leases.dimensions)
    merged = leases.merged(fresh)
    return merged, np.searchsorted(merged.group * brokers + merged.broker, wanted)


def _by_clocks_of_now(
    leases: Leases, before: Brokers, after: Brokers, config: StepConfig
) -> Leases:
    """The leases, where a broker's clock was set forward with their times set forward alike.

    Otherwise all groups that its report does not name would seem unnamed for so much longer. The
    clock went on by more than the time between the rounds that read the two reports; by up to a
    third of the time of expiry more it may do so because reports take different times to be read.
    """
    set_by_ms = (after.seen_at_ms - before.seen_at_ms) - (after.read_at_ms - before.read_at_ms)
    was_set = (before.read_at_ms >= 0) & (set_by_ms > config.expire_after_ms / 3)
    if not was_set.any():
        return leases
    set_by_ms = np.where(was_set, set_by_ms, 0)[leases.broker]
    known = leases.seen_at_ms >= 0
    return replace(leases, seen_at_ms=leases.seen_at_ms + np.where(known, set_by_ms, 0))


def _reported_usage(
    headers: pa.Table, entries: pa.Table, matched: _Matched, leases: Leases, round_: Round
) -> ReportedUsage:
    """The contents of the matched entries; totals only where the reports have them."""
    published_at_ms = np.minimum(headers["published_at_ms"].to_numpy(), round_.now_ms)
    acked_seq = np.full(len(matched.chosen), np.nan)
    if "applied_seq" in entries.column_names:
        acked_seq = entries["applied_seq"].to_numpy()[matched.chosen]
    applied_seq = headers["applied_seq"].to_numpy()[matched.report]
    rates = [RATE_COLUMNS[d] for d in leases.dimensions]
    throttled = [THROTTLED_COLUMNS[d] for d in leases.dimensions]
    return ReportedUsage(
        usage=_columns(entries, rates, matched.chosen),
        throttled=_columns(entries, throttled, matched.chosen),
        event_size=_event_sizes(entries, leases.dimensions, matched.chosen),
        published_at_ms=published_at_ms[matched.report],
        window_ms=headers["window_s"].to_numpy()[matched.report] * 1000.0,
        applied_epoch=headers["applied_epoch"].to_numpy()[matched.report],
        applied_seq=np.where(np.isnan(acked_seq), applied_seq, acked_seq),
        acked_seq=acked_seq,
        observed=observed_ones(headers)[matched.report],
    )


def _event_sizes(entries: pa.Table, dimensions: tuple[int, ...], chosen: IntArray) -> FloatArray:
    """(d, m) units that one event carries: 1, or in bytes those of a mean message; NaN: unknown."""
    sizes = np.ones((len(dimensions), len(chosen)))
    for place, dimension in enumerate(dimensions):
        if dimension in EVENTS:
            amounts, events = EVENTS[dimension]
            amount = _columns(entries, [RATE_COLUMNS[d] for d in amounts], chosen).sum(axis=0)
            count = _columns(entries, [RATE_COLUMNS[d] for d in events], chosen).sum(axis=0)
            unknown = np.full(len(chosen), np.nan)
            sizes[place] = np.divide(amount, count, out=unknown, where=count > 0)
    return sizes


def _reported_limits(entries: pa.Table, matched: _Matched, leases: Leases) -> FloatArray | None:
    """(d, m) limits in force at brokers, NaN = not reported; None: no report has any."""
    if not any(name in entries.column_names for name in LIMIT_COLUMNS):
        return None
    return _columns(entries, [LIMIT_COLUMNS[d] for d in leases.dimensions], matched.chosen)


def _columns(entries: pa.Table, names: Sequence[str], chosen: IntArray) -> FloatArray:
    """(names, chosen) the chosen values of columns; NaN where there is no such column."""
    values = np.empty((len(names), len(chosen)))
    for index, name in enumerate(names):
        values[index] = _column(entries, name, chosen)
    return values


def _column(entries: pa.Table, name: str, chosen: IntArray) -> FloatArray:
    """(chosen,) values of a column; NaN where there is no such column."""
    if name not in entries.column_names:
        return np.full(len(chosen), np.nan)
    values: FloatArray = entries[name].to_numpy()[chosen]
    return values


def _returned(before: Shard, seen_at_ms: IntArray, round_: Round, config: StepConfig) -> BoolArray:
    """(n,) leases that are named again after they were stale.

    ``before``: the shard as it was before this round's reports. ``seen_at_ms`` (n,): after them.
    """
    broker, seen_before_ms = before.leases.broker, before.leases.seen_at_ms
    # A group that is in its broker's latest report was unseen only while the broker was, however
    # old that report is: rounds may run late.
    left_out = seen_before_ms < before.brokers.seen_at_ms[broker]
    left_out &= before.silent_ms(round_.now_ms)[1] > config.stale_after_ms
    returned: BoolArray = (before.brokers.stale[broker] | left_out) & (seen_at_ms > seen_before_ms)
    return returned
