"""Decodes reports of both formats into checked columns, and makes dead letters of bad ones.

No content of a reports topic makes ``decode`` raise, or costs much more than its size
(docs/measured/parts.md has figures). A report with a broken frame is refused whole. If only some
groups' values are wrong, only these entries are refused, so that one tenant's bad values don't
affect the broker's others.
"""

from __future__ import annotations

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
    BoolArray,
    IntArray,
)
from quotaplane.settings import Reports
from quotaplane.wire import report_own, report_stock
from quotaplane.wire.entry_checks import (
    MOST_COUNT,
    MOST_RATE,
    REASON_OF_CODE,
    bad_values,
    describe,
    last_of_each,
)
from quotaplane.wire.entry_ids import with_ids
from quotaplane.wire.intake import DenseEntries, Intake
from quotaplane.wire.reasons import UnusableReportError
from quotaplane.wire.rejected_reports import Refusal, letters_of_batch, refusal
from quotaplane.wire.report_batch import latest_start_ms, open_batch
from quotaplane.wire.report_block import Block, Header, by_kind
from quotaplane.wire.report_heads import senders as broker_names
from quotaplane.wire.report_own import encode_report
from quotaplane.wire.report_stock import encode_stock_report
from quotaplane.wire.sender_rules import ANY_SENDER, SenderRules
from quotaplane.wire.shard_inputs import (
    HEADERS,
    OPTIONAL_ENTRIES,
    OPTIONAL_HEADERS,
    REJECTED,
    Decoded,
    entries_schema,
)

__all__ = ["REJECTED", "Decoded", "decode", "encode_report", "encode_stock_report"]

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
    intake: Intake | None = None,
) -> Decoded:
    """Decode and check a batch of serialized reports, of both formats in any order.

    ``values``, ``published_at_ms`` and ``positions`` (in their topics) have one element per report;
    callers pass ``MESSAGES_AT_ONCE`` reports or fewer, and under 2 GiB, the limit of an Arrow
    column. ``senders``: the brokers that they may name. ``intake``: None: as ``reports`` say. See
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
    intake = intake or Intake.of(reports)
    opened = open_batch(values, published_at_ms, now_ms, reports, intake.message_bytes)
    headers, refusals = opened.headers, opened.refusals
    dense = DenseEntries(intake, len(opened.stock) + len(opened.own))

    read = report_stock.read_stock(
        opened.stock, opened.first_entry, opened.canonical, values, dense
    )
    refusals += read.refusals
    for index, broker in read.brokers.items():
        headers[index] = Header(broker, 0, int(published_at_ms[index]), reports.interval_s)
    stock = Block.join(read.blocks) if read.blocks else None
    if stock is not None:
        np.divide(stock.rates, reports.interval_s, out=stock.rates)
    own: list[Block] = []
    latest_ms = latest_start_ms(now_ms, reports)
    for index in opened.own.tolist():
        try:
            headers[index], block = report_own.decode_own(
                values[index] or b"", index, dense, latest_ms
            )
        except UnusableReportError as error:
            refusals.append(refusal(index, error))
        else:
            own.append(block)

    usable = _usable(len(values), refusals)
    named = np.array(sorted(index for index in headers if usable[index]), np.int64)
    brokers = pa.array([headers[index].broker for index in named.tolist()], pa.string())
    refusals += senders.refusals(named, brokers)
    usable, checked = _usable(len(values), refusals), []
    blocks = own if stock is None else [stock, *own]
    for block in by_kind(with_ids(blocks, usable, intake.new_names)):
        # An interval's count is below MOST_COUNT.
        most = min(MOST_RATE, float(np.nextafter(MOST_COUNT / reports.interval_s, 0)))
        block, bad = _without_bad_entries(block, values, most)
        checked.append(last_of_each(block))
        refusals += bad
    usable = _usable(len(values), refusals)
    used = named[usable[named]]
    return Decoded(
        _headers([headers[index] for index in used.tolist()], used, published_at_ms, positions),
        _entries(checked, used, len(values)),
        letters_of_batch(refusals, values, published_at_ms, positions, broker_names),
    )


def _usable(reports: int, refusals: Sequence[Refusal]) -> BoolArray:
    """(n,) the reports that were not refused as a whole."""
    usable = np.ones(reports, bool)
    for one in refusals:
        if one.part is None:
            usable[one.which] = False
    return usable


def _without_bad_entries(
    block: Block, values: Sequence[bytes | None], most: float
) -> tuple[Block, list[Refusal]]:
    """The block without unusable entries; a report without usable ones is refused.

    ``most``: the highest rate.
    """
    codes = bad_values(block, most)
    if codes is None:
        return block, []
    bad = np.flatnonzero(codes)
    size = np.bincount(block.report, minlength=len(values))
    worst = np.zeros(len(values), np.uint8)
    np.maximum.at(worst, block.report[bad], codes[bad])
    remaining = size - np.bincount(block.report[bad], minlength=len(values))
    first = np.zeros(len(values), np.int64)
    first[block.report[::-1]] = np.arange(len(codes))[::-1]  # a report's entries are in one piece

    def entries_of(index: int) -> IntArray:
        return np.arange(first[index], first[index] + size[index])

    def detail(index: int) -> str:
        entries = entries_of(index)
        return describe(block, entries[codes[entries] > 0], codes, len(entries), most)

    def part(index: int) -> bytes:
        value = values[index] or b""
        keep = (
            report_own.keep_entries
            if value.startswith(report_own.FAMILY)
            else report_stock.keep_entries
        )
        return keep(value, np.flatnonzero(codes[entries_of(index)])[:_MOST_KEPT].tolist())

    refusals = []
    for code in np.unique(worst[worst > 0]).tolist():
        whole, in_part = ((worst == code) & which for which in (remaining == 0, remaining > 0))
        refusals.append(Refusal(np.flatnonzero(whole), REASON_OF_CODE[code], detail))
        refusals.append(Refusal(np.flatnonzero(in_part), REASON_OF_CODE[code], detail, part))
    return block.take(np.flatnonzero(codes == 0)), refusals


def _headers(
    headers: list[Header], index: IntArray, published_at_ms: IntArray, positions: Sequence[str]
) -> pa.Table:
    """The headers of the usable reports, which are those at ``index``."""
    columns: dict[str, Any] = {
        name: [getattr(header, name) for header in headers]
        for name in HEADERS.names
        if name not in ("published_at_ms", "position")
    }
    columns["published_at_ms"] = published_at_ms[index]
    columns["position"] = [positions[i] for i in index.tolist()]
    table = pa.table({name: columns[name] for name in HEADERS.names}, schema=HEADERS)
    for field in OPTIONAL_HEADERS:
        values = [getattr(header, field.name) for header in headers]
        if any(values):
            table = table.append_column(field, pa.array(values, field.type))
    return table


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
