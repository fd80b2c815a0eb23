"""A batch of reports before its entries are read: reads the heads, and refuses by size and head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from quotaplane.model import BoolArray, IntArray
from quotaplane.settings import Reports
from quotaplane.wire.reasons import ABSURD, EMPTY, FUTURE, NO_BROKER, TOO_LARGE
from quotaplane.wire.rejected_reports import Refusal, first_defects
from quotaplane.wire.report_block import Header
from quotaplane.wire.report_heads import HEAD_BYTES, Heads, read_heads
from quotaplane.wire.report_own import FAMILY, REPORT_HEAD, started_too_late


class Opened(NamedTuple):
    """A batch of n reports, of which the heads are read."""

    usable: BoolArray
    """(n,) not refused."""
    refusals: list[Refusal]
    headers: dict[int, Header]
    """By index: the reports with a canonical head, but for those in ``own``."""
    own: IntArray
    """Indexes of reports in our format with more than a head."""
    stock: IntArray
    """Indexes of stock reports with more than a canonical head."""
    first_entry: IntArray
    """(n,) byte where the entries of a report with a canonical head begin."""
    canonical: BoolArray
    """(n,) the head is canonical."""


def open_batch(
    values: Sequence[bytes | None],
    published_at_ms: IntArray,
    now_ms: int,
    reports: Reports,
    message_bytes: int,
) -> Opened:
    """Read the heads of a batch of reports; refuse those that need no further decoding."""
    size = np.fromiter((len(value or b"") for value in values), np.int64, len(values))
    age_s = (now_ms - published_at_ms.astype(float)) / 1000.0
    usable = np.ones(len(values), bool)
    refusals = first_defects(
        usable,
        [
            (size == 0, EMPTY, lambda _: "no value"),
            (
                size > message_bytes,
                TOO_LARGE,
                lambda i: f"{size[i]} bytes; reports.max_report_bytes is {message_bytes}",
            ),
            (
                -age_s > reports.max_clock_skew_s,
                FUTURE,
                lambda i: (
                    f"published {-age_s[i]:g} s in the future; "
                    f"reports.max_clock_skew_s is {reports.max_clock_skew_s:g}"
                ),
            ),
        ],
    )
    starts = [
        (value or b"")[:HEAD_BYTES] if use else b""
        for value, use in zip(values, usable.tolist(), strict=True)
    ]
    own = np.array([start.startswith(FAMILY) for start in starts], bool)
    ours = np.array([start.startswith(REPORT_HEAD) for start in starts], bool)
    heads = read_heads(starts, own)
    canonical = heads.canonical & (ours | ~own) & usable
    refusals += _refused_by_head(heads, canonical, usable, latest_start_ms(now_ms, reports))
    complete = canonical & (heads.size == size)
    return Opened(
        usable,
        refusals,
        _headers(heads, usable & canonical & (complete | ~own), own, published_at_ms, reports),
        np.flatnonzero(usable & own & ~complete),
        np.flatnonzero(usable & ~own & ~complete),
        heads.size,
        canonical,
    )


def latest_start_ms(now_ms: int, reports: Reports) -> int:
    """Latest plausible start time of a broker: its clock may be ahead of ours."""
    return max(now_ms + int(reports.max_clock_skew_s * 1000), 0)


def _refused_by_head(
    heads: Heads, canonical: BoolArray, usable: BoolArray, latest_ms: int
) -> list[Refusal]:
    started = heads.numbers["started_at_ms"]
    return first_defects(
        usable,
        [
            (
                canonical & np.isin(heads.broker, [*heads.unusable]),
                NO_BROKER,
                lambda i: heads.unusable[int(heads.broker[i])],
            ),
            (canonical & heads.absurd, ABSURD, heads.absurdity),
            (
                canonical & (started > latest_ms),
                FUTURE,
                lambda i: started_too_late(int(started[i]), latest_ms),
            ),
        ],
    )


def _headers(
    heads: Heads, chosen: BoolArray, own: BoolArray, published_at_ms: IntArray, reports: Reports
) -> dict[int, Header]:
    names = heads.names.to_pylist()
    number = {name: values.tolist() for name, values in heads.numbers.items()}
    headers = {}
    for index in np.flatnonzero(chosen).tolist():
        broker, applied = names[heads.broker[index]], heads.applied[index]
        headers[index] = (
            Header(
                broker,
                number["started_at_ms"][index],
                number["sequence"][index],
                number["window_ms"][index] / 1000.0,
                number["applied_epoch"][index] if applied else -1,
                number["applied_seq"][index] if applied else -1,
            )
            if own[index]
            else Header(broker, 0, int(published_at_ms[index]), reports.interval_s)
        )
    return headers
