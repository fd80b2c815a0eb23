"""Usage as reports say it: columns of entries as arrays, totals, and the newest entries of a lease.

Entries are sorted by lease, and those of one lease by time. NaN is "unchanged", or not reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from quotaplane.arrays import last_positions, last_values, taken
from quotaplane.model import (
    EVENTS,
    PARTS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    BoolArray,
    FloatArray,
    IntArray,
    Round,
)
from quotaplane.quota.config import StepConfig
from quotaplane.quota.leases import Leases
from quotaplane.quota.observed_pairs import observed_ones
from quotaplane.quota.report_matching import MatchedReports

NEWEST: Final = 8
"""Most reports of one lease that a round learns from, the newest: the cost of a backlog is bounded.
The estimate moves by a sixth or more with each report of a broker, so after 8 a quarter is left of
the one before; with short observed windows two thirds. Older reports are in the history, too."""


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

    def newest(self, lease_index: IntArray) -> tuple[ReportedUsage, IntArray]:
        """The ``NEWEST`` entries of each lease, and the lease of each; ``lease_index`` (m,).

        If the first one of a lease that is used says "unchanged", it gets the last value of the
        entries before it, which are not used.
        """
        begin = np.flatnonzero(np.diff(lease_index, prepend=-1))
        count = np.diff(begin, append=len(lease_index))
        if count.max(initial=0) <= NEWEST:
            return self, lease_index
        number = np.arange(len(lease_index)) - np.repeat(
            begin + np.maximum(count - NEWEST, 0), count
        )
        first = np.flatnonzero((number == 0) & np.repeat(count > NEWEST, count))
        last = last_positions(self.usage, lease_index)[:, first]
        usage, throttled = self.usage.copy(), self.throttled.copy()
        usage[:, first] = np.take_along_axis(self.usage, last, axis=1)
        throttled[:, first] = np.take_along_axis(self.throttled, last, axis=1)
        used, filled = number >= 0, replace(self, usage=usage, throttled=throttled)
        return taken(filled, used), lease_index[used]


def read_usage(matched: MatchedReports, round_: Round, config: StepConfig) -> ReportedUsage:
    """The contents of the m entries that count, with totals."""
    headers, entries, chosen = matched.headers, matched.entries, matched.chosen
    leases = matched.before.leases
    report = entries["report"].to_numpy()[chosen]
    published_at_ms = np.minimum(headers["published_at_ms"].to_numpy(), round_.now_ms)
    (acked_seq,) = columns_of(entries, ["applied_seq"], chosen)
    applied_epoch = headers["applied_epoch"].to_numpy()
    applied_seq = headers["applied_seq"].to_numpy()[report]
    usage, throttled = (
        columns_of(entries, [names[d] for d in leases.dimensions], chosen)
        for names in (RATE_COLUMNS, THROTTLED_COLUMNS)
    )
    usage, throttled = with_totals(usage, throttled, leases, matched.lease_index)
    return ReportedUsage(
        usage=usage,
        throttled=throttled,
        event_size=_event_sizes(entries, leases.dimensions, chosen),
        published_at_ms=published_at_ms[report],
        window_ms=headers["window_s"].to_numpy()[report] * 1000.0,
        applied_epoch=config.earlier.own(applied_epoch, round_.epoch)[report],
        applied_seq=np.where(np.isnan(acked_seq), applied_seq, acked_seq),
        acked_seq=acked_seq,
        observed=observed_ones(headers)[report],
    )


def columns_of(entries: pa.Table, names: Sequence[str], chosen: IntArray) -> FloatArray:
    """(names, chosen) values of columns in the chosen rows; NaN where there is no such column."""
    values = np.full((len(names), len(chosen)), np.nan)
    for index, name in enumerate(names):
        if name in entries.column_names:
            values[index] = entries[name].to_numpy()[chosen]
    return values


def _event_sizes(entries: pa.Table, dimensions: Sequence[int], chosen: IntArray) -> FloatArray:
    """(d, m) units that one event carries: 1, or in bytes those of a mean message; NaN: unknown."""
    sizes = np.ones((len(dimensions), len(chosen)))
    for place, dimension in enumerate(dimensions):
        if dimension in EVENTS:
            amounts, events = EVENTS[dimension]
            amount, count = (
                columns_of(entries, [RATE_COLUMNS[d] for d in each], chosen).sum(axis=0)
                for each in (amounts, events)
            )
            unknown = np.full(len(chosen), np.nan)
            sizes[place] = np.divide(amount, count, out=unknown, where=count > 0)
    return sizes


def with_totals(
    usage: FloatArray, throttled: FloatArray, leases: Leases, lease_index: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Usage and throttled (d, m) of m entries, with totals where the reports have none.

    A total is the sum of its parts as soon as one part is reported; a part that is "unchanged"
    counts with its last usage and refusals. What was throttled of a total is known if it is known
    of all parts. NaN: unchanged, or not reported.

    Args:
        usage: as reported.
        throttled: as reported.
        leases: before these reports; their ``dimensions`` are the d.
        lease_index: (m,) each entry's lease, ascending; entries of one lease are sorted by time.
    """
    totals = [
        (index, list(PARTS[dimension]))
        for index, dimension in enumerate(leases.dimensions)
        if dimension in PARTS
    ]
    if not totals:
        return usage, throttled
    usage, throttled = usage.copy(), throttled.copy()
    for index, parts in totals:
        changed, counted = ~np.isnan(usage[parts]), ~np.isnan(throttled[parts])
        used = last_values(usage[parts], leases.usage[parts], lease_index)
        missing = np.isnan(usage[index]) & changed.any(axis=0)
        usage[index] = np.where(missing, used.sum(axis=0), usage[index])
        missing = np.isnan(throttled[index]) & counted.any(axis=0)
        if not missing.any():
            continue
        reported = np.where(changed & ~counted, np.inf, throttled[parts])
        refused = last_values(reported, _refused(leases, parts), lease_index).sum(axis=0)
        throttled[index] = np.where(missing & np.isfinite(refused), refused, throttled[index])
    return usage, throttled


def _refused(leases: Leases, parts: list[int]) -> FloatArray:
    """(k, n) what is refused per second of each of the k ``parts``; inf: not known."""
    usage, demand, distrust = (
        rates[parts] for rates in (leases.usage, leases.estimates.demand, leases.estimates.distrust)
    )
    # Without a claim the demand differs from the last usage by noise only, not by refusals.
    claimed = (distrust % 2 == 1) | np.isinf(demand)
    return np.where(claimed, np.maximum(demand - usage, 0.0), 0.0)
