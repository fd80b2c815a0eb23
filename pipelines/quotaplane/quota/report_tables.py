"""Tables of a round's report entries: those used, and those of undefined groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import (
    COUNTER_COLUMNS,
    LIMIT_COLUMNS,
    PARTS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    BoolArray,
    FloatArray,
    IntArray,
)
from quotaplane.quota.config import StepConfig
from quotaplane.quota.report_matching import MatchedReports
from quotaplane.quota.reported_usage import ReportedUsage, columns_of


def recorded_entries(
    matched: MatchedReports, reported: ReportedUsage, config: StepConfig
) -> pa.Table:
    """The entries to record (``used_entries``): those that count, and those set aside.

    ``reported``: the entries that count.
    """
    entries, dimensions = matched.entries, matched.before.leases.dimensions
    totals = summed(entries, matched.aside, dimensions)
    columns = {}
    for names, values in ((RATE_COLUMNS, reported.usage), (THROTTLED_COLUMNS, reported.throttled)):
        for name, counting in zip((names[d] for d in dimensions), values, strict=True):
            others = totals.get(name)
            if others is None:
                (others,) = columns_of(entries, [name], matched.aside)
            columns[name] = np.concatenate([counting, others])
    rows = np.concatenate([matched.chosen, matched.aside])
    group = matched.before.leases.group[matched.lease_index]
    used = used_entries(
        entries,
        matched.headers,
        rows,
        matched.before.groups.names,
        np.concatenate([group, matched.aside_group]),
        columns,
        np.arange(len(rows)) < len(matched.chosen),
    )
    published_at_ms, earlier = matched.headers["published_at_ms"].to_numpy(), config.earlier
    if earlier.recorded_ms > published_at_ms.min(initial=0):
        used = used.filter(pc.greater(used["published_at_ms"], int(earlier.recorded_ms)))
    return used


def used_entries(
    entries: pa.Table,
    headers: pa.Table,
    chosen: IntArray,
    names: pa.StringArray,
    group: IntArray,
    rates: Mapping[str, FloatArray],
    counted: BoolArray,
) -> pa.Table:
    """The chosen entries (m,) with their reports' broker, position, window and broker's start,
    and what was used and refused in all dimensions. ``broker_started_at_ms`` is -1 if the report
    does not say it.

    Args:
        entries: of all reports.
        headers: of all reports.
        chosen: (m,) rows of ``entries``.
        names: of all groups.
        group: (m,) index in ``names`` of each entry's group.
        rates: columns (m,) that replace those of ``entries``.
        counted: (m,) limits are decided with it; the others are only recorded.
    """
    table = _with_report_columns(entries, headers, chosen)
    coded = pa.DictionaryArray.from_arrays(pa.array(group.astype(np.int32)), names)
    table = table.append_column("group", coded)
    window_ms = np.rint(headers["window_s"].to_numpy() * 1000.0).astype(np.int64)
    started_at_ms = headers["started_at_ms"].to_numpy()
    report = entries["report"].to_numpy()[chosen]
    table = table.append_column("window_ms", pa.array(window_ms[report]))
    table = table.append_column("counted", pa.array(counted))
    if "named_every" in headers.column_names:
        named_every = headers["named_every"].to_numpy()[report]
        names_all = named_every == 0
        table = table.append_column("named_every", pa.array(named_every, mask=names_all))
    started_at_ms = np.where(started_at_ms > 0, started_at_ms, -1)[report]
    table = table.append_column("broker_started_at_ms", pa.array(started_at_ms))
    for name in (*RATE_COLUMNS, *THROTTLED_COLUMNS, *COUNTER_COLUMNS):
        if name in rates or name in entries.column_names:
            values = rates[name] if name in rates else entries[name].to_numpy()[chosen]
            # NaN (unchanged) becomes null.
            table = table.append_column(name, pa.array(values, from_pandas=True))
    return table


def summed(entries: pa.Table, chosen: IntArray, dimensions: Sequence[int]) -> dict[str, FloatArray]:
    """Columns (m,) of the totals among ``dimensions``, of entries that limits are not decided with.

    A total that was not reported is the sum of its parts, if these all were; else it is NaN.
    """
    totals = {}
    for place in dimensions:
        for columns in (RATE_COLUMNS, THROTTLED_COLUMNS) if place in PARTS else ():
            names = (columns[place], *(columns[part] for part in PARTS[place]))
            total, *parts = columns_of(entries, names, chosen)
            totals[columns[place]] = np.where(np.isnan(total), sum(parts), total)
    return totals


def undefined_entries(entries: pa.Table, headers: pa.Table, chosen: IntArray) -> pa.Table:
    """The chosen entries (k,), of undefined groups: broker, position, name and id."""
    table = _with_report_columns(entries, headers, chosen)
    picked = entries.select(["group", "group_id"]).take(pa.array(chosen))
    for name in picked.column_names:
        table = table.append_column(name, picked[name])
    return table


def _with_report_columns(entries: pa.Table, headers: pa.Table, chosen: IntArray) -> pa.Table:
    """Columns from the headers of the chosen entries' reports."""
    report = entries["report"].to_numpy()[chosen]
    columns = {
        name: pa.DictionaryArray.from_arrays(
            pa.array(report.astype(np.int32)), headers[name].combine_chunks()
        )
        for name in ("broker", "position")
    }
    columns["published_at_ms"] = pa.array(headers["published_at_ms"].to_numpy()[report])
    return pa.table(columns)


def limited_but_deleted(matched: MatchedReports) -> pa.Table:
    """Those of the undefined entries that have a finite limit at their broker.

    Columns: ``group``, ``group_id`` and ``broker_index``. A name that has the id of a defined group
    is left out: a receiver that looks groups up by id would drop the limit of the defined one.
    """
    entries, undefined = matched.entries, matched.undefined[~matched.has_defined_id]
    limits = columns_of(entries, LIMIT_COLUMNS, undefined)
    chosen = undefined[np.isfinite(limits).any(axis=0)]
    table = entries.select(["group", "group_id"]).take(pa.array(chosen))
    index = matched.ordered.broker[entries["report"].to_numpy()[chosen]]
    return table.append_column("broker_index", pa.array(index))
