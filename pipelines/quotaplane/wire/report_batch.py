"""A batch of reports before decoding: refuses what needs no decoding, and reads the heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from quotaplane.model import MAX_BROKER_CHARS, BoolArray, IntArray
from quotaplane.settings import Reports
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
from quotaplane.wire.sender_rules import ANY_SENDER, SenderRules

MOST_REPORTS: Final = 100_000
"""Most reports of a batch that are read. Spark passes 100 at a time."""


_MOST_HEAD: Final = 4 * MAX_BROKER_CHARS + 256
"""Bytes of a report that may contain its head; heads are shorter."""


@dataclass(frozen=True)
class ReportBatch:
    """The reports to read, one row each, in their order of arrival."""

    index: IntArray
    """Index of the report among all that arrived."""
    own: BoolArray
    """The report is in our own format."""
    heads: Heads
    complete: BoolArray
    """The report is a heartbeat: it consists of a head only."""


def open_batch(
    values: Sequence[bytes | None],
    published_at_ms: IntArray,
    letters: Letters,
    now_ms: int,
    reports: Reports,
    senders: SenderRules = ANY_SENDER,
    oldest_s: float = math.inf,
) -> ReportBatch:
    """The reports worth decoding, with their heads; the others are refused in ``letters``."""
    size = _refuse_unread(values, published_at_ms, letters, now_ms, reports, oldest_s)
    index = np.flatnonzero(letters.usable)
    starts = [(values[i] or b"")[:_MOST_HEAD] for i in index.tolist()]
    own = np.array([start.startswith(FAMILY) for start in starts], bool)
    ours = np.array([start.startswith(REPORT_HEAD) for start in starts], bool)
    heads = read_heads(starts, own)
    heads = heads._replace(canonical=heads.canonical & (ours | ~own))
    batch = ReportBatch(index, own, heads, heads.canonical & (heads.size == size[index]))
    _refuse_by_head(batch, letters, now_ms, reports, senders)
    return batch


def latest_start_ms(now_ms: int, reports: Reports) -> int:
    """Latest plausible start time of a broker: its clock may be ahead of ours."""
    return max(now_ms + int(reports.max_clock_skew_s * 1000), 0)


def _refuse_unread(
    values: Sequence[bytes | None],
    published_at_ms: IntArray,
    letters: Letters,
    now_ms: int,
    reports: Reports,
    oldest_s: float,
) -> IntArray:
    """The sizes of the reports; refuses those that can be judged without decoding."""
    age_s = (now_ms - published_at_ms.astype(float)) / 1000.0

    def refuse(wrong: BoolArray, reason: str, detail: Callable[[int], str]) -> None:
        letters.refuse(np.flatnonzero(wrong & letters.usable), reason, detail)

    refuse(
        _beyond_the_newest(published_at_ms, MOST_REPORTS),
        TOO_MANY_REPORTS,
        lambda _: f"more than {MOST_REPORTS} reports at once: only the newest were read",
    )
    size = np.zeros(len(values), np.int64)
    remaining = np.flatnonzero(letters.usable)
    size[remaining] = [len(values[i] or b"") for i in remaining.tolist()]
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
        age_s > oldest_s,
        STALE,
        lambda i: f"published {age_s[i]:g} s ago; {oldest_s:g} s is the most (limits.lease_s)",
    )
    return size


def _beyond_the_newest(times: IntArray, most: int) -> BoolArray:
    """All but the newest ``most``; of equal times, later elements are newer."""
    if len(times) <= most:
        return np.zeros(len(times), bool)
    oldest_kept = np.partition(times, -most)[-most]
    is_newest: BoolArray = times > oldest_kept
    alike = np.flatnonzero(times == oldest_kept)
    is_newest[alike[len(alike) - (most - np.count_nonzero(is_newest)) :]] = True
    return ~is_newest


def _refuse_by_head(
    batch: ReportBatch, letters: Letters, now_ms: int, reports: Reports, senders: SenderRules
) -> None:
    heads, index = batch.heads, batch.index
    latest_ms, started = latest_start_ms(now_ms, reports), heads.numbers["started_at_ms"]

    def refuse(wrong: BoolArray, reason: str, detail: Callable[[int], str]) -> None:
        which = index[wrong & heads.canonical & letters.usable[index]]
        # ``detail`` is called for few reports, so search their rows one by one.
        letters.refuse(which, reason, lambda i: detail(int(np.searchsorted(index, i))))

    if heads.unusable:
        nameless = np.isin(heads.broker, [*heads.unusable])
        refuse(nameless, NO_BROKER, lambda row: heads.unusable[int(heads.broker[row])])
    if not senders.allow_all:
        named = np.flatnonzero(heads.canonical & letters.usable[index])
        senders.refuse(letters, index[named], heads.names.take(pa.array(heads.broker[named])))
    refuse(heads.absurd, ABSURD, heads.absurdity)
    refuse(
        started > latest_ms,
        FUTURE,
        lambda row: started_too_late(int(started[row]), latest_ms),
    )
