"""Reports matched with a shard: the reports that count, and the lease of each of their entries.

Duplicates and reordering do no harm. A report counts once, if it is newer than all that were used
of its broker; several reports of one broker in a round are used in the order they were made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrays import find
from quotaplane.model import BoolArray, IntArray, Round
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.config import Events, StepConfig
from quotaplane.quota.leases import Leases, fresh_leases
from quotaplane.quota.report_order import ReportOrder, note_newest, order_reports
from quotaplane.quota.shard import Shard


@dataclass(frozen=True)
class MatchedReports:
    """A round's r reports, and m of their entries: sorted like leases, then by time."""

    before: Shard
    """Before the reports, but with the brokers and leases that are new with them."""
    brokers: Brokers
    """After the reports."""
    headers: pa.Table
    """(r,)"""
    entries: pa.Table
    """The entries of all reports."""
    is_aside: BoolArray
    """(r,) the report is only recorded."""
    ordered: ReportOrder
    chosen: IntArray
    """(m,) the rows of ``entries`` that count."""
    lease_index: IntArray
    """(m,) the lease of each; they ascend."""
    aside: IntArray
    """(a,) the rows that are recorded only."""
    aside_group: IntArray
    """(a,) the index of each one's group."""
    undefined: IntArray
    """(k,) the rows that count, of undefined groups; sorted by group id, then by time."""
    has_defined_id: BoolArray
    """(k,) a defined group has the same id, though another name."""


def match_reports(
    shard: Shard, events: Events, round_: Round, config: StepConfig
) -> MatchedReports | None:
    """Order the reports, and find the groups and leases of their entries; None: there are none."""
    headers, entries, aside = events.headers, events.entries, events.aside
    if headers is None or entries is None or (not len(headers) and aside is None):
        return None
    is_aside: BoolArray = np.zeros(len(headers), bool)
    if aside is not None:
        is_aside = np.arange(len(headers) + len(aside[0])) >= len(headers)
        headers, entries = _joined(headers, entries, *aside)
    has_entries = np.bincount(entries["report"].to_numpy(), minlength=len(headers)) > 0
    brokers, ordered = order_reports(
        shard.brokers, headers, is_aside, latest_start_ms=round_.now_ms + config.max_clock_skew_ms
    )
    after = note_newest(brokers, ordered, headers, has_entries, round_.now_ms, config.round_ms)
    leases = _by_clocks_of_now(shard.leases, brokers, after, config)
    before = Shard(shard.groups, brokers, leases)

    report, ids = entries["report"].to_numpy(), entries["group_id"].to_numpy()
    group = find(shard.groups.ids, ids)
    defined = with_same_name(group, entries["group"], shard.groups.names)
    counts, recorded = ordered.counts[report], (ordered.recorded & ~ordered.counts)[report]
    # Sorted like the leases, then by time: later array operations read memory in order, and the
    # record does not depend on the order in which reports arrived.
    by_lease = group * len(headers) + ordered.rank[report]
    chosen, rest = (
        rows[np.argsort(by_lease[rows], kind="stable")]
        for rows in map(np.flatnonzero, (counts & defined, recorded & defined))
    )
    undefined = np.flatnonzero(counts & ~defined)
    undefined = undefined[np.lexsort((ordered.rank[report[undefined]], ids[undefined]))]
    before, lease_index = _with_leases(before, group[chosen], ordered.broker[report[chosen]])
    return MatchedReports(
        before=before,
        brokers=after,
        headers=headers,
        entries=entries,
        is_aside=is_aside,
        ordered=ordered,
        chosen=chosen,
        lease_index=lease_index,
        aside=rest,
        aside_group=group[rest],
        undefined=undefined,
        has_defined_id=group[undefined] >= 0,
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


def with_same_name(group: IntArray, reported: pa.ChunkedArray, names: pa.StringArray) -> BoolArray:
    """The entries of a defined ``group`` (-1: of none) whose ``reported`` name is its, too.

    Two names may have the same id: such names can be constructed (docs/adr/0005). A name is null
    where the report has only the id.
    """
    id_defined: BoolArray = group >= 0
    if not id_defined.any():
        return id_defined
    equal = pc.equal(reported, names.take(pa.array(group, mask=~id_defined)))
    same: BoolArray = id_defined & equal.fill_null(True).to_numpy()
    return same


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


def _with_leases(shard: Shard, group: IntArray, broker: IntArray) -> tuple[Shard, IntArray]:
    """The shard with leases of any new (group, broker) added, and the lease of each pair (m,)."""
    index = shard.find_leases(group, broker)
    if (index >= 0).all():
        return shard, index
    size = len(shard.brokers)
    new = np.unique((group * size + broker)[index < 0])
    fresh = fresh_leases(new // size, new % size, shard.leases.dimensions)
    shard = replace(shard, leases=shard.leases.merged(fresh))
    return shard, shard.find_leases(group, broker)
