"""Reports in: which of them count, and what they say about each (group, broker).

Duplicates and reordering are harmless here: a broker's report counts once, if it is newer than
the newest one used, and several of one broker in a round are used in the order they were made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
)
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.dimensions_in_use import with_totals
from quotaplane.quota.groups import Groups
from quotaplane.quota.leases import Leases, fresh_rows
from quotaplane.quota.report_order import note_newest, order_reports
from quotaplane.quota.usage import ReportedUsage, adopt, follow


@dataclass(frozen=True)
class TakenReports:
    """What a round's reports changed.

    ``touched`` has shape (groups,): named by a report that counted. ``adopted`` has shape (rows,):
    limits of an earlier epoch that a broker reported to have; ``foreign``: some broker has such,
    whether it reported them or not. ``back`` are the indexes of brokers that are new, or were stale
    and report again; ``returned``, (rows,): named again after such a time, also of brokers that had
    left only the group out. ``restarted`` has shape (brokers,): those
    that began anew and know of no limits. ``used`` and ``unknown`` are entries (a
    row each, as they came): of known groups, and of groups that nobody defined. ``astray`` are
    those of the latter under a limit, as ``group``, ``group_id`` and ``code``, the broker's index:
    it missed that the group was deleted. A name that has the id of a defined group is never astray:
    receivers may look groups up by id, and would drop the limit of the defined one.
    """

    brokers: Brokers
    rows: Leases
    touched: BoolArray
    adopted: BoolArray
    foreign: bool
    back: IntArray
    returned: BoolArray
    restarted: BoolArray
    used: pa.Table
    unknown: pa.Table
    astray: pa.Table
    reports: int
    duplicates: int
    outdated: int


def take_in(
    groups: Groups,
    brokers: Brokers,
    rows: Leases,
    headers: pa.Table,
    entries: pa.Table,
    *,
    now_ms: int,
    epoch: int,
    saturated_from: float,
    stale_after_ms: float,
    latest_start_ms: float,
    may_adopt: bool,
) -> TakenReports:
    """Use the reports that count; ``may_adopt``: also limits of an earlier epoch that they tell.

    ``headers`` has a row per report and ``entries`` one per group in a report; ``entries.report``
    is the index of its header. Usage is a rate per second; NaN is "unchanged". ``groups`` and
    ``rows`` have the same dimensions. ``latest_start_ms``: no broker started later than this.
    """
    brokers, ordered = order_reports(brokers, headers, latest_start_ms=latest_start_ms)
    code, counts = ordered.code, ordered.counts
    published = np.minimum(headers["published_at_ms"].to_numpy(), now_ms)

    report = entries["report"].to_numpy()
    ids = entries["group_id"].to_numpy()
    place = np.searchsorted(groups.ids, ids)
    known: BoolArray = np.zeros(len(ids), bool)
    inside = place < len(groups)
    known[inside] = groups.ids[place[inside]] == ids[inside]
    known_by_id = known
    known = _of_that_name(known, entries["group"], groups.names, place)
    entry = np.flatnonzero(counts[report] & known)
    # Sorted like the rows, those of a row as they were made: all that follows then walks through
    # memory in order.
    by_row = place[entry] * len(headers) + ordered.rank[report[entry]]
    entry = entry[np.argsort(by_row, kind="stable")]
    unknown = np.flatnonzero(counts[report] & ~known)
    unknown = unknown[np.lexsort((ordered.rank[report[unknown]], ids[unknown]))]
    report, place = report[entry], place[entry]

    rows, at = _with_pairs(rows, place, code[report], len(brokers))
    acked = np.full(len(entry), np.nan)
    if "applied_seq" in entries.column_names:
        acked = entries["applied_seq"].to_numpy()[entry]
    applied_seq = headers["applied_seq"].to_numpy()[report]
    applied_seq = np.where(np.isnan(acked), applied_seq, acked)
    applied_epoch = headers["applied_epoch"].to_numpy()[report]
    earlier = (applied_epoch >= 0) & (applied_epoch < epoch)
    told = [name for name in LIMIT_COLUMNS if name in entries.column_names]
    limited = np.isfinite(_columns(entries, told, unknown)).any(axis=0)
    rates, throttled, limits = (
        [columns[dimension] for dimension in rows.dimensions]
        for columns in (RATE_COLUMNS, THROTTLED_COLUMNS, LIMIT_COLUMNS)
    )
    in_force = _columns(entries, limits, entry) if told and may_adopt else None
    rows, adopted = adopt(rows, at, earlier, in_force, groups.quota)
    usage, refused = with_totals(
        _columns(entries, rates, entry),
        _columns(entries, throttled, entry),
        rows,
        at,
    )
    seen_before_ms = rows.seen_at_ms
    rows = follow(
        rows,
        at,
        ReportedUsage(
            usage=usage,
            throttled=refused,
            published_at_ms=published[report],
            window_ms=headers["window_s"].to_numpy()[report] * 1000.0,
            applied_epoch=applied_epoch,
            applied_seq=applied_seq,
            acked_seq=acked,
        ),
        epoch=epoch,
        saturated_from=saturated_from,
    )
    touched = np.zeros(len(groups), bool)
    touched[place] = True
    fresh = np.zeros(len(brokers), bool)
    fresh[code[counts]] = True
    back = np.flatnonzero(fresh & brokers.stale)
    # A group that was in its broker's last report was out of sight in no round but with its broker,
    # however long ago that report is: rounds may have been late.
    left_out = seen_before_ms < np.minimum(now_ms - stale_after_ms, brokers.seen_at_ms[rows.broker])
    out_of_sight = brokers.stale[rows.broker] | left_out
    reporting = np.bincount(entries["report"].to_numpy(), minlength=len(headers)) > 0
    after = note_newest(brokers, ordered, headers, reporting, now_ms)
    return TakenReports(
        brokers=after,
        rows=rows,
        touched=touched,
        adopted=adopted,
        foreign=bool(earlier.any()),
        back=back,
        returned=out_of_sight & (rows.seen_at_ms > seen_before_ms),
        restarted=(brokers.started_at_ms >= 0) & (after.started_at_ms != brokers.started_at_ms),
        used=_used(entries, headers, entry, groups, place, dict(zip(rates, usage, strict=True))),
        unknown=_unknown(entries, headers, unknown),
        astray=_astray(entries, unknown[limited & ~known_by_id[unknown]], code),
        reports=int(counts.sum()),
        duplicates=int(ordered.duplicate.sum()),
        outdated=int((~counts & ~ordered.duplicate).sum()),
    )


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
    fresh = fresh_rows(new // brokers, new % brokers, rows.dimensions)
    joined = rows.merged(fresh)
    return joined, np.searchsorted(joined.group * brokers + joined.broker, want)


def _astray(entries: pa.Table, chosen: IntArray, code: IntArray) -> pa.Table:
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
