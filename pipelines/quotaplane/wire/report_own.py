"""Our own report format ``UsageReport``: decoding to blocks, and encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from quotaplane.groups.ids import NO_ID
from quotaplane.model import (
    BASIC,
    COUNTER_COLUMNS,
    LIMIT_COLUMNS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    FloatArray,
    IntArray,
)
from quotaplane.wire.intake import LEAST_OWN, DenseEntries
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
"""First bytes of all our messages; then one letter for the kind and one for the version."""

REPORT_HEAD: Final = FAMILY + b"R1"
_MAGIC: Final = int.from_bytes(REPORT_HEAD[1:], "little")
MOST_NAMED_EVERY: Final = 100
"""Most reports of which one names each group: a group that its broker left is kept for so long."""
SIGNED_LIMIT: Final = 2**63
"""Java reads a number from here on as negative."""
Names: TypeAlias = Sequence[str] | pa.StringArray | pa.BinaryArray
_REPORT: Final = ColumnView(UsageReport)
_IN_FORCE: Final = frozenset(("applied_seqs", *LIMIT_COLUMNS))
_FURTHER: Final = frozenset(
    name
    for names in (RATE_COLUMNS, THROTTLED_COLUMNS, LIMIT_COLUMNS, COUNTER_COLUMNS)
    for name in names[BASIC:]
)
"""Columns of dimensions that not every broker reports."""
_NUMBERS: Final = ("started_at_ms", "sequence", "applied_epoch", "applied_seq")


def decode_own(
    value: bytes, index: int, dense: DenseEntries, latest_start_ms: int
) -> tuple[Header, Block]:
    """Decode the report at ``index`` of a batch. Names and rates are not checked yet.

    Raises:
        UnusableReportError: the whole report can't be used.
    """

    def check_count(count: int) -> None:
        if dense.refuses(count, len(value), LEAST_OWN):
            raise UnusableReportError(TOO_MANY_ENTRIES, f"{count} groups in {len(value)} bytes")

    message, columns = _parse(value, lambda view: check_count(len(view.groups)))
    broker = check_broker(message.broker)
    for name in _NUMBERS:
        if getattr(message, name) >= SIGNED_LIMIT:
            raise UnusableReportError(ABSURD, f"{name} is {getattr(message, name)}")
    if message.named_every > MOST_NAMED_EVERY:
        raise UnusableReportError(
            ABSURD, f"named_every is {message.named_every}, more than {MOST_NAMED_EVERY}"
        )
    if message.started_at_ms > latest_start_ms:
        raise UnusableReportError(FUTURE, started_too_late(message.started_at_ms, latest_start_ms))
    given = columns["group_ids"]
    check_count(len(given))
    count = len(message.groups) or len(given)
    names: list[str] = list(message.groups)
    if names and len(given):
        raise UnusableReportError(
            LENGTH_MISMATCH, f"{len(names)} group names and {len(given)} group ids; send one kind"
        )
    column = pa.array(names, pa.string()) if names else None
    ids = np.full(count, NO_ID) if names else np.maximum(given, NO_ID).astype(np.int64)
    d = _dimension_count(columns)
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
    counters = None
    if not columns.keys().isdisjoint(COUNTER_COLUMNS):
        counters = _stack(columns, COUNTER_COLUMNS[:d], count)
    block = Block(
        report=np.full(count, index, np.int64),
        ids=ids,
        names=column,
        rates=rates,
        throttled=throttled,
        flawed=flawed if flawed is not None and flawed.any() else None,
        in_force=in_force,
        counters=counters,
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
        observed=message.observed,
        named_every=message.named_every,
    )
    return header, block


def started_too_late(started_at_ms: int, latest_start_ms: int) -> str:
    """Dead letter detail for a broker whose start time is in the future."""
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
            NOT_PROTOBUF, f"{len(value)} bytes that are not a UsageReport, or truncated"
        ) from None
    if message.magic != _MAGIC:
        raise UnusableReportError(WRONG_PROTOBUF, f"its magic is {message.magic:#x} at the end")
    return message, columns


def _dimension_count(columns: dict[str, FloatArray | IntArray]) -> int:
    """Number of dimensions that a report covers: the basic ones, or all."""
    return BASIC if columns.keys().isdisjoint(_FURTHER) else len(RATE_COLUMNS)


def _stack(
    columns: dict[str, FloatArray | IntArray], names: Sequence[str], count: int
) -> FloatArray:
    """The columns as an array (names, count); an empty column is all NaN."""
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
    """The report with only some of its entries."""
    message, columns = _parse(value)
    picked = np.fromiter(chosen, np.int64)
    part = _head(message)
    part.groups.extend([message.groups[i] for i in picked.tolist()] if message.groups else [])
    return _REPORT.write(part, {name: column[picked] for name, column in columns.items()})


def _head(message: Any) -> Any:
    part: Any = UsageReport(magic=_MAGIC, broker=message.broker, window_ms=message.window_ms)
    part.observed, part.named_every = message.observed, message.named_every
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
    counters: FloatArray | None = None,
    observed: bool = False,
    named_every: int = 0,
) -> bytes:
    """Encode a report for n groups in our own format.

    Args:
        broker: the sender's name.
        started_at_ms: when the broker process started.
        sequence: number of the report since then.
        window_ms: the time that ``usage`` is averaged over.
        usage: (n, d) per second, in the first d of ``DIMENSIONS``; NaN: unchanged.
        throttled: (n, d) per second; None: not reported.
        groups: names (n); either these or ``group_ids``.
        group_ids: ids (n).
        applied: newest (epoch, seq) of the limits in force.
        applied_seqs: (n) each group's seq in that epoch; -1: no limit.
        limits: (n, d) limits in force.
        counters: (n, c) what was used since ``started_at_ms``, in the first c of
            ``COUNTER_COLUMNS``; NaN: not counted.
        observed: another program made the report from the broker's counters.
        named_every: the broker names each of its groups in one of so many reports; 0: in each.

    A dimension that is NaN for all groups is left out.

    >>> value = encode_report(broker="b1", started_at_ms=1, sequence=7, window_ms=5000,
    ...     groups=["g"], usage=np.array([[3.0]]))
    >>> value.hex(" ")
    '0d 51 50 52 31 12 02 62 31 18 01 20 07 28 88 27 42 01 67 52 08 00 00 00 00 00 00 08 40'

    Raises:
        ValueError: not exactly one of names and ids is given, or shapes don't match.
    """
    message: Any = UsageReport(
        magic=_MAGIC,
        broker=broker,
        started_at_ms=started_at_ms,
        sequence=sequence,
        window_ms=window_ms,
        observed=observed,
        named_every=named_every,
    )
    if applied is not None:
        message.applied_epoch, message.applied_seq = applied
    columns = group_columns(groups, group_ids, len(usage))
    columns.update(_given(usage, RATE_COLUMNS))
    if throttled is not None:
        if np.shape(throttled) != np.shape(usage):
            raise ValueError("throttled and usage have different shapes")
        columns.update(_given(throttled, THROTTLED_COLUMNS))
    if applied_seqs is not None:
        columns["applied_seqs"] = np.asarray(applied_seqs, np.int64)
    if limits is not None:
        columns.update(_given(limits, LIMIT_COLUMNS))
    if counters is not None:
        columns.update(_given(counters, COUNTER_COLUMNS))
    return _REPORT.write(message, columns)


def group_columns(
    groups: Names | None, group_ids: Sequence[int] | IntArray | None, count: int
) -> dict[str, Column]:
    """The column of names or of ids, which must have ``count`` elements."""
    if (groups is None) == (group_ids is None):
        raise ValueError("give either groups or group_ids")
    given: Any = groups if groups is not None else group_ids
    if count != len(given):
        raise ValueError(f"{count} rows of rates for {len(given)} groups")
    if groups is not None:
        return {"groups": as_strings(groups)}
    return {"group_ids": np.asarray(group_ids, np.int64)}


def as_strings(names: Names) -> pa.StringArray | pa.BinaryArray:
    """Names as an Arrow array; encoded ones stay so."""
    given = isinstance(names, pa.StringArray | pa.BinaryArray)
    return names if given else pa.array(names, pa.string())


def _given(rates: FloatArray, names: Sequence[str]) -> dict[str, FloatArray | IntArray]:
    columns = np.asarray(rates, float).T
    return {
        name: column
        for name, column in zip(names[: len(columns)], columns, strict=True)
        if not np.isnan(column).all()
    }
