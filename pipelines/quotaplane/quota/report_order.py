"""Which reports count: brokers by number, their reports in order, and the newest one used.

The order depends on what reports say and on their position in the source, never on how they
arrived: the same reports in any order and in any number of payloads have the same outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quotaplane.model import BoolArray, IntArray
from quotaplane.quota.brokers import Brokers


@dataclass(frozen=True)
class ReportOrder:
    """The m reports of a round.

    ``code`` (m,): the index of each one's broker. ``order`` (m,): all of them by broker, and those
    of one broker as they were made; ``rank`` (m,): the place of each in ``order``. ``counts`` (m,):
    it is newer than all used before; ``duplicate``: it repeats one.
    """

    code: IntArray
    order: IntArray
    rank: IntArray
    counts: BoolArray
    duplicate: BoolArray


def order_reports(
    brokers: Brokers, headers: pa.Table, *, latest_start_ms: float
) -> tuple[Brokers, ReportOrder]:
    """Number the brokers and find the reports that count; ``latest_start_ms``: see ``_newer``."""
    brokers, code = _with_names(brokers, headers["broker"])
    started, sequence, published = (
        headers[name].to_numpy() for name in ("started_at_ms", "sequence", "published_at_ms")
    )
    order = np.lexsort((sequence, started, code))
    repeats = _repeats(order, code, started, sequence)
    if repeats.any():
        # Reports of one broker with one start and sequence: the one published first counts, not
        # the one that arrived first.
        _, place = np.unique(headers["position"].to_numpy(), return_inverse=True)
        order = np.lexsort((place, published, sequence, started, code))
        repeats = _repeats(order, code, started, sequence)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    newer, duplicate = _newer(brokers, code, started, sequence, latest_start_ms)
    return brokers, ReportOrder(code, order, rank, newer & ~repeats, duplicate | (newer & repeats))


def _with_names(brokers: Brokers, column: pa.ChunkedArray) -> tuple[Brokers, IntArray]:
    """Every broker gets an index; a new one counts as stale until its report is used."""
    names = column.to_pylist()
    index = {name: i for i, name in enumerate(brokers.names)}
    new = sorted(set(names) - index.keys())  # not as they came: sums are over brokers in order
    index.update((name, i) for i, name in enumerate(new, start=len(index)))
    if new:
        nothing, yes = np.full(len(new), -1, np.int64), np.ones(len(new), bool)
        brokers = Brokers(
            names=(*brokers.names, *new),
            started_at_ms=np.concatenate([brokers.started_at_ms, nothing]),
            sequence=np.concatenate([brokers.sequence, nothing]),
            seen_at_ms=np.concatenate([brokers.seen_at_ms, nothing]),
            stale=np.concatenate([brokers.stale, yes]),
            uses_ids=np.concatenate([brokers.uses_ids, ~yes]),
        )
    return brokers, np.fromiter(map(index.__getitem__, names), np.int64, len(names))


def _repeats(order: IntArray, code: IntArray, started: IntArray, sequence: IntArray) -> BoolArray:
    """Which reports are, in this order, behind one of the same broker, start and sequence."""
    c, a, q = code[order], started[order], sequence[order]
    repeats = np.zeros(len(code), bool)
    repeats[order[1:]] = (c[1:] == c[:-1]) & (a[1:] == a[:-1]) & (q[1:] == q[:-1])
    return repeats


def _newer(
    brokers: Brokers,
    code: IntArray,
    started: IntArray,
    sequence: IntArray,
    latest_start_ms: float,
) -> tuple[BoolArray, BoolArray]:
    """Which reports are newer than all used before, and which only repeat the newest of them.

    A pair (start of the broker, sequence) is compared, so that a broker that was restarted and
    counts from 0 again is heard at once. A start remembered that is later than ``latest_start_ms``
    can't be true: it must not shut the broker out, so any report is newer than it.
    """
    true = brokers.started_at_ms <= latest_start_ms
    last_start = np.where(true, brokers.started_at_ms, -1)[code]
    last_seq = np.where(true, brokers.sequence, -1)[code]
    newer = (started > last_start) | ((started == last_start) & (sequence > last_seq))
    return newer, (started == last_start) & (sequence == last_seq)


def note_newest(
    brokers: Brokers, reports: ReportOrder, headers: pa.Table, reporting: BoolArray, now_ms: int
) -> Brokers:
    """The brokers with their newest report noted; ``reporting`` are reports that name a group."""
    order = reports.order[reports.counts[reports.order]]  # the last of a broker in this order stays
    c = reports.code[order]

    def put(old: npt.NDArray[Any], new: npt.NDArray[Any]) -> npt.NDArray[Any]:
        array = old.copy()
        array[c] = new[order]
        return array

    return replace(
        brokers,
        started_at_ms=put(brokers.started_at_ms, headers["started_at_ms"].to_numpy()),
        sequence=put(brokers.sequence, headers["sequence"].to_numpy()),
        seen_at_ms=put(
            brokers.seen_at_ms, np.minimum(headers["published_at_ms"].to_numpy(), now_ms)
        ),
        stale=put(brokers.stale, np.zeros(len(reports.code), bool)),
        # A heartbeat without groups doesn't say how its broker would name them.
        uses_ids=put(
            brokers.uses_ids,
            np.where(reporting, headers["uses_ids"].to_numpy(), brokers.uses_ids[reports.code]),
        ),
    )
