"""A batch of reports before any is read: what is refused at sight, and what their heads say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from quotaplane.model import MAX_BROKER_CHARS, BoolArray, IntArray
from quotaplane.settings import Reports
from quotaplane.wire.batch_caps import newest
from quotaplane.wire.reasons import (
    ABSURD,
    EMPTY,
    FUTURE,
    NO_BROKER,
    STALE,
    TOO_LARGE,
    TOO_MANY_REPORTS,
)
from quotaplane.wire.rejected_reports import Letters
from quotaplane.wire.report_heads import Heads, read_heads
from quotaplane.wire.report_own import FAMILY, REPORT_HEAD, started_too_late

MOST_REPORTS: Final = 100_000
"""So many reports of a batch are looked at. Spark hands over 100 at a time."""


_MOST_HEAD: Final = 4 * MAX_BROKER_CHARS + 256
"""So many bytes of a report are looked at for its head, which takes less."""


@dataclass(frozen=True)
class ReportBatch:
    """The reports that are looked at, a row each, in the order in which they arrived.

    ``index`` is where they stand among all that arrived; ``own`` are those in our own format,
    ``complete`` the heartbeats: their heads are all there is of them.
    """

    index: IntArray
    own: BoolArray
    heads: Heads
    complete: BoolArray


def open_batch(
    values: Sequence[bytes | None],
    published_at_ms: IntArray,
    letters: Letters,
    now_ms: int,
    reports: Reports,
) -> ReportBatch:
    """The reports worth reading, with their heads; the others are refused in ``letters``."""
    size = _refuse_unread(values, published_at_ms, letters, now_ms, reports)
    index = np.flatnonzero(letters.usable)
    starts = [(values[i] or b"")[:_MOST_HEAD] for i in index.tolist()]
    own = np.array([start.startswith(FAMILY) for start in starts], bool)
    ours = np.array([start.startswith(REPORT_HEAD) for start in starts], bool)
    heads = read_heads(starts, own)
    heads = heads._replace(plain=heads.plain & (ours | ~own))
    batch = ReportBatch(index, own, heads, heads.plain & (heads.size == size[index]))
    _refuse_by_head(batch, published_at_ms, letters, now_ms, reports)
    return batch


def latest_start_ms(now_ms: int, reports: Reports) -> int:
    """When a broker may have started, at the latest: our clock and its own may differ."""
    return max(now_ms + int(reports.max_clock_skew_s * 1000), 0)


def _refuse_unread(
    values: Sequence[bytes | None],
    published_at_ms: IntArray,
    letters: Letters,
    now_ms: int,
    reports: Reports,
) -> IntArray:
    """The sizes of the reports; what need not be read to see that it can't be used is refused."""
    age_s = (now_ms - published_at_ms.astype(float)) / 1000.0

    def refuse(wrong: BoolArray, reason: str, detail: Callable[[int], str]) -> None:
        letters.refuse(np.flatnonzero(wrong & letters.usable), reason, detail)

    refuse(
        _beyond_the_newest(published_at_ms, MOST_REPORTS),
        TOO_MANY_REPORTS,
        lambda _: f"more than {MOST_REPORTS} reports at once: the newest were read",
    )
    size = np.zeros(len(values), np.int64)
    left = np.flatnonzero(letters.usable)
    size[left] = [len(values[i] or b"") for i in left.tolist()]
    refuse(size == 0, EMPTY, lambda _: "no value")
    refuse(
        size > reports.max_report_bytes,
        TOO_LARGE,
        lambda i: f"{size[i]} bytes; reports.max_report_bytes is {reports.max_report_bytes}",
    )
    refuse(
        -age_s > reports.max_clock_skew_s,
        FUTURE,
        lambda i: (
            f"published {-age_s[i]:g} s in the future; "
            f"reports.max_clock_skew_s is {reports.max_clock_skew_s:g}"
        ),
    )
    refuse(
        age_s > reports.oldest_s,
        STALE,
        lambda i: (
            f"published {age_s[i]:g} s ago; {reports.oldest_s:g} s is the most "
            "(reports.stale_after_intervals x reports.interval_s)"
        ),
    )
    return size


def _beyond_the_newest(times: IntArray, most: int) -> BoolArray:
    """All but the newest so many; of the same time the later ones are newer."""
    if len(times) <= most:
        return np.zeros(len(times), bool)
    oldest_kept = np.partition(times, -most)[-most]
    kept: BoolArray = times > oldest_kept
    alike = np.flatnonzero(times == oldest_kept)
    kept[alike[len(alike) - (most - np.count_nonzero(kept)) :]] = True
    return ~kept


def _refuse_by_head(
    batch: ReportBatch,
    published_at_ms: IntArray,
    letters: Letters,
    now_ms: int,
    reports: Reports,
) -> None:
    heads, index = batch.heads, batch.index
    latest_ms, most = latest_start_ms(now_ms, reports), reports.max_reports_per_broker
    started, sequence = heads.numbers["started_at_ms"], heads.numbers["sequence"]

    def refuse(wrong: BoolArray, reason: str, detail: Callable[[int], str]) -> None:
        which = index[wrong & heads.plain & letters.usable[index]]
        # Few are asked for their detail, so their rows are looked for one by one.
        letters.refuse(which, reason, lambda i: detail(int(np.searchsorted(index, i))))

    if heads.unusable:
        nameless = np.isin(heads.broker, [*heads.unusable])
        refuse(nameless, NO_BROKER, lambda row: heads.unusable[int(heads.broker[row])])
    refuse(heads.absurd, ABSURD, heads.absurdity)
    refuse(
        started > latest_ms,
        FUTURE,
        lambda row: started_too_late(int(started[row]), latest_ms),
    )
    rows = np.flatnonzero(heads.plain & letters.usable[index])
    old = np.zeros(len(index), bool)
    old[rows] = ~newest(
        heads.broker[rows], started[rows], sequence[rows], published_at_ms[index[rows]], most
    )
    refuse(
        old,
        TOO_MANY_REPORTS,
        lambda _: f"not among the newest {most} of its broker (reports.max_reports_per_broker)",
    )
