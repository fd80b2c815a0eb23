"""Stock Pulsar's ``ResourceUsageInfo``: bytes to blocks, and back for simulators and benchmarks."""

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
"""Reports are scanned together up to this size: small ones share the cost of the array calls, and
large ones don't push each other's arrays out of the processor's cache."""
_MOST_ODD: Final = 5_000
"""So many reports of a batch are read by the protobuf library, at some 10 microseconds each."""
_MOST_ODD_ENTRIES: Final = 50_000
"""So many entries of a batch are taken out of its messages, at some 2 microseconds each."""
_MOST_LOOKED_AT: Final = 1_000
"""In so many of its entries a report's error is looked for, to tell which one it is in."""
_NOT_UTF8: Final = "a name in it is not UTF-8"


def read_stock(
    index: IntArray,
    first_entry: IntArray,
    plain: BoolArray,
    values: Sequence[bytes | None],
    letters: Letters,
    caps: BatchCaps,
    interval_s: float,
) -> tuple[dict[int, str], list[Block]]:
    """Read reports ``index`` (n,) of ``values``, whose entries begin at byte ``first_entry``.

    Where that is known, as the head is ``plain``. What can't be used is refused in ``letters``.
    Returns the brokers of the reports that are usable though not plain, by index, and all entries,
    not checked yet, as rates: count / ``interval_s``.
    """
    blocks: list[Block] = []
    known = np.flatnonzero(plain)
    chosen = [values[i] or b"" for i in index[known].tolist()]
    odd = _scan(index[known], first_entry[known], chosen, letters, caps, blocks)
    odd = np.sort(np.concatenate([odd, index[~plain]]))
    letters.refuse(
        odd[_MOST_ODD:],
        TOO_MANY_REPORTS,
        lambda _: f"more than {_MOST_ODD} reports at once that are not as Pulsar writes them",
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
    """Read what is plainly written into ``blocks``; the answer is what is not, by index."""
    odd: list[IntArray] = [np.empty(0, np.int64)]
    size = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))
    cuts = np.flatnonzero(np.diff(size // _CHUNK_BYTES)) + 1
    for begin, end in pairwise([0, *cuts.tolist(), len(values)]):
        if begin == end:
            continue
        found = scan(values[begin:end], first_entry[begin:end], caps)
        which = index[begin:end]
        letters.refuse(
            which[found.refused],
            TOO_MANY_ENTRIES,
            lambda _: "more entries than may be, or than its bytes allow; not read",
        )
        letters.refuse(which[found.garbled], NOT_PROTOBUF, lambda _: _NOT_UTF8)
        odd.append(which[~(found.good | found.refused | found.garbled)])
        report = which[found.report]
        blocks.append(Block(report, report, found.owners, found.counts))
    return np.concatenate(odd)


def _read_odd(
    odd: IntArray,
    values: Sequence[bytes | None],
    letters: Letters,
    caps: BatchCaps,
    blocks: list[Block],
) -> dict[int, str]:
    """Read reports that are written in another way: the protobuf library writes them plainly.

    Their entries go into ``blocks``; the answer is their brokers, by index.
    """
    brokers: dict[int, str] = {}
    plainly: list[bytes] = []
    for number in odd.tolist():
        try:
            message = parse(values[number] or b"", caps)
            brokers[number] = check_broker(message.broker)
        except UnusableReportError as error:
            letters.refuse_one(number, error)
            continue
        message.DiscardUnknownFields()
        message.ClearField("broker")
        plainly.append(message.SerializePartialToString())
    index, room = np.array([*brokers], np.int64), _MOST_ODD_ENTRIES
    # Their entries were counted as they came: written plainly, the same ones take fewer bytes.
    left = _scan(index, np.zeros_like(index), plainly, letters, None, blocks)
    for number in left.tolist():
        message = parse(values[number] or b"", None)
        room -= len(message.usageMap)
        try:
            blocks.append(_one_by_one(message, number, room))
        except UnusableReportError as error:
            letters.refuse_one(number, error)
    return brokers


def parse(value: bytes, caps: BatchCaps | None) -> Any:
    """The report as protobuf reads it, with all that is required, in at most so many entries.

    Raises:
        UnusableReportError: it can't be read, or is no report.
    """
    if caps is not None:
        # Each of its entries becomes an object, of some 66 bytes, as soon as it is parsed. The tag
        # of an entry begins with the one byte or, written longer than need be, with the other.
        tags = value.count(b"\x12") + value.count(b"\x92")
        if tags > caps.most_entries + len(value) // 8:
            raise UnusableReportError(TOO_MANY_ENTRIES, f"too many of them in {len(value)} bytes")
    try:
        message: Any = ResourceUsageInfo.FromString(value)
    except DecodeError:
        raise UnusableReportError(
            NOT_PROTOBUF, f"{len(value)} bytes that are no ResourceUsageInfo, or not all of it"
        ) from None
    count = len(message.usageMap)
    if not count and (not message.HasField("broker") or _has_unknown_fields(message)):
        raise UnusableReportError(WRONG_PROTOBUF, "none of a report's fields, but others")
    if caps is not None and caps.refuses(count, len(value), LEAST_STOCK):
        raise UnusableReportError(TOO_MANY_ENTRIES, f"{count} of them in {len(value)} bytes")
    if not message.IsInitialized():
        raise UnusableReportError(MISSING_FIELD, f"without {_missing(message)}")
    if isinstance(message.broker, bytes):  # what becomes of a proto2 string that is not UTF-8
        raise UnusableReportError(NOT_PROTOBUF, _NOT_UTF8)
    return message


def _has_unknown_fields(message: Any) -> bool:
    size = message.ByteSize()
    message.DiscardUnknownFields()
    return bool(message.ByteSize() != size)


def _missing(message: Any) -> str:
    """Which required fields are not there, in the first place where any is not."""
    if not message.HasField("broker"):
        return "broker"
    for place, entry in enumerate(message.usageMap[:_MOST_LOOKED_AT]):
        if not entry.IsInitialized():
            return ", ".join(f"usageMap[{place}].{one}" for one in entry.FindInitializationErrors())
    return f"a required field, behind the first {_MOST_LOOKED_AT} entries"


def _one_by_one(message: Any, index: int, room: int) -> Block:
    """The entries of one report, for what ``scan`` does not read. Rates are counts.

    Raises:
        UnusableReportError: there is no ``room`` left, or a name is not UTF-8.
    """
    if room < 0:
        why = "only to be read entry by entry, as too many entries of a batch are"
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
    """The report cut down to some of its entries."""
    whole = parse(value, None)
    part: Any = ResourceUsageInfo(broker=whole.broker)
    part.usageMap.extend([whole.usageMap[i] for i in chosen])
    return part.SerializeToString()  # type: ignore[no-any-return]


def encode_stock_report(broker: str, groups: Sequence[str], counts: FloatArray | IntArray) -> bytes:
    """A report as a stock Pulsar broker writes it.

    ``counts`` (n, 4) are per period, the first of ``model.DIMENSIONS``; NaN in both columns of
    publish or of dispatch leaves that class out, as the broker does with what hardly changed.

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
