"""Reports in: bytes of either format to checked columns, and a dead letter for whatever is bad.

Nothing that a broker, or somebody else, puts on a reports topic makes ``decode`` raise. A report
whose frame is wrong is refused whole. Where only some groups' values are wrong, those entries are
refused and the others used: one tenant's nonsense must not take the broker's other tenants along.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quotaplane.model import (
    IN_FORCE_COLUMNS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    FloatArray,
    IntArray,
)
from quotaplane.settings import Reports
from quotaplane.wire import own, stock
from quotaplane.wire.blocks import Block, Header
from quotaplane.wire.checks import bad_values, describe, last_of_each
from quotaplane.wire.events import HEADERS, OPTIONAL_ENTRIES, REJECTED, Decoded, entries_schema
from quotaplane.wire.own import encode_report
from quotaplane.wire.reasons import EMPTY, FUTURE, STALE, TOO_LARGE, UnusableReportError
from quotaplane.wire.stock import encode_stock_report

__all__ = ["REJECTED", "Decoded", "cut_down", "decode", "encode_report", "encode_stock_report"]

_MOST_COUNT: Final = float(2**63)
_MOST_RAW_BYTES: Final = 16 << 20
_MOST_LATE_BYTES: Final = 1 << 20
"""A batch's dead letters keep raw bytes until they have so many. All of them pass through the
driver, and a job that was down for an hour finds an hour of reports too late: gigabytes."""


def decode(
    values: Sequence[bytes | None],
    published_at_ms: IntArray,
    positions: Sequence[str],
    *,
    now_ms: int,
    reports: Reports,
) -> Decoded:
    """Decode and check a batch of serialized reports (both formats, mixed as they come).

    ``values``, ``published_at_ms`` and ``positions`` (where in its topic each came from) have one
    element per report; all values together are under 2 GiB, as one Arrow column of them is.
    See ``events`` for the tables that come out and ``reasons`` for why a report is refused.

    Example: 3 messages and 300 bytes counted over an interval of 5 s are 0.6 and 60 per second.

    >>> value = encode_stock_report("b1", ["g"], np.array([[3, 300, np.nan, np.nan]]))
    >>> found = decode([value, b"?"], np.array([1000, 1000]), ["0@1", "0@2"],
    ...     now_ms=1500, reports=Reports(interval_s=5))
    >>> found.entries.select(["group", "publish_bytes_per_s", "dispatch_bytes_per_s"]).to_pylist()
    [{'group': 'g', 'publish_bytes_per_s': 60.0, 'dispatch_bytes_per_s': nan}]
    >>> found.rejected.select(["reason", "position"]).to_pylist()
    [{'reason': 'not_protobuf', 'position': '0@2'}]
    """
    times: list[int] = published_at_ms.tolist()
    found: dict[int, Header | UnusableReportError] = {}
    stock_values: dict[int, bytes] = {}
    blocks: list[Block] = []
    for index, value in enumerate(values):
        problem = _unread(value, times[index], now_ms, reports)
        if problem is not None or value is None:
            found[index] = problem or UnusableReportError(EMPTY, "no value")
        elif value.startswith(own.FAMILY):
            try:
                found[index], block = own.decode_own(value, index)
            except UnusableReportError as error:
                found[index] = error
            else:
                blocks.append(block)
        else:
            stock_values[index] = value

    brokers, stock_blocks = stock.decode_stock(stock_values, reports.interval_s)
    for index, broker in brokers.items():
        found[index] = (
            Header(broker, 0, times[index], reports.interval_s)
            if isinstance(broker, str)
            else broker
        )
    whole = Block.join([*stock_blocks, *blocks])
    letters = _Letters(values, times, positions)
    for index, problem_or_header in found.items():
        if isinstance(problem_or_header, UnusableReportError):
            letters.add_report(index, problem_or_header)
    good = _without_bad_entries(whole, found, letters, reports)
    good = last_of_each(good)
    return _tables(good, found, times, positions, letters)


def _unread(
    value: bytes | None, published_at_ms: int, now_ms: int, reports: Reports
) -> UnusableReportError | None:
    """What is wrong with a report that need not be read to see it."""
    if not value:
        return UnusableReportError(EMPTY, "no value")
    if len(value) > reports.max_report_bytes:
        return UnusableReportError(
            TOO_LARGE, f"{len(value)} bytes; reports.max_report_bytes is {reports.max_report_bytes}"
        )
    age_s = (now_ms - published_at_ms) / 1000.0
    if -age_s > reports.max_clock_skew_s:
        return UnusableReportError(
            FUTURE,
            f"published {-age_s:g} s in the future; "
            f"reports.max_clock_skew_s is {reports.max_clock_skew_s:g}",
        )
    if age_s > reports.oldest_s:
        return UnusableReportError(
            STALE,
            f"published {age_s:g} s ago; {reports.oldest_s:g} s is the most "
            "(reports.stale_after_intervals x reports.interval_s)",
        )
    return None


class _Letters:
    """The dead letters of a batch."""

    def __init__(
        self, values: Sequence[bytes | None], times: Sequence[int], positions: Sequence[str]
    ) -> None:
        self._values, self._times, self._positions = values, times, positions
        self._rows: list[tuple[int, str, str, bool, bytes]] = []
        self._bytes = 0

    def add_report(self, index: int, error: UnusableReportError) -> None:
        late = error.reason == STALE  # how a healthy system looks after a pause
        self._add(index, error.reason, str(error), not late, self._values[index] or b"")

    def add_entries(self, index: int, reason: str, detail: str, chosen: IntArray) -> None:
        """Some entries of a report that is used otherwise, so it does not count as bad."""
        value = self._values[index] or b""
        keep = own.keep_entries if value.startswith(own.FAMILY) else stock.keep_entries
        self._add(index, reason, detail, False, keep(value, chosen.tolist()))

    def _add(self, index: int, reason: str, detail: str, bad: bool, raw: bytes) -> None:
        most = _MOST_LATE_BYTES if reason == STALE else _MOST_RAW_BYTES
        if self._bytes >= most:
            detail, raw = f"{detail}; raw bytes left out, there are too many", b""
        self._bytes += len(raw)
        self._rows.append((index, reason, detail, bad, raw))

    def table(self) -> pa.Table:
        rows = sorted(self._rows, key=lambda row: row[0])
        columns: dict[str, Any] = {
            "reason": [row[1] for row in rows],
            "detail": [row[2] for row in rows],
            "position": [self._positions[row[0]] for row in rows],
            "published_at_ms": [self._times[row[0]] for row in rows],
            "counts_as_bad": [row[3] for row in rows],
            "raw": [row[4] for row in rows],
        }
        return pa.table(columns, schema=REJECTED)


def _without_bad_entries(
    block: Block,
    found: dict[int, Header | UnusableReportError],
    letters: _Letters,
    reports: Reports,
) -> Block:
    """The block without entries that can't be used; a report that has no others is refused."""
    # A count from 2**63 on is a negative long of Java's, whatever max_rate_per_s allows.
    most = min(reports.max_rate_per_s, float(np.nextafter(_MOST_COUNT / reports.interval_s, 0)))
    reason_of = bad_values(block, most)
    if reason_of is None:
        return block
    bad = np.flatnonzero(reason_of)
    order = np.argsort(block.report, kind="stable")
    begins = np.searchsorted(block.report[order], np.arange(int(block.report.max()) + 2))
    place = np.empty(len(order), np.int64)  # of each entry within its report
    place[order] = np.arange(len(order)) - begins[block.report[order]]
    sizes = np.diff(begins)
    bad = bad[np.argsort(block.report[bad], kind="stable")]
    reports_hit, first = np.unique(block.report[bad], return_index=True)
    for index, entries in zip(reports_hit.tolist(), np.split(bad, first[1:]), strict=True):
        reason, detail = describe(block, entries, reason_of, int(sizes[index]), most)
        if len(entries) == sizes[index]:
            found[index] = error = UnusableReportError(reason, detail)
            letters.add_report(index, error)
        else:
            letters.add_entries(index, reason, detail, place[entries])
    return block.take(np.flatnonzero(reason_of == 0))


def _tables(
    block: Block,
    found: dict[int, Header | UnusableReportError],
    times: Sequence[int],
    positions: Sequence[str],
    letters: _Letters,
) -> Decoded:
    used = [(i, head) for i, head in sorted(found.items()) if isinstance(head, Header)]
    columns: dict[str, Any] = {
        "broker": [head.broker for _, head in used],
        "started_at_ms": [head.started_at_ms for _, head in used],
        "sequence": [head.sequence for _, head in used],
        "published_at_ms": [times[i] for i, _ in used],
        "window_s": [head.window_s for _, head in used],
        "applied_epoch": [head.applied_epoch for _, head in used],
        "applied_seq": [head.applied_seq for _, head in used],
        "uses_ids": [head.uses_ids for _, head in used],
        "position": [positions[i] for i, _ in used],
    }
    row: npt.NDArray[np.int32] = np.full(len(times), -1, np.int32)
    row[[i for i, _ in used]] = np.arange(len(used), dtype=np.int32)
    given: dict[str, Any] = {
        "report": row[block.report],
        "group_id": block.ids,
        "group": block.names,
    }
    for names, rows in (
        (RATE_COLUMNS, block.rates),
        (THROTTLED_COLUMNS, block.throttled),
        (IN_FORCE_COLUMNS, block.in_force),
    ):
        given.update(zip(names, () if rows is None else rows, strict=False))
    schema = entries_schema(*(names for names in OPTIONAL_ENTRIES if names[0] in given))
    arrays = [pa.array(given[name]) for name in schema.names]
    return Decoded(
        headers=pa.table(columns, schema=HEADERS),
        entries=pa.Table.from_arrays(arrays, schema=schema),
        rejected=letters.table(),
    )


def cut_down(entries: pa.Table) -> bytes:
    """Entries of one report as a report of their own, to be kept with a dead letter.

    For entries that were decoded already (columns of ``events.ENTRIES`` and ``broker``; null or NaN
    = unchanged), of whose bytes nothing is left: written in our own format, with rates.
    """
    names = entries["group"].to_pylist()
    by_name = all(name is not None for name in names)
    rates, throttled = (_stacked(entries, names) for names in (RATE_COLUMNS, THROTTLED_COLUMNS))
    return encode_report(
        broker=str(entries["broker"][0].as_py()) if len(names) else "",
        started_at_ms=0,
        sequence=0,
        window_ms=0,
        groups=names if by_name else None,
        group_ids=None if by_name else entries["group_id"].to_numpy(),
        usage=rates,
        throttled=throttled,
    )


def _stacked(entries: pa.Table, names: Sequence[str]) -> FloatArray:
    """(n, names); NaN where there is no such column."""
    columns = np.full((len(entries), len(names)), np.nan)
    for place, name in enumerate(names):
        if name in entries.column_names:
            columns[:, place] = entries[name].to_numpy()
    return columns
