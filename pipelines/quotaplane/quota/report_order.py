"""The order and the age of a round's reports, and which count: those newer than any used before.

The order depends only on the contents of reports and their positions in the source, not on how they
arrived. So the same reports have the same outcome in any order and in any number of payloads.

Rounds may run late, and clocks differ; neither makes a broker that reports a silent one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quotaplane.model import BoolArray, IntArray
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.observed_pairs import observed_ones


@dataclass(frozen=True)
class ReportOrder:
    """The m reports of a round; arrays have shape (m,)."""

    broker: IntArray
    """Index of the report's broker."""
    order: IntArray
    """Indexes of all reports, sorted by broker, then by the time they were made."""
    rank: IntArray
    """Position of each report in ``order``."""
    counts: BoolArray
    """Limits are decided with the report: it is newer than all that were used before."""
    recorded: BoolArray
    """The report counts, or its usage is recorded all the same: it was not recorded before."""
    duplicate: BoolArray
    """The report repeats another one."""


def order_reports(
    brokers: Brokers, headers: pa.Table, aside: BoolArray, *, latest_start_ms: float
) -> tuple[Brokers, ReportOrder]:
    """Add new brokers, and find the reports that count, and those that are only recorded.

    ``aside`` (m,): the report does not count, but it is recorded if it is new. An older report than
    one that was used is new if ``Brokers.known`` says so; beyond that it looks like one
    that was sent again. ``latest_start_ms``: see ``_newer``.
    """
    brokers, broker = _with_names(brokers, headers["broker"])
    started, sequence, published = (
        headers[name].to_numpy() for name in ("started_at_ms", "sequence", "published_at_ms")
    )
    order = np.lexsort((sequence, started, broker))
    repeats = _repeats(order, broker, started, sequence)
    if repeats.any():
        # Several reports of one broker have the same start and sequence. The order of arrival is
        # not repeatable, so the one that was published first counts.
        _, position = np.unique(headers["position"].to_numpy(), return_inverse=True)
        order = np.lexsort((position, published, sequence, started, broker))
        repeats = _repeats(order, broker, started, sequence)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    newer = _newer(brokers, broker, started, sequence, latest_start_ms)
    within, known = brokers.knows(broker, started, sequence)
    recorded = (newer | (within & ~known)) & ~repeats
    duplicate = ~recorded & (known | repeats)
    return brokers, ReportOrder(broker, order, rank, newer & recorded & ~aside, recorded, duplicate)


def _with_names(brokers: Brokers, column: pa.ChunkedArray) -> tuple[Brokers, IntArray]:
    """Add the new names in the column; return its values as indexes.

    A new broker is stale until its first report counts.
    """
    names = column.to_pylist()
    index = {name: i for i, name in enumerate(brokers.names)}
    # Sorted, because sums run over brokers in this order: arrival must not change their rounding.
    new = sorted(set(names) - index.keys())
    index.update((name, i) for i, name in enumerate(new, start=len(index)))
    if new:
        brokers = brokers.with_names(new)
    return brokers, np.fromiter(map(index.__getitem__, names), np.int64, len(names))


def _repeats(order: IntArray, broker: IntArray, started: IntArray, sequence: IntArray) -> BoolArray:
    """(m,) reports that follow one of the same broker, start and sequence in this order."""
    b, start, seq = broker[order], started[order], sequence[order]
    repeats = np.zeros(len(broker), bool)
    repeats[order[1:]] = (b[1:] == b[:-1]) & (start[1:] == start[:-1]) & (seq[1:] == seq[:-1])
    return repeats


def _newer(
    brokers: Brokers,
    broker: IntArray,
    started: IntArray,
    sequence: IntArray,
    latest_start_ms: float,
) -> BoolArray:
    """(m,) reports newer than all used before.

    The pair (start of the broker, sequence) is compared, so a restarted broker, which counts from 0
    again, is newer. If the start in the state is later than ``latest_start_ms``, it was wrong; any
    report is newer then, because else the broker would be ignored until that time.
    """
    plausible = brokers.started_at_ms <= latest_start_ms
    last_start = np.where(plausible, brokers.started_at_ms, -1)[broker]
    last_seq = np.where(plausible, brokers.sequence, -1)[broker]
    newer: BoolArray
    newer = (started > last_start) | ((started == last_start) & (sequence > last_seq))
    return newer


def note_newest(
    brokers: Brokers,
    reports: ReportOrder,
    headers: pa.Table,
    has_entries: BoolArray,
    now_ms: int,
    interval_ms: float,
) -> Brokers:
    """The brokers, each updated from its newest report that counts.

    ``has_entries`` (m,): the report names at least one group. ``interval_ms``: between two reports.
    """
    order = reports.order[reports.counts[reports.order]]
    broker = reports.broker[order]

    def updated(old: npt.NDArray[Any], new: npt.NDArray[Any]) -> npt.NDArray[Any]:
        array = old.copy()
        # Of several reports of one broker the last assignment stays: the newest.
        array[broker] = new[order]
        return array

    published_at_ms = np.minimum(headers["published_at_ms"].to_numpy(), now_ms)
    started, sequence = (headers[n].to_numpy() for n in ("started_at_ms", "sequence"))
    # The number of a stock report is its publish time. One that is to come must not make its
    # broker's next reports older than it.
    number = np.where(started == 0, np.minimum(sequence, now_ms), sequence)
    # A heartbeat without groups does not show whether its broker names them by id.
    uses_ids = np.where(
        has_entries, headers["uses_ids"].to_numpy(), brokers.uses_ids[reports.broker]
    )
    after = replace(
        brokers,
        started_at_ms=updated(brokers.started_at_ms, started),
        sequence=updated(brokers.sequence, number),
        seen_at_ms=updated(brokers.seen_at_ms, published_at_ms),
        read_at_ms=updated(brokers.read_at_ms, np.full(len(reports.broker), now_ms)),
        stale=updated(brokers.stale, np.zeros(len(reports.broker), bool)),
        uses_ids=updated(brokers.uses_ids, uses_ids),
        reported_at_ms=brokers.reported_at_ms.copy(),
        leaves_out_ms=updated(brokers.leaves_out_ms, _leaves_out_ms(headers, interval_ms)),
    )
    own = reports.counts & ~observed_ones(headers)
    after.reported_at_ms[reports.broker[own]] = now_ms
    known = np.flatnonzero(reports.recorded)
    return after.with_known(brokers, reports.broker[known], started[known], sequence[known])


def _leaves_out_ms(headers: pa.Table, interval_ms: float) -> IntArray:
    """(m,) see ``Brokers.leaves_out_ms``."""
    if "named_every" not in headers.column_names:
        return np.zeros(len(headers), np.int64)
    leaves_out_ms: IntArray = headers["named_every"].to_numpy() * int(interval_ms)
    return leaves_out_ms


def too_old(sender: IntArray, published_at_ms: IntArray, most_ms: float) -> BoolArray:
    """(m,) reports of a round that are too old to decide with; ``sender`` (m,): an index.

    A report is too old if its sender published another one of this round more than
    ``most_ms`` later. Both times are from one clock, so a wrong clock, a slow round and a
    backlog make no difference; and the newest report of a sender always counts.

    >>> too_old(np.array([0, 1, 1, 1]), np.array([-60, 20_001, 10_001, 10_000]), 10_000).tolist()
    [False, False, False, True]
    """
    late: BoolArray = published_at_ms < newest_ms(sender, published_at_ms)[sender] - most_ms
    return late


def on_hold(
    sender: IntArray, published_at_ms: IntArray, known_ms: int, timely_from_ms: float
) -> BoolArray:
    """(m,) reports of senders whose limits ``strict`` can't renew, while it can renew others'.

    ``strict`` issues no limit on a report that was published before ``timely_from_ms``, so its
    sender may soon use nothing. If such reports counted, its share would be kept for it all the
    same, and would be nobody's. While all reports are that old, as in a backlog, others could not
    get the share either, and a sender's own clock looks like a late round. ``known_ms``:
    when the newest report of the rounds before was published.

    >>> on_hold(np.array([0, 0, 1]), np.array([60, 80, 95]), 0, timely_from_ms=90).tolist()
    [True, True, False]
    >>> on_hold(np.array([0, 0, 1]), np.array([60, 80, 85]), 0, timely_from_ms=90).tolist()
    [False, False, False]
    """
    late: BoolArray = newest_ms(sender, published_at_ms)[sender] < timely_from_ms
    if max(known_ms, int(published_at_ms.max(initial=0))) < timely_from_ms:
        late[:] = False
    return late


def newest_ms(sender: IntArray, published_at_ms: IntArray) -> IntArray:
    """(s,) when each of s senders published its newest report, by the index in ``sender`` (m,)."""
    newest = np.full(sender.max(initial=-1) + 1, np.iinfo(np.int64).min)
    np.maximum.at(newest, sender, published_at_ms)
    return newest
