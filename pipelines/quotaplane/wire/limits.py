"""``LimitsUpdate`` messages: what one broker may use, out and in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from quotaplane.errors import InputError
from quotaplane.model import DIMENSIONS, RATE_COLUMNS, SAFE_COLUMNS, FloatArray, IntArray
from quotaplane.wire.packed_columns import ColumnView
from quotaplane.wire.pb.quotaplane_pb2 import LimitsUpdate
from quotaplane.wire.reasons import check_broker
from quotaplane.wire.report_own import FAMILY, Names, as_strings, group_columns

LIMITS_HEAD: Final = FAMILY + b"L1"
MAX_LIMITS_BYTES: Final = 2 * 1024 * 1024
"""A longer message is refused unread: the job cuts a broker's limits into portions of 0.5 MB."""
_MAGIC: Final = int.from_bytes(LIMITS_HEAD[1:], "little")
_UPDATE: Final = ColumnView(LimitsUpdate)
_NUMBERS: Final = ("epoch", "seq", "issued_at_ms", "broker_started_at_ms")
_IDS: Final = ("group_ids", "removed_group_ids")
_MOST: Final = 2**63
"""Numbers on the wire have 64 bits without a sign, those of readers 63 bits and one."""


@dataclass(frozen=True)
class LimitsMessage:
    """A decoded ``LimitsUpdate``.

    The n groups are either in ``groups`` (names) or in ``group_ids``, the other is empty.
    ``limits`` and ``safe_limits`` (n, dimensions) are per second, inf = unlimited; the latter may
    be None: as told before. ``throttles`` (n): on what terms requests are held to the limits, as
    texts of ``throttle.terms``, "" = the defaults; None: as told before. Removed groups may come
    both ways at once.
    """

    broker: str
    shard: int
    epoch: int
    seq: int
    issued_at_ms: int
    lease_ms: int
    broker_started_at_ms: int
    groups: tuple[str, ...]
    group_ids: IntArray
    limits: FloatArray
    safe_limits: FloatArray | None
    throttles: tuple[str, ...] | None
    removed_groups: tuple[str, ...]
    removed_group_ids: IntArray


def encode_limits(
    *,
    broker: str,
    shard: int,
    epoch: int,
    seq: int,
    issued_at_ms: int,
    lease_ms: int,
    limits: FloatArray,
    dimensions: Sequence[str] | None = None,
    groups: Names | None = None,
    group_ids: Sequence[int] | IntArray | None = None,
    removed_groups: Names | None = None,
    removed_group_ids: Sequence[int] | IntArray | None = None,
    broker_started_at_ms: int = 0,
    safe_limits: FloatArray | None = None,
    throttles: Names | None = None,
) -> bytes:
    """One broker's limits (n, d) per second, inf = unlimited, for n groups by name or by id.

    ``dimensions``: the d they are in, None = the first d of all; in others there is no limit.
    ``safe_limits`` (n, d): what holds after the lease, None = as told before.
    ``throttles`` (n): texts of terms, "" = the defaults; None = as told before or, with
    ``safe_limits``, the defaults for all.
    ``broker_started_at_ms``: of the broker's incarnation that it is for, 0 = any.

    A dimension that is unlimited for all of them is left out.

    >>> update = encode_limits(broker="b1", shard=0, epoch=1, seq=7, issued_at_ms=0, lease_ms=5000,
    ...     groups=["g"], limits=np.array([[20.0]]))
    >>> decode_limits(update).limits[:, :3]
    array([[20., inf, inf]])

    Raises:
        ValueError: names and ids are both given or both not, shapes don't fit, or a limit is NaN
            or negative.
    """
    limits = np.asarray(limits, np.float64)
    if not (limits >= 0).all():
        raise ValueError("a limit is NaN or negative")
    names = DIMENSIONS[: limits.shape[1]] if dimensions is None else dimensions
    message: Any = LimitsUpdate(
        magic=_MAGIC,
        broker=broker,
        shard=shard,
        epoch=epoch,
        seq=seq,
        issued_at_ms=issued_at_ms,
        lease_ms=lease_ms,
        broker_started_at_ms=broker_started_at_ms,
    )
    columns = group_columns(groups, group_ids, len(limits))
    for name, column in zip(names, limits.T, strict=True):
        if not np.isposinf(column).all():
            columns[f"{name}_per_s"] = column
    if safe_limits is not None:
        safe = np.asarray(safe_limits, np.float64).T
        columns.update((f"safe_{n}_per_s", one) for n, one in zip(names, safe, strict=True))
    if throttles is not None:
        texts = as_strings(throttles)
        if len(texts) != len(limits):
            raise ValueError(f"{len(texts)} throttles for {len(limits)} groups")
        # With safe limits nothing but the defaults need not be said.
        if safe_limits is None or pc.any(pc.not_equal(texts, "")).as_py():
            columns["throttles"] = texts
    if removed_groups is not None:
        columns["removed_groups"] = as_strings(removed_groups)
    if removed_group_ids is not None:
        columns["removed_group_ids"] = np.asarray(removed_group_ids, np.int64)
    return _UPDATE.write(message, columns)


def decode_limits(value: bytes) -> LimitsMessage:
    """Read one ``LimitsUpdate``.

    Raises:
        InputError: it is none, or what it says makes no sense.
    """
    if len(value) > MAX_LIMITS_BYTES:
        raise InputError(f"LimitsUpdate of {len(value)} bytes (at most {MAX_LIMITS_BYTES})")
    if not value.startswith(LIMITS_HEAD):
        raise InputError(f"not a LimitsUpdate: it begins with {value[:5].hex(' ') or 'nothing'}")
    try:
        message, columns = _UPDATE.parse(value)
    except DecodeError:
        raise InputError(f"not a LimitsUpdate, or not all of it: {len(value)} bytes") from None
    check_broker(message.broker)
    _check_numbers(message, columns)
    groups = tuple(message.groups)
    ids = columns["group_ids"]
    if groups and len(ids):
        raise InputError(f"LimitsUpdate for {message.broker!r}: groups by name and by id at once")
    count = len(groups) or len(ids)
    safe_told = any(len(columns[name]) for name in SAFE_COLUMNS)
    throttles: tuple[str, ...] | None = tuple(message.throttles) or None
    if throttles is None and safe_told:
        throttles = ("",) * count
    if throttles is not None and len(throttles) != count:
        raise InputError(
            f"LimitsUpdate for {message.broker!r}: {len(throttles)} throttles for {count} groups"
        )
    return LimitsMessage(
        broker=message.broker,
        shard=message.shard,
        epoch=message.epoch,
        seq=message.seq,
        issued_at_ms=message.issued_at_ms,
        lease_ms=message.lease_ms,
        broker_started_at_ms=message.broker_started_at_ms,
        groups=groups,
        group_ids=ids.astype(np.int64),
        limits=_rates(message.broker, columns, RATE_COLUMNS, count),
        safe_limits=_rates(message.broker, columns, SAFE_COLUMNS, count) if safe_told else None,
        throttles=throttles,
        removed_groups=tuple(message.removed_groups),
        removed_group_ids=columns["removed_group_ids"].astype(np.int64),
    )


def _check_numbers(message: Any, columns: dict[str, FloatArray | IntArray]) -> None:
    """Refuse what a reader with signed 64-bit numbers would take for something else."""
    where = f"LimitsUpdate for {message.broker!r}"
    for name in _NUMBERS:
        if getattr(message, name) >= _MOST:
            raise InputError(f"{where}: {name} is {getattr(message, name)}")
    if message.issued_at_ms + message.lease_ms >= _MOST:
        raise InputError(f"{where}: the lease ends at {message.issued_at_ms + message.lease_ms} ms")
    for name in _IDS:
        if (columns[name] < 0).any():
            raise InputError(f"{where}: a negative id among {name}")


def _rates(
    broker: str, columns: dict[str, FloatArray | IntArray], names: Sequence[str], count: int
) -> FloatArray:
    """Columns as (count, dimensions); an empty one is unlimited throughout."""
    rates = np.full((count, len(names)), np.inf)
    for at, name in enumerate(names):
        column = columns[name]
        if len(column) not in (0, count):
            raise InputError(
                f"LimitsUpdate for {broker!r}: {name} has {len(column)} values for {count} groups"
            )
        if len(column):
            rates[:, at] = column
    if not (rates >= 0).all():
        raise InputError(f"LimitsUpdate for {broker!r}: a limit is NaN or negative")
    return rates
