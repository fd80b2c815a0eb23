"""Decodes reports of both formats into checked columns, and makes dead letters of bad ones.

No content of a reports topic makes ``decode`` raise, or costs much more than its size (docs/wire.md
has figures). A report with a broken frame is refused whole. If only some groups' values are wrong,
only these entries are refused, so that one tenant's bad values don't affect the broker's others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quotaplane.model import (
    COUNTER_COLUMNS,
    IN_FORCE_COLUMNS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    IntArray,
)
from quotaplane.settings import Reports
from quotaplane.wire import report_own, report_stock
from quotaplane.wire.batch_caps import BatchCaps
from quotaplane.wire.entry_checks import (
    MOST_COUNT,
    REASON_OF_CODE,
    bad_values,
    describe,
    last_of_each,
)
from quotaplane.wire.reasons import TOO_MANY_REPORTS, UnusableReportError
from quotaplane.wire.rejected_reports import Letters
from quotaplane.wire.report_batch import ReportBatch, latest_start_ms, open_batch
from quotaplane.wire.report_block import Block, Header, by_kind
from quotaplane.wire.report_heads import senders as broker_names
from quotaplane.wire.report_own import encode_report
from quotaplane.wire.report_stock import encode_stock_report
from quotaplane.wire.sender_rules import ANY_SENDER, SenderRules
from quotaplane.wire.shard_inputs import (
    HEADERS,
    OBSERVED,
    OPTIONAL_ENTRIES,
    REJECTED,
    Decoded,
    entries_schema,
)

__all__ = ["REJECTED", "Decoded", "decode", "encode_report", "encode_stock_report"]

_MOST_OWN: Final = 2_500
"""Most reports per batch in our own format with group names; each is decoded by itself, in 50 to
200 microseconds."""
_MOST_KEPT: Final = 100
"""Most bad entries of a report that its dead letter contains."""


def decode(
    values: Sequence[bytes | None],
    published_at_ms: IntArray,
    positions: Sequence[str],
    *,
    now_ms: int,
    reports: Reports,
    senders: SenderRules = ANY_SENDER,
    oldest_s: float = math.inf,
) -> Decoded:
    """Decode and check a batch of serialized reports, of both formats in any order.

    ``values``, ``published_at_ms`` and ``positions`` (in their topics) have one element per report.
    All values together must be under 2 GiB, the limit of an Arrow column. ``senders``: the brokers
    that they may name. Reports that were published more than ``oldest_s`` ago are not read. See
    ``shard_inputs`` for the resulting tables and ``reasons`` for why reports are refused.

    Example: 3 messages and 300 bytes counted over an interval of 5 s are 0.6 and 60 per second.

    >>> value = encode_stock_report("b1", ["g"], np.array([[3, 300, np.nan, np.nan]]))
    >>> decoded = decode([value, b"?"], np.array([1000, 1000]), ["0@1", "0@2"],
    ...     now_ms=1500, reports=Reports(interval_s=5))
    >>> decoded.entries.select(["group", "publish_bytes_per_s", "dispatch_bytes_per_s"]).to_pylist()
    [{'group': 'g', 'publish_bytes_per_s': 60.0, 'dispatch_bytes_per_s': nan}]
    >>> decoded.rejected.select(["reason", "position"]).to_pylist()
    [{'reason': 'not_protobuf', 'position': '0@2'}]
    """
    letters = Letters(values, published_at_ms, positions, broker_names)
    batch = open_batch(values, published_at_ms, letters, now_ms, reports, senders, oldest_s)
    to_read = np.count_nonzero(letters.usable[batch.index] & ~batch.complete)
    caps = BatchCaps(reports.max_entries_per_report, int(to_read))
    further_headers, blocks = _read_stock(batch, values, published_at_ms, letters, caps, reports)
    latest_ms = latest_start_ms(now_ms, reports)
    further_headers |= _read_own(batch, values, letters, caps, latest_ms, blocks)
    blocks = [
        last_of_each(_without_bad_entries(block, values, letters, reports))
        for block in by_kind(blocks)
    ]
    index, headers = _headers(batch, further_headers, published_at_ms, positions, letters, reports)
    # Again, as only protobuf has the last word on the names of some.
    allowed = senders.refuse(letters, index, headers["broker"].combine_chunks())
    if not allowed.all():
        index, headers = index[allowed], headers.filter(pa.array(allowed))
        blocks = [each.take(np.flatnonzero(letters.usable[each.report])) for each in blocks]
    return Decoded(headers, _entries(blocks, index, len(values)), letters.table())


def _read_stock(
    batch: ReportBatch,
    values: Sequence[bytes | None],
    published_at_ms: IntArray,
    letters: Letters,
    caps: BatchCaps,
    reports: Reports,
) -> tuple[dict[int, Header], list[Block]]:
    """All entries, and by index the headers that ``read_heads`` did not read."""
    rows = np.flatnonzero(letters.usable[batch.index] & ~batch.own & ~batch.complete)
    brokers, blocks = report_stock.read_stock(
        batch.index[rows],
        batch.heads.size[rows],
        batch.heads.canonical[rows],
        values,
        letters,
        caps,
        reports.interval_s,
    )
    return {
        index: Header(broker, 0, int(published_at_ms[index]), reports.interval_s)
        for index, broker in brokers.items()
    }, blocks


def _read_own(
    batch: ReportBatch,
    values: Sequence[bytes | None],
    letters: Letters,
    caps: BatchCaps,
    latest_ms: int,
    blocks: list[Block],
) -> dict[int, Header]:
    """Headers of reports with entries, by index; the entries are added to ``blocks``."""
    headers: dict[int, Header] = {}
    which = batch.index[letters.usable[batch.index] & batch.own & ~batch.complete]
    letters.refuse(
        which[_MOST_OWN:],
        TOO_MANY_REPORTS,
        lambda _: f"more than {_MOST_OWN} reports in this format at once",
    )
    for index in which[:_MOST_OWN].tolist():
        try:
            headers[index], block = report_own.decode_own(
                values[index] or b"", index, caps, latest_ms
            )
        except UnusableReportError as error:
            letters.refuse_one(index, error)
        else:
            blocks.append(block)
    return headers


def _without_bad_entries(
    block: Block, values: Sequence[bytes | None], letters: Letters, reports: Reports
) -> Block:
    """The block without unusable entries; a report without usable ones is refused."""
    # Whatever max_rate_per_s allows, an interval's count is one.
    most = min(reports.max_rate_per_s, float(np.nextafter(MOST_COUNT / reports.interval_s, 0)))
    codes = bad_values(block, most)
    if codes is None:
        return block
    bad = np.flatnonzero(codes)
    size = np.bincount(block.report, minlength=len(values))
    worst = np.zeros(len(values), np.uint8)
    np.maximum.at(worst, block.report[bad], codes[bad])
    remaining = size - np.bincount(block.report[bad], minlength=len(values))
    first = np.zeros(len(values), np.int64)
    first[block.report[::-1]] = np.arange(len(codes))[::-1]  # a report's entries are in one piece

    def defects(index: int) -> tuple[str, IntArray]:
        """A description of a report's bad entries, and their positions in it."""
        entries = np.arange(first[index], first[index] + size[index])
        places = np.flatnonzero(codes[entries])
        return describe(block, entries[places], codes, len(entries), most), places

    def part(index: int) -> tuple[str, bytes]:
        detail, places = defects(index)
        value = values[index] or b""
        keep = (
            report_own.keep_entries
            if value.startswith(report_own.FAMILY)
            else report_stock.keep_entries
        )
        return detail, keep(value, places[:_MOST_KEPT].tolist())

    for code, reason in enumerate(REASON_OF_CODE):
        hit = (worst == code) & (code > 0)
        letters.refuse(
            np.flatnonzero(hit & (remaining == 0)), reason, lambda index: defects(index)[0]
        )
        letters.refuse_entries(np.flatnonzero(hit & (remaining > 0)), reason, part)
    return block.take(np.flatnonzero(codes == 0))


def _headers(
    batch: ReportBatch,
    further_headers: dict[int, Header],
    published_at_ms: IntArray,
    positions: Sequence[str],
    letters: Letters,
    reports: Reports,
) -> tuple[IntArray, pa.Table]:
    """Headers of the usable reports in their order of arrival, and the reports' indexes.

    ``further_headers``: by index, those that ``read_heads`` did not read.
    """
    heads = batch.heads
    by_head = letters.usable[batch.index]
    by_head[np.searchsorted(batch.index, [*further_headers])] = False
    rows = np.flatnonzero(by_head)
    index, stock_ones = batch.index[rows], ~batch.own[rows]
    numbers = {name: array[rows].astype(np.int64) for name, array in heads.numbers.items()}
    applied = heads.applied[rows]
    columns: dict[str, Any] = {
        "broker": heads.names.take(pa.array(heads.broker[rows])),
        "started_at_ms": numbers["started_at_ms"],
        "sequence": np.where(stock_ones, published_at_ms[index], numbers["sequence"]),
        "window_s": np.where(stock_ones, reports.interval_s, numbers["window_ms"] / 1000.0),
        "applied_epoch": np.where(applied, numbers["applied_epoch"], -1),
        "applied_seq": np.where(applied, numbers["applied_seq"], -1),
        "uses_ids": np.zeros(len(rows), bool),
    }
    more = [(i, header) for i, header in further_headers.items() if letters.usable[i]]
    index = np.concatenate([index, np.array([i for i, _ in more], np.int64)])
    order = np.argsort(index)
    index = index[order]
    table = {
        name: pa.concat_arrays(
            [
                pa.array(column, HEADERS.field(name).type),
                pa.array([getattr(head, name) for _, head in more], HEADERS.field(name).type),
            ]
        ).take(pa.array(order))
        for name, column in columns.items()
    }
    table["published_at_ms"] = pa.array(published_at_ms[index], pa.int64())
    table["position"] = pa.array([positions[i] for i in index.tolist()], pa.string())
    headers = pa.table({name: table[name] for name in HEADERS.names}, schema=HEADERS)
    observed = np.isin(index, [i for i, header in more if header.observed])
    if observed.any():
        headers = headers.append_column(OBSERVED, pa.array(observed))
    return index, headers


def _entries(blocks: list[Block], index: IntArray, reports: int) -> pa.Table:
    """The entries as a table; ``index`` has the index of each header's report, of ``reports``."""
    row = np.full(reports, -1, np.int32)
    row[index] = np.arange(len(index), dtype=np.int32)
    parts = [_columns(block, row) for block in blocks]
    given = {name for part in parts for name in part}
    schema = entries_schema(*(names for names in OPTIONAL_ENTRIES if names[0] in given))
    # Columns that a block lacks: one array of NaN is shared by all of them.
    most = max((len(block.ids) for block in blocks), default=0)
    unknown = pa.array(np.full(most if len(parts) > 1 else 0, np.nan))
    tables = [
        pa.Table.from_arrays(
            [part[name] if name in part else unknown[: len(block.ids)] for name in schema.names],
            schema=schema,
        )
        for part, block in zip(parts, blocks, strict=True)
    ]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _columns(block: Block, row: npt.NDArray[np.int32]) -> dict[str, pa.Array]:
    names = pa.nulls(len(block.ids), pa.string()) if block.names is None else block.names
    given: dict[str, Any] = {"report": row[block.report], "group_id": block.ids, "group": names}
    for columns, rows in (
        (RATE_COLUMNS, block.rates),
        (THROTTLED_COLUMNS, block.throttled),
        (IN_FORCE_COLUMNS, block.in_force),
        (COUNTER_COLUMNS, block.counters),
    ):
        given.update(zip(columns, () if rows is None else rows, strict=False))
    return {name: pa.array(column) for name, column in given.items()}
