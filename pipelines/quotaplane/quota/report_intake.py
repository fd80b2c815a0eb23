"""Reports in: which of them count, and what they say about each (group, broker).

Duplicates and reordering are harmless here: a broker's report counts once, if it is newer than
the newest one used, and several of one broker in a round are used in the order they were made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import (
    LIMIT_COLUMNS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    BoolArray,
    FloatArray,
    IntArray,
    Round,
)
from quotaplane.quota.config import StepConfig
from quotaplane.quota.dimensions_in_use import with_totals
from quotaplane.quota.groups import Groups
from quotaplane.quota.leases import Leases, fresh_leases
from quotaplane.quota.report_order import ReportOrder, note_newest, order_reports
from quotaplane.quota.shard import Shard
from quotaplane.quota.usage import ReportedUsage, adopt, follow


@dataclass(frozen=True)
class TakenReports:
    """What a round's reports changed."""

    shard: Shard
    """With the brokers and leases that the reports name, and what they say of them."""
    touched: BoolArray
    """(g,) a report that counts names the group."""
    adopted: BoolArray
    """(n,) a limit of an earlier epoch was taken over from its broker's report."""
    returned: BoolArray
    """(n,) named again after nobody did for so long that the lease counted as stale."""
    restarted: BoolArray
    """(b,) the broker began anew and knows none of its limits."""
    recovered: IntArray
    """Indexes of brokers that are new, or were stale and report again."""
    foreign: bool = False
    """Some broker obeys an earlier epoch."""
    used: pa.Table | None = None
    """The entries used, a row each, as they came."""
    unknown: pa.Table | None = None
    """Entries of groups that nobody defined."""
    limited_but_deleted: pa.Table | None = None
    """Those of ``unknown`` that their broker still limits: columns ``group``, ``group_id``, and
    ``code``, the broker's index. A name that has the id of a defined group is never among them:
    receivers may look groups up by id, and would drop the limit of the defined one."""
    reports: int = 0
    """Reports that count."""
    duplicates: int = 0
    """Reports that were used before."""
    outdated: int = 0
    """Reports that are older than one used before."""


def no_reports(shard: Shard) -> TakenReports:
    """Nothing arrived."""
    nowhere: BoolArray = np.zeros(len(shard.leases), bool)
    return TakenReports(
        shard=shard,
        touched=np.zeros(len(shard.groups), bool),
        adopted=nowhere,
        returned=nowhere,
        restarted=np.zeros(len(shard.brokers), bool),
        recovered=np.empty(0, np.int64),
    )


@dataclass(frozen=True)
class _Entries:
    """The m entries of known groups in reports that count, sorted like the leases."""

    chosen: IntArray
    """Their places in the table of entries."""
    report: IntArray
    """The report of each."""
    group: IntArray
    """The group of each, as an index."""


def take_reports(
    shard: Shard,
    headers: pa.Table,
    entries: pa.Table,
    round_: Round,
    config: StepConfig,
    *,
    may_adopt: bool,
) -> TakenReports:
    """Use the reports that count; ``may_adopt``: also limits of an earlier epoch that they tell.

    ``headers`` has a row per report and ``entries`` one per group in a report; ``entries.report``
    is the index of its header. Usage is a rate per second; NaN is "unchanged".
    """
    latest_start_ms = round_.now_ms + config.max_clock_skew_ms
    brokers, ordered = order_reports(shard.brokers, headers, latest_start_ms=latest_start_ms)
    known, unknown, known_by_id = _matched(shard, entries, ordered)
    leases, at = _with_pairs(shard.leases, known.group, ordered.code[known.report], len(brokers))
    said = _said(headers, entries, known, leases, at, round_)
    leases, adopted = _adopted(shard, leases, at, entries, known, said, round_, may_adopt=may_adopt)
    usage, throttled = with_totals(said.usage, said.throttled, leases, at)
    said = replace(said, usage=usage, throttled=throttled)
    seen_before_ms = leases.seen_at_ms
    leases = follow(leases, at, said, epoch=round_.epoch, saturated_from=config.saturated_from)
    touched = np.zeros(len(shard.groups), bool)
    touched[known.group] = True
    heard = np.zeros(len(brokers), bool)
    heard[ordered.code[ordered.counts]] = True
    # A group contained in its broker's latest report was unseen only while the broker was, however
    # old that report is: rounds may run late.
    left_out = seen_before_ms < np.minimum(
        round_.now_ms - config.stale_after_ms, brokers.seen_at_ms[leases.broker]
    )
    out_of_sight = brokers.stale[leases.broker] | left_out
    reporting = np.bincount(entries["report"].to_numpy(), minlength=len(headers)) > 0
    after = note_newest(brokers, ordered, headers, reporting, round_.now_ms)
    limited = np.isfinite(_columns(entries, _told_limits(entries), unknown)).any(axis=0)
    rates = dict(zip((RATE_COLUMNS[d] for d in leases.dimensions), usage, strict=True))
    return TakenReports(
        shard=Shard(shard.groups, after, leases),
        touched=touched,
        adopted=adopted,
        returned=out_of_sight & (leases.seen_at_ms > seen_before_ms),
        restarted=(brokers.started_at_ms >= 0) & (after.started_at_ms != brokers.started_at_ms),
        recovered=np.flatnonzero(heard & brokers.stale),
        foreign=bool(_earlier(said, round_).any()),
        used=_used(entries, headers, known.chosen, shard.groups, known.group, rates),
        unknown=_unknown(entries, headers, unknown),
        limited_but_deleted=_limited_but_deleted(
            entries, unknown[limited & ~known_by_id[unknown]], ordered.code
        ),
        reports=int(ordered.counts.sum()),
        duplicates=int(ordered.duplicate.sum()),
        outdated=int((~ordered.counts & ~ordered.duplicate).sum()),
    )


def _matched(
    shard: Shard, entries: pa.Table, ordered: ReportOrder
) -> tuple[_Entries, IntArray, BoolArray]:
    """The entries of known groups; the places of the others; which ids are of known groups."""
    groups = shard.groups
    report, ids = entries["report"].to_numpy(), entries["group_id"].to_numpy()
    place = np.searchsorted(groups.ids, ids)
    known_by_id: BoolArray = np.zeros(len(ids), bool)
    inside = place < len(groups)
    known_by_id[inside] = groups.ids[place[inside]] == ids[inside]
    known = _of_that_name(known_by_id, entries["group"], groups.names, place)
    counts = ordered.counts[report]
    chosen = np.flatnonzero(counts & known)
    # Sorted like the leases, those of a lease as they were made: all that follows then walks
    # through memory in order.
    by_lease = place[chosen] * len(ordered.code) + ordered.rank[report[chosen]]
    chosen = chosen[np.argsort(by_lease, kind="stable")]
    unknown = np.flatnonzero(counts & ~known)
    unknown = unknown[np.lexsort((ordered.rank[report[unknown]], ids[unknown]))]
    return _Entries(chosen, report[chosen], place[chosen]), unknown, known_by_id


def _said(
    headers: pa.Table,
    entries: pa.Table,
    known: _Entries,
    leases: Leases,
    at: IntArray,
    round_: Round,
) -> ReportedUsage:
    """What the entries say; totals as far as they have them."""
    published_at_ms = np.minimum(headers["published_at_ms"].to_numpy(), round_.now_ms)
    acked_seq = np.full(len(known.chosen), np.nan)
    if "applied_seq" in entries.column_names:
        acked_seq = entries["applied_seq"].to_numpy()[known.chosen]
    applied_seq = headers["applied_seq"].to_numpy()[known.report]
    rates = [RATE_COLUMNS[d] for d in leases.dimensions]
    throttled = [THROTTLED_COLUMNS[d] for d in leases.dimensions]
    return ReportedUsage(
        usage=_columns(entries, rates, known.chosen),
        throttled=_columns(entries, throttled, known.chosen),
        published_at_ms=published_at_ms[known.report],
        window_ms=headers["window_s"].to_numpy()[known.report] * 1000.0,
        applied_epoch=headers["applied_epoch"].to_numpy()[known.report],
        applied_seq=np.where(np.isnan(acked_seq), applied_seq, acked_seq),
        acked_seq=acked_seq,
    )


def _earlier(said: ReportedUsage, round_: Round) -> BoolArray:
    """Which entries are of brokers that obey an earlier epoch."""
    earlier: BoolArray = (said.applied_epoch >= 0) & (said.applied_epoch < round_.epoch)
    return earlier


def _told_limits(entries: pa.Table) -> list[str]:
    return [name for name in LIMIT_COLUMNS if name in entries.column_names]


def _adopted(
    shard: Shard,
    leases: Leases,
    at: IntArray,
    entries: pa.Table,
    known: _Entries,
    said: ReportedUsage,
    round_: Round,
    *,
    may_adopt: bool,
) -> tuple[Leases, BoolArray]:
    """The leases with limits of an earlier epoch that brokers report, and which these are."""
    in_force = None
    if may_adopt and _told_limits(entries):
        columns = [LIMIT_COLUMNS[d] for d in leases.dimensions]
        in_force = _columns(entries, columns, known.chosen)
    return adopt(leases, at, _earlier(said, round_), in_force, shard.groups.quota)


def _columns(entries: pa.Table, names: Sequence[str], chosen: IntArray) -> FloatArray:
    """Shape (names, chosen); NaN where the reports carry no such column."""
    found = np.empty((len(names), len(chosen)))
    for row, name in enumerate(names):
        there = name in entries.column_names
        found[row] = entries[name].to_numpy()[chosen] if there else np.nan
    return found


def _with_pairs(
    rows: Leases, group: IntArray, broker: IntArray, brokers: int
) -> tuple[Leases, IntArray]:
    """Rows that hold every (group, broker) named, and where each of them stands."""
    have, want = rows.group * brokers + rows.broker, group * brokers + broker
    at = np.searchsorted(have, want)
    found = np.zeros(len(want), bool)
    inside = at < len(have)
    found[inside] = have[at[inside]] == want[inside]
    if found.all():
        return rows, at
    new = np.unique(want[~found])
    fresh = fresh_leases(new // brokers, new % brokers, rows.dimensions)
    joined = rows.merged(fresh)
    return joined, np.searchsorted(joined.group * brokers + joined.broker, want)


def _limited_but_deleted(entries: pa.Table, chosen: IntArray, code: IntArray) -> pa.Table:
    table = entries.select(["group", "group_id"]).take(pa.array(chosen))
    return table.append_column("code", pa.array(code[entries["report"].to_numpy()[chosen]]))


def _of_that_name(
    known: BoolArray, said: pa.ChunkedArray, names: pa.StringArray, place: IntArray
) -> BoolArray:
    """Which entries are of the groups at ``place`` in ``names``, of those ``known`` by their ids.

    Names can be made of which the ids are the same (docs/adr/0005). ``said`` is null where a report
    says no more than the id.
    """
    if not known.any():
        return known
    same = pc.equal(said, names.take(pa.array(place, mask=~known)))
    alike: BoolArray = known & same.fill_null(True).to_numpy()
    return alike


def _used(
    entries: pa.Table,
    headers: pa.Table,
    chosen: IntArray,
    groups: Groups,
    place: IntArray,
    rates: Mapping[str, FloatArray],
) -> pa.Table:
    """The chosen entries, of the groups at ``place``; ``rates`` go before what they say."""
    table = _labelled(entries, headers, chosen)
    coded = pa.DictionaryArray.from_arrays(pa.array(place.astype(np.int32)), groups.names)
    return _with_rates(table.append_column("group", coded), entries, chosen, RATE_COLUMNS, rates)


def _unknown(entries: pa.Table, headers: pa.Table, chosen: IntArray) -> pa.Table:
    """The chosen entries, of groups that nobody defined: who named which of them where."""
    table = _labelled(entries, headers, chosen)
    picked = entries.select(["group", "group_id"]).take(pa.array(chosen))
    for name in picked.column_names:
        table = table.append_column(name, picked[name])
    return table


def _labelled(entries: pa.Table, headers: pa.Table, chosen: IntArray) -> pa.Table:
    """What their report's header says of the chosen entries."""
    report = entries["report"].to_numpy()[chosen]
    columns = {
        name: pa.DictionaryArray.from_arrays(
            pa.array(report.astype(np.int32)), headers[name].combine_chunks()
        )
        for name in ("broker", "position")
    }
    columns["published_at_ms"] = pa.array(headers["published_at_ms"].to_numpy()[report])
    return pa.table(columns)


def _with_rates(
    table: pa.Table,
    entries: pa.Table,
    chosen: IntArray,
    names: Sequence[str],
    known: Mapping[str, FloatArray],
) -> pa.Table:
    """With those columns of ``names`` that are ``known``, or that the entries have."""
    for name in names:
        if name in known or name in entries.column_names:
            values = known[name] if name in known else entries[name].to_numpy()[chosen]
            # NaN (unchanged) becomes null
            table = table.append_column(name, pa.array(values, from_pandas=True))
    return table
