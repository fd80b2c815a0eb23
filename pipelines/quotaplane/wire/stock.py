"""Stock Pulsar's ``ResourceUsageInfo``: bytes to blocks, and back for simulators and benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from quotaplane.model import BASIC, FloatArray, IntArray
from quotaplane.wire.blocks import Block
from quotaplane.wire.ids import ids_of_column
from quotaplane.wire.pb.pulsar_resource_usage_pb2 import ResourceUsageInfo
from quotaplane.wire.reasons import (
    MISSING_FIELD,
    NOT_PROTOBUF,
    WRONG_PROTOBUF,
    UnusableReportError,
    check_broker,
)
from quotaplane.wire.scan import scan

_CHUNK_BYTES: Final = 1 << 20
"""Reports are scanned together up to this size: small ones share the cost of the array calls, and
large ones don't push each other's arrays out of the processor's cache."""


def decode_stock(
    values: dict[int, bytes], interval_s: float
) -> tuple[dict[int, str | UnusableReportError], list[Block]]:
    """Decode reports, keyed by their index in the batch.

    Returns the broker, or what is wrong, of every report, and the entries of the usable ones
    (values not checked yet) as rates: count / ``interval_s``.
    """
    brokers: dict[int, str | UnusableReportError] = {}
    blocks: list[Block] = []
    others = []
    for chunk in _chunks(values):
        heads = {index: _plain_head(values[index]) for index in chunk}
        plain = [index for index in chunk if heads[index] is not None]
        others += [index for index in chunk if heads[index] is None]
        if not plain:
            continue
        found = scan([values[i] for i in plain], [heads[i][1] for i in plain])  # type: ignore[index]
        for index, good in zip(plain, found.good.tolist(), strict=True):
            if good:
                brokers[index] = heads[index][0]  # type: ignore[index]
            else:
                others.append(index)
        report = np.asarray(plain, np.int64)[found.report]
        blocks.append(Block(report, report, found.owners, found.counts))
    blocks = [_finished(Block.join(blocks), interval_s)] if blocks else []
    for index in others:
        try:
            brokers[index], block = _decode_one(values[index], index)
        except UnusableReportError as error:
            brokers[index] = error
        else:
            blocks.append(_finished(block, interval_s))
    return brokers, blocks


def _finished(block: Block, interval_s: float) -> Block:
    """With ids for names, and rates for counts."""
    return Block(block.report, ids_of_column(block.names), block.names, block.rates / interval_s)


def _chunks(values: dict[int, bytes]) -> Iterable[list[int]]:
    chunk: list[int] = []
    size = 0
    for index, value in values.items():
        chunk.append(index)
        size += len(value)
        if size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _plain_head(value: bytes) -> tuple[str, int] | None:
    """The broker and where the entries begin, if the report begins as plainly as Pulsar's do."""
    if len(value) < 3 or value[0] != 0x0A:
        return None
    begin, length = 2, value[1]
    if length >= 0x80:
        if value[2] >= 0x80:
            return None
        begin, length = 3, length - 0x80 + (value[2] << 7)
    if begin + length > len(value):
        return None
    try:
        return check_broker(value[begin : begin + length].decode()), begin + length
    except (UnicodeDecodeError, UnusableReportError):
        return None


def parse(value: bytes) -> Any:
    """The report as protobuf reads it, with all that is required.

    Raises:
        UnusableReportError: it can't be read, or is no report.
    """
    try:
        message: Any = ResourceUsageInfo.FromString(value)
    except DecodeError:
        raise UnusableReportError(
            NOT_PROTOBUF, f"{len(value)} bytes that are no ResourceUsageInfo, or not all of it"
        ) from None
    if not message.usageMap and (len(UnknownFieldSet(message)) or not message.HasField("broker")):
        raise UnusableReportError(WRONG_PROTOBUF, "none of a report's fields, but others")
    if not message.IsInitialized():
        missing = message.FindInitializationErrors()
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise UnusableReportError(MISSING_FIELD, f"without {', '.join(missing[:3])}{more}")
    return message


def _decode_one(value: bytes, index: int) -> tuple[str, Block]:
    """The same by the protobuf library, for what ``scan`` does not read. Rates are counts."""
    message = parse(value)
    owners = [entry.owner for entry in message.usageMap]
    if any(isinstance(name, bytes) for name in (message.broker, *owners)):
        # What protobuf makes of a proto2 string that is not UTF-8.
        raise UnusableReportError(NOT_PROTOBUF, "a name in it is not UTF-8")
    broker = check_broker(message.broker)
    counts = np.full((BASIC, len(owners)), np.nan)
    for part, rows in (("publish", slice(0, 2)), ("dispatch", slice(2, 4))):
        has = [i for i, entry in enumerate(message.usageMap) if entry.HasField(part)]
        usage = [getattr(message.usageMap[i], part) for i in has]
        both = [[u.messagesPerPeriod for u in usage], [u.bytesPerPeriod for u in usage]]
        counts[rows, has] = np.array(both, dtype=np.uint64)
    report = np.full(len(owners), index, np.int64)
    return broker, Block(report, report, pa.array(owners, pa.string()), counts)


def keep_entries(value: bytes, chosen: Iterable[int]) -> bytes:
    """The report cut down to some of its entries."""
    whole = parse(value)
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
