"""Stock Pulsar's report format ``ResourceUsageInfo``: decoding to blocks, and encoding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from quotaplane.groups.ids import NO_ID
from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.wire.intake import LEAST_STOCK, DenseEntries
from quotaplane.wire.pb.pulsar_resource_usage_pb2 import ResourceUsageInfo
from quotaplane.wire.reasons import (
    BAD_GROUP,
    MISSING_FIELD,
    NOT_PROTOBUF,
    TOO_MANY_ENTRIES,
    WRONG_PROTOBUF,
    UnusableReportError,
    check_broker,
)
from quotaplane.wire.rejected_reports import Refusal, first_defects, refusal
from quotaplane.wire.report_block import Block
from quotaplane.wire.stock_scanner import scan

_CHUNK_BYTES: Final = 1 << 20
"""Reports are scanned in chunks of this size: small reports share the cost of array calls, and the
arrays still fit into the processor's cache."""
_MOST_LOOKED_AT: Final = 1_000
"""Number of a report's entries that are searched for a missing field."""
_NOT_UTF8: Final = "a name in it is not UTF-8"


class StockRead(NamedTuple):
    """The result of ``read_stock``."""

    brokers: dict[int, str]
    """By index: the reports whose heads are not canonical."""
    blocks: list[Block]
    """Entries, unchecked and without ids; rates are counts."""
    refusals: list[Refusal]


def read_stock(
    index: IntArray,
    first_entry: IntArray,
    canonical: BoolArray,
    values: Sequence[bytes | None],
    dense: DenseEntries,
) -> StockRead:
    """Read the reports ``index`` (m,) of ``values`` (n).

    ``first_entry`` (n,): the byte where a report's entries begin, valid if ``canonical`` (n,).
    """
    read = StockRead({}, [], [])
    known = index[canonical[index]]
    chosen = [values[i] or b"" for i in known.tolist()]
    odd = [index[~canonical[index]], _scan(known, first_entry[known], chosen, dense, read)]
    rewritten: list[bytes] = []
    for number in np.sort(np.concatenate(odd)).tolist():
        try:
            message = parse(values[number] or b"", dense)
            read.brokers[number] = check_broker(message.broker)
        except UnusableReportError as error:
            read.refusals.append(refusal(number, error))
            continue
        message.DiscardUnknownFields()
        message.ClearField("broker")
        rewritten.append(message.SerializePartialToString())
    # ``parse`` counted their entries already; rewritten canonically they take fewer bytes.
    which = np.array([*read.brokers], np.int64)
    unread = _scan(which, np.zeros_like(which), rewritten, None, read)
    if len(unread):
        too_long = "a group's name in it is longer than 16,000 bytes"
        read.refusals.append(Refusal(unread, BAD_GROUP, lambda _: too_long))
    return read


def _scan(
    index: IntArray,
    first_entry: IntArray,
    values: Sequence[bytes],
    dense: DenseEntries | None,
    read: StockRead,
) -> IntArray:
    """Add the entries of canonically written reports to ``read``; the indexes of the others."""
    odd: list[IntArray] = [np.empty(0, np.int64)]
    size = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))
    cuts = np.flatnonzero(np.diff(size // _CHUNK_BYTES)) + 1
    for begin, end in pairwise([0, *cuts.tolist(), len(values)]):
        if begin == end:
            continue
        scanned = scan(values[begin:end], first_entry[begin:end], dense)
        which, usable = index[begin:end], np.ones(end - begin, bool)
        read.refusals.extend(
            one._replace(which=which[one.which])
            for one in first_defects(
                usable,
                [
                    (
                        scanned.refused,
                        TOO_MANY_ENTRIES,
                        lambda _: "more entries than its size allows; not read",
                    ),
                    (scanned.garbled, NOT_PROTOBUF, lambda _: _NOT_UTF8),
                ],
            )
        )
        odd.append(which[usable & ~scanned.good])
        report = which[scanned.report]
        ids = np.full(len(report), NO_ID)
        read.blocks.append(Block(report, ids, scanned.owners, scanned.counts))
    return np.concatenate(odd)


def parse(value: bytes, dense: DenseEntries | None) -> Any:
    """Parse a report with the protobuf library; it has all required fields.

    Raises:
        UnusableReportError: it can't be parsed, is another message, or has too many entries.
    """
    # Parsing makes each entry an object of about 66 bytes, so count before. An entry's tag is the
    # first byte or, in a longer encoding than necessary, begins with the second. The tag of publish
    # counts, too.
    if dense is not None:
        tags = value.count(b"\x12") + value.count(b"\x92")
        if tags // 2 > dense.most(len(value)):
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
    if dense is not None and dense.refuses(count, len(value), LEAST_STOCK):
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
