"""Our own ``UsageReport``: bytes to blocks, and back for brokers, simulators and benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from quotaplane.groups.ids import NO_ID, ids_of
from quotaplane.model import (
    BASIC,
    LIMIT_COLUMNS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    FloatArray,
    IntArray,
)
from quotaplane.wire.batch_caps import LEAST_ID, LEAST_OWN, BatchCaps
from quotaplane.wire.packed_columns import Column, ColumnView
from quotaplane.wire.pb.quotaplane_pb2 import UsageReport
from quotaplane.wire.reasons import (
    ABSURD,
    FUTURE,
    LENGTH_MISMATCH,
    NEGATIVE,
    NOT_PROTOBUF,
    TOO_MANY_ENTRIES,
    WRONG_PROTOBUF,
    UnusableReportError,
    check_broker,
)
from quotaplane.wire.report_block import Block, Header

FAMILY: Final = b"\x0dQP"
"""How all our messages begin; then one letter for the kind, one for the version."""

REPORT_HEAD: Final = FAMILY + b"R1"
_MAGIC: Final = int.from_bytes(REPORT_HEAD[1:], "little")
MOST: Final = 2**63
"""A number of a report from here on is a negative long of Java's."""
Names: TypeAlias = Sequence[str] | pa.StringArray
_REPORT: Final = ColumnView(UsageReport)
_IN_FORCE: Final = frozenset(("applied_seqs", *LIMIT_COLUMNS))
_FURTHER: Final = frozenset(
    name for names in (RATE_COLUMNS, THROTTLED_COLUMNS, LIMIT_COLUMNS) for name in names[BASIC:]
)
"""Columns of the dimensions that not every broker counts."""
_NUMBERS: Final = ("started_at_ms", "sequence", "applied_epoch", "applied_seq")


def decode_own(
    value: bytes, index: int, caps: BatchCaps, latest_start_ms: int
) -> tuple[Header, Block]:
    """Decode one report; ``index`` is its place in the batch. Rates are not checked yet.

    Raises:
        UnusableReportError: the report as a whole can't be used.
    """

    def check_count(count: int, least: int) -> None:
        if caps.refuses(count, len(value), least):
            raise UnusableReportError(TOO_MANY_ENTRIES, f"{count} groups in {len(value)} bytes")

    message, columns = _parse(value, lambda view: check_count(len(view.groups), LEAST_OWN))
    broker = check_broker(message.broker)
    for name in _NUMBERS:
        if getattr(message, name) >= MOST:
            raise UnusableReportError(ABSURD, f"{name} is {getattr(message, name)}")
    if message.started_at_ms > latest_start_ms:
        raise UnusableReportError(FUTURE, started_too_late(message.started_at_ms, latest_start_ms))
    given = columns["group_ids"]
    check_count(len(given), LEAST_ID)
    count = len(message.groups) or len(given)
    names: list[str] = list(message.groups)
    if names and len(given):
        raise UnusableReportError(
            LENGTH_MISMATCH, f"{len(names)} groups by name and {len(given)} by id: one or the other"
        )
    column = pa.array(names, pa.string()) if names else None
    ids = ids_of(names, caps) if names else np.maximum(given, NO_ID).astype(np.int64)
    d = _spoken_of(columns)
    rates = _stack(columns, RATE_COLUMNS[:d], count)
    throttled = flawed = None
    given_throttled = [row for row, name in enumerate(THROTTLED_COLUMNS) if name in columns]
    if given_throttled:
        throttled = _stack(columns, THROTTLED_COLUMNS[:d], count)
        holes = np.isnan(throttled[given_throttled]) & ~np.isnan(rates[given_throttled])
        flawed = holes.any(axis=0)
    in_force = None
    if not columns.keys().isdisjoint(_IN_FORCE):
        in_force = _stack(columns, ("applied_seqs", *LIMIT_COLUMNS[:d]), count)
        if (in_force[1:] < 0).any():
            raise UnusableReportError(NEGATIVE, "a limit in force is below zero")
    block = Block(
        report=np.full(count, index, np.int64),
        ids=ids,
        names=column,
        rates=rates,
        throttled=throttled,
        flawed=flawed if flawed is not None and flawed.any() else None,
        in_force=in_force,
    )
    applied = message.HasField("applied_epoch") and message.HasField("applied_seq")
    header = Header(
        broker=broker,
        started_at_ms=message.started_at_ms,
        sequence=message.sequence,
        window_s=message.window_ms / 1000.0,
        applied_epoch=message.applied_epoch if applied else -1,
        applied_seq=message.applied_seq if applied else -1,
        uses_ids=len(given) > 0,
    )
    return header, block


def started_too_late(started_at_ms: int, latest_start_ms: int) -> str:
    """The detail for a report whose broker says that it started when it can't have."""
    return (
        f"its broker started {(started_at_ms - latest_start_ms) / 1000:g} s later than now and "
        "reports.max_clock_skew_s allow (started_at_ms)"
    )


def _parse(
    value: bytes, check: Callable[[Any], None] = lambda _: None
) -> tuple[Any, dict[str, FloatArray | IntArray]]:
    if value[:5] != REPORT_HEAD:
        head = value[1:5].decode("ascii", "replace")
        raise UnusableReportError(
            WRONG_PROTOBUF, f"a quotaplane message, but {head!r} is no report"
        )
    try:
        message, columns = _REPORT.parse(value, check)
    except DecodeError:
        raise UnusableReportError(
            NOT_PROTOBUF, f"{len(value)} bytes that are no UsageReport, or not all of it"
        ) from None
    if message.magic != _MAGIC:
        raise UnusableReportError(WRONG_PROTOBUF, f"its magic is {message.magic:#x} in the end")
    return message, columns


def _spoken_of(columns: dict[str, FloatArray | IntArray]) -> int:
    """How many of the dimensions a report is about: the basic ones, or all."""
    return BASIC if columns.keys().isdisjoint(_FURTHER) else len(RATE_COLUMNS)


def _stack(
    columns: dict[str, FloatArray | IntArray], names: Sequence[str], count: int
) -> FloatArray:
    """The columns as (names, count); an empty one is all NaN."""
    stacked = np.full((len(names), count), np.nan)
    for row, name in enumerate(names):
        if name not in columns:
            continue
        column = columns[name]
        if len(column) == count:
            stacked[row] = column
        else:
            raise UnusableReportError(
                LENGTH_MISMATCH, f"{name} has {len(column)} values for {count} groups"
            )
    return stacked


def keep_entries(value: bytes, chosen: Iterable[int]) -> bytes:
    """The report cut down to some of its entries."""
    message, columns = _parse(value)
    picked = np.fromiter(chosen, np.int64)
    part = _head(message)
    part.groups.extend([message.groups[i] for i in picked.tolist()] if message.groups else [])
    return _REPORT.write(part, {name: column[picked] for name, column in columns.items()})


def _head(message: Any) -> Any:
    part: Any = UsageReport(magic=_MAGIC, broker=message.broker, window_ms=message.window_ms)
    for name in _NUMBERS:
        if not name.startswith("applied") or message.HasField(name):
            setattr(part, name, getattr(message, name))
    return part


def encode_report(
    *,
    broker: str,
    started_at_ms: int,
    sequence: int,
    window_ms: int,
    usage: FloatArray,
    throttled: FloatArray | None = None,
    groups: Names | None = None,
    group_ids: Sequence[int] | IntArray | None = None,
    applied: tuple[int, int] | None = None,
    applied_seqs: IntArray | None = None,
    limits: FloatArray | None = None,
) -> bytes:
    """A report in our own format: ``usage`` and ``throttled`` (n, d) per second, NaN = unchanged.

    Either ``groups`` or ``group_ids`` (n). ``applied`` is the newest (epoch, seq) of the limits in
    force, ``applied_seqs`` (n) each group's seq in that epoch (-1 = none), ``limits`` (n, d) what
    is in force. d: the first so many of ``DIMENSIONS``; nothing is said of the others, nor of one
    that is NaN throughout.

    >>> value = encode_report(broker="b1", started_at_ms=1, sequence=7, window_ms=5000,
    ...     groups=["g"], usage=np.array([[3.0]]))
    >>> value.hex(" ")
    '0d 51 50 52 31 12 02 62 31 18 01 20 07 28 88 27 42 01 67 52 08 00 00 00 00 00 00 08 40'

    Raises:
        ValueError: names and ids are both given or both not, or the arrays' shapes don't fit.
    """
    message: Any = UsageReport(
        magic=_MAGIC,
        broker=broker,
        started_at_ms=started_at_ms,
        sequence=sequence,
        window_ms=window_ms,
    )
    if applied is not None:
        message.applied_epoch, message.applied_seq = applied
    columns = group_columns(groups, group_ids, len(usage))
    columns.update(_given(usage, RATE_COLUMNS))
    if throttled is not None:
        if np.shape(throttled) != np.shape(usage):
            raise ValueError("throttled is not of usage's shape")
        columns.update(_given(throttled, THROTTLED_COLUMNS))
    if applied_seqs is not None:
        columns["applied_seqs"] = np.asarray(applied_seqs, np.int64)
    if limits is not None:
        columns.update(_given(limits, LIMIT_COLUMNS))
    return _REPORT.write(message, columns)


def group_columns(
    groups: Names | None, group_ids: Sequence[int] | IntArray | None, count: int
) -> dict[str, Column]:
    """The column of names, or that of ids; so many of them."""
    if (groups is None) == (group_ids is None):
        raise ValueError("give either groups or group_ids")
    given: Any = groups if groups is not None else group_ids
    if count != len(given):
        raise ValueError(f"{count} rows of rates for {len(given)} groups")
    if groups is not None:
        return {"groups": as_strings(groups)}
    return {"group_ids": np.asarray(group_ids, np.int64)}


def as_strings(names: Names) -> pa.StringArray:
    """Names as an Arrow array, which they may be already."""
    return names if isinstance(names, pa.StringArray) else pa.array(names, pa.string())


def _given(rates: FloatArray, names: Sequence[str]) -> dict[str, FloatArray | IntArray]:
    columns = np.asarray(rates, float).T
    return {
        name: column
        for name, column in zip(names[: len(columns)], columns, strict=True)
        if not np.isnan(column).all()
    }
