"""Stock Pulsar's report format ``ResourceUsageInfo``: decoding to blocks, and encoding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from quotaplane.groups.ids import ids_of_column
from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray
from quotaplane.wire.batch_caps import LEAST_STOCK, BatchCaps
from quotaplane.wire.pb.pulsar_resource_usage_pb2 import ResourceUsageInfo
from quotaplane.wire.reasons import (
    MISSING_FIELD,
    NOT_PROTOBUF,
    TOO_MANY_ENTRIES,
    TOO_MANY_REPORTS,
    WRONG_PROTOBUF,
    UnusableReportError,
    check_broker,
)
from quotaplane.wire.rejected_reports import Letters
from quotaplane.wire.report_block import Block
from quotaplane.wire.stock_scanner import scan

_CHUNK_BYTES: Final = 1 << 20
"""Reports are scanned in chunks of this size: small reports share the cost of array calls, and the
arrays still fit into the processor's cache."""
_MOST_ODD: Final = 5_000
"""Most reports per batch that the protobuf library parses, at about 10 microseconds each."""
_MOST_ODD_ENTRIES: Final = 50_000
"""Most entries per batch that are read from parsed messages, at about 2 microseconds each."""
_MOST_LOOKED_AT: Final = 1_000
"""Number of a report's entries that are searched for a missing field."""
_NOT_UTF8: Final = "a name in it is not UTF-8"


def read_stock(
    index: IntArray,
    first_entry: IntArray,
    canonical: BoolArray,
    values: Sequence[bytes | None],
    letters: Letters,
    caps: BatchCaps,
    interval_s: float,
) -> tuple[dict[int, str], list[Block]]:
    """Read the reports ``index`` (n,) of ``values``.

    ``first_entry`` (n,): the byte where a report's entries begin, valid if ``canonical`` (n,).
    Unusable reports are refused in ``letters``. Returns the brokers of usable reports that are not
    ``canonical``, by index, and all entries, unchecked, as rates: count / ``interval_s``.
    """
    blocks: list[Block] = []
    known = np.flatnonzero(canonical)
    chosen = [values[i] or b"" for i in index[known].tolist()]
    odd = _scan(index[known], first_entry[known], chosen, letters, caps, blocks)
    odd = np.sort(np.concatenate([odd, index[~canonical]]))
    letters.refuse(
        odd[_MOST_ODD:],
        TOO_MANY_REPORTS,
        lambda _: f"more than {_MOST_ODD} reports at once that are not in Pulsar's canonical form",
    )
    brokers = _read_odd(odd[:_MOST_ODD], values, letters, caps, blocks)
    if not blocks:
        return brokers, []
    block = Block.join(blocks)
    np.divide(block.rates, interval_s, out=block.rates)
    ids = ids_of_column(block.names, caps)
    return brokers, [Block(block.report, ids, block.names, block.rates)]


def _scan(
    index: IntArray,
    first_entry: IntArray,
    values: Sequence[bytes],
    letters: Letters,
    caps: BatchCaps | None,
    blocks: list[Block],
) -> IntArray:
    """Read canonically written reports into ``blocks``; returns the indexes of the others."""
    odd: list[IntArray] = [np.empty(0, np.int64)]
    size = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))
    cuts = np.flatnonzero(np.diff(size // _CHUNK_BYTES)) + 1
    for begin, end in pairwise([0, *cuts.tolist(), len(values)]):
        if begin == end:
            continue
        scanned = scan(values[begin:end], first_entry[begin:end], caps)
        which = index[begin:end]
        letters.refuse(
            which[scanned.refused],
            TOO_MANY_ENTRIES,
            lambda _: "more entries than allowed, or than its size allows; not read",
        )
        letters.refuse(which[scanned.garbled], NOT_PROTOBUF, lambda _: _NOT_UTF8)
        odd.append(which[~(scanned.good | scanned.refused | scanned.garbled)])
        report = which[scanned.report]
        blocks.append(Block(report, report, scanned.owners, scanned.counts))
    return np.concatenate(odd)


def _read_odd(
    odd: IntArray,
    values: Sequence[bytes | None],
    letters: Letters,
    caps: BatchCaps,
    blocks: list[Block],
) -> dict[int, str]:
    """Read reports in other valid encodings, after the protobuf library rewrote them canonically.

    Their entries are added to ``blocks``; returns their brokers, by index.
    """
    brokers: dict[int, str] = {}
    canonical: list[bytes] = []
    for number in odd.tolist():
        try:
            message = parse(values[number] or b"", caps)
            brokers[number] = check_broker(message.broker)
        except UnusableReportError as error:
            letters.refuse_one(number, error)
            continue
        message.DiscardUnknownFields()
        message.ClearField("broker")
        canonical.append(message.SerializePartialToString())
    index, room = np.array([*brokers], np.int64), _MOST_ODD_ENTRIES
    # ``parse`` counted their entries already; rewritten canonically they take fewer bytes.
    unread = _scan(index, np.zeros_like(index), canonical, letters, None, blocks)
    for number in unread.tolist():
        message = parse(values[number] or b"", None)
        room -= len(message.usageMap)
        try:
            blocks.append(_one_by_one(message, number, room))
        except UnusableReportError as error:
            letters.refuse_one(number, error)
    return brokers


def parse(value: bytes, caps: BatchCaps | None) -> Any:
    """Parse a report with the protobuf library; it has all required fields.

    Raises:
        UnusableReportError: it can't be parsed, is another message, or has too many entries.
    """
    if caps is not None:
        # Parsing makes each entry an object of about 66 bytes, so count before. An entry's tag is
        # the first byte or, in a longer encoding than necessary, begins with the second.
        tags = value.count(b"\x12") + value.count(b"\x92")
        if tags > caps.most_entries + len(value) // 8:
            raise UnusableReportError(TOO_MANY_ENTRIES, f"too many of them in {len(value)} bytes")
    try:
        message: Any = ResourceUsageInfo.FromString(value)
    except DecodeError:
        raise UnusableReportError(
            NOT_PROTOBUF, f"{len(value)} bytes that are not a ResourceUsageInfo, or truncated"
        ) from None
    count = len(message.usageMap)
    if not count and (not message.HasField("broker") or _has_unknown_fields(message)):
        raise UnusableReportError(WRONG_PROTOBUF, "none of a report's fields, but others")
    if caps is not None and caps.refuses(count, len(value), LEAST_STOCK):
        raise UnusableReportError(TOO_MANY_ENTRIES, f"{count} of them in {len(value)} bytes")
    if not message.IsInitialized():
        raise UnusableReportError(MISSING_FIELD, f"without {_missing(message)}")
    if isinstance(message.broker, bytes):  # protobuf's value of a proto2 string that is not UTF-8
        raise UnusableReportError(NOT_PROTOBUF, _NOT_UTF8)
    return message


def _has_unknown_fields(message: Any) -> bool:
    size = message.ByteSize()
    message.DiscardUnknownFields()
    return bool(message.ByteSize() != size)


def _missing(message: Any) -> str:
    """Names of missing required fields: the broker, or those of the first incomplete entry."""
    if not message.HasField("broker"):
        return "broker"
    for place, entry in enumerate(message.usageMap[:_MOST_LOOKED_AT]):
        if not entry.IsInitialized():
            missing = entry.FindInitializationErrors()
            return ", ".join(f"usageMap[{place}].{field}" for field in missing)
    return f"a required field, after the first {_MOST_LOOKED_AT} entries"


def _one_by_one(message: Any, index: int, room: int) -> Block:
    """The entries of one report that ``scan`` can't read. Rates are counts.

    Raises:
        UnusableReportError: ``room`` is negative, or a name is not UTF-8.
    """
    if room < 0:
        why = "must be read entry by entry, and too many entries of the batch must be"
        raise UnusableReportError(TOO_MANY_ENTRIES, why)
    owners = [entry.owner for entry in message.usageMap]
    if any(isinstance(name, bytes) for name in owners):
        raise UnusableReportError(NOT_PROTOBUF, _NOT_UTF8)
    counts = np.full((BASIC, len(owners)), np.nan)
    for part, rows in (("publish", slice(0, 2)), ("dispatch", slice(2, 4))):
        has = [i for i, entry in enumerate(message.usageMap) if entry.HasField(part)]
        usage = [getattr(message.usageMap[i], part) for i in has]
        both = [[u.messagesPerPeriod for u in usage], [u.bytesPerPeriod for u in usage]]
        counts[rows, has] = np.array(both, dtype=np.uint64)
    report = np.full(len(owners), index, np.int64)
    return Block(report, report, pa.array(owners, pa.string()), counts)


def keep_entries(value: bytes, chosen: Iterable[int]) -> bytes:
    """The report with only some of its entries."""
    whole = parse(value, None)
    part: Any = ResourceUsageInfo(broker=whole.broker)
    part.usageMap.extend([whole.usageMap[i] for i in chosen])
    return part.SerializeToString()  # type: ignore[no-any-return]


def encode_stock_report(broker: str, groups: Sequence[str], counts: FloatArray | IntArray) -> bytes:
    """Encode a report as a stock Pulsar broker does.

    ``counts`` (n, 4) are per period, in the first four of ``model.DIMENSIONS``. NaN in both columns
    of publish or of dispatch leaves that class out, as a broker does if it hardly changed.

    >>> encode_stock_report("b1", ["g"], np.array([[3, 300, np.nan, np.nan]])).hex(" ")
    '0a 02 62 31 12 0a 0a 01 67 12 05 08 ac 02 10 03'

    Raises:
        ValueError: one of the two columns of a class is NaN, or a count can't be a uint64.
    """
    message: Any = ResourceUsageInfo(broker=broker)
    add = message.usageMap.add
    for group, row in zip(groups, np.asarray(counts, float).tolist(), strict=True):
        entry = add(owner=group)
        for part, messages, data in ((0, row[0], row[1]), (1, row[2], row[3])):
            if messages == messages or data == data:  # not NaN
                usage = entry.dispatch if part else entry.publish
                usage.messagesPerPeriod, usage.bytesPerPeriod = int(messages), int(data)
    return message.SerializeToString()  # type: ignore[no-any-return]
