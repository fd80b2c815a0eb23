"""``LimitsUpdate`` messages, which carry one broker's limits: encoding and decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from quotaplane.errors import InputError
from quotaplane.model import DIMENSIONS, RATE_COLUMNS, SAFE_COLUMNS, FloatArray, IntArray
from quotaplane.wire.packed_columns import ColumnView
from quotaplane.wire.pb.quotaplane_pb2 import LimitsUpdate
from quotaplane.wire.reasons import check_broker
from quotaplane.wire.report_own import FAMILY, Names, as_strings, group_columns
from quotaplane.wire.signatures import SigningKeys

LIMITS_HEAD: Final = FAMILY + b"L1"
MAX_LIMITS_BYTES: Final = 2 * 1024 * 1024
"""A longer message is refused unread; the job sends a broker's limits in portions of 0.5 MB."""
MOST_NAMES: Final = 100_000
"""A message with more names is refused before they are read: an empty one has two bytes, and takes
a hundred times as much memory. Portions of the job have some 20,000 limits."""
_MAGIC: Final = int.from_bytes(LIMITS_HEAD[1:], "little")
_UPDATE: Final = ColumnView(LimitsUpdate)
_NUMBERS: Final = ("epoch", "seq", "issued_at_ms", "broker_started_at_ms")
_IDS: Final = ("group_ids", "removed_group_ids")
_SIGNED_LIMIT: Final = 2**63
"""Numbers on the wire are unsigned 64-bit; readers may use signed 64-bit numbers."""


@dataclass(frozen=True)
class LimitsMessage:
    """A decoded ``LimitsUpdate`` for n groups."""

    broker: str
    shard: int
    epoch: int
    seq: int
    issued_at_ms: int
    lease_ms: int
    broker_started_at_ms: int
    """Start time of the broker process that the message is for; 0: any."""
    groups: tuple[str, ...]
    """Names (n), or empty if the groups are in ``group_ids``."""
    group_ids: IntArray
    """Ids (n), or empty if the groups are in ``groups``."""
    limits: FloatArray
    """(n, dimensions) per second; inf: unlimited."""
    safe_limits: FloatArray | None
    """(n, dimensions) per second, valid once the lease has ended; None: unchanged."""
    throttles: tuple[str, ...] | None
    """(n) throttle terms as texts (``throttle.terms``), "": the defaults; None: unchanged."""
    removed_groups: tuple[str, ...]
    removed_group_ids: IntArray
    """Removed groups may come by name and by id in one message."""

    def issued_on(self, *, wall_ms: float, steady_ms: float) -> int:
        """When it was issued, as it arrives now, on a reader's clock that can't be set.

        Not later than now, so no limit holds for longer than a lease after it arrived, however
        wrong the reader's clock or the job's is.
        """
        return int(steady_ms - max(wall_ms - self.issued_at_ms, 0.0))


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
    """Encode one broker's limits for n groups.

    A dimension in which all groups are unlimited is left out.

    Args:
        broker: the receiver's name.
        shard: which sent it.
        epoch: of the sending job.
        seq: of the round.
        issued_at_ms: when the lease begins.
        lease_ms: how long the limits are valid.
        limits: (n, d) per second; inf: unlimited.
        dimensions: names of the d columns; None: the first d of ``DIMENSIONS``.
        groups: names (n), maybe encoded (``encoded_names``); either these or ``group_ids``.
        group_ids: ids (n).
        removed_groups: names of groups that the broker no longer has limits for.
        removed_group_ids: the same by id.
        broker_started_at_ms: start time of the broker process that it is for; 0: any.
        safe_limits: (n, d) per second, valid once the lease has ended; None: unchanged.
        throttles: (n) terms as texts, "": the defaults; None: unchanged, or with ``safe_limits``
            the defaults for all.

    >>> update = encode_limits(broker="b1", shard=0, epoch=1, seq=7, issued_at_ms=0, lease_ms=5000,
    ...     groups=["g"], limits=np.array([[20.0]]))
    >>> decode_limits(update).limits[:, :3]
    array([[20., inf, inf]])

    Raises:
        ValueError: not exactly one of names and ids is given, shapes don't match, or a limit is NaN
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
        columns.update((f"safe_{n}_per_s", column) for n, column in zip(names, safe, strict=True))
    if throttles is not None:
        texts = as_strings(throttles)
        if len(texts) != len(limits):
            raise ValueError(f"{len(texts)} throttles for {len(limits)} groups")
        # With safe limits, absent throttles mean the defaults for all.
        if safe_limits is None or pc.any(pc.not_equal(texts, "")).as_py():
            columns["throttles"] = texts
    if removed_groups is not None:
        columns["removed_groups"] = as_strings(removed_groups)
    if removed_group_ids is not None:
        columns["removed_group_ids"] = np.asarray(removed_group_ids, np.int64)
    return _UPDATE.write(message, columns)


def encoded_names(field: str, names: pa.StringArray) -> pa.BinaryArray:
    """Names for ``encode_limits``: encoded once, if many messages have them.

    ``field``: ``groups`` or ``removed_groups``.
    """
    return _UPDATE.encoded(field, names)


def decode_limits(value: bytes, keys: SigningKeys | None = None) -> LimitsMessage:
    """Decode one ``LimitsUpdate``.

    ``keys``: the message must be signed with one of them, which is verified before it is parsed.
    None: a signature is not looked at.

    Raises:
        InputError: the bytes are not a ``LimitsUpdate``, a value is invalid, or the signature is
            missing or wrong.
    """
    if len(value) > MAX_LIMITS_BYTES:
        raise InputError(f"LimitsUpdate of {len(value)} bytes (at most {MAX_LIMITS_BYTES})")
    if not value.startswith(LIMITS_HEAD):
        raise InputError(f"not a LimitsUpdate: begins with {value[:5].hex(' ') or 'nothing'}")
    if keys is not None:
        value = keys.verify(value)
    try:
        message, columns = _UPDATE.parse(value, _check_count)
    except DecodeError:
        raise InputError(f"not a LimitsUpdate, or truncated: {len(value)} bytes") from None
    if keys is not None and message.signature:
        raise InputError("signed more than once")
    check_broker(message.broker)
    _check_numbers(message, columns)
    groups = tuple(message.groups)
    ids = columns["group_ids"]
    if groups and len(ids):
        raise InputError(f"LimitsUpdate for {message.broker!r}: has both group names and group ids")
    count = len(groups) or len(ids)
    has_safe_limits = any(len(columns[name]) for name in SAFE_COLUMNS)
    throttles: tuple[str, ...] | None = tuple(message.throttles) or None
    if throttles is None and has_safe_limits:
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
        safe_limits=_rates(message.broker, columns, SAFE_COLUMNS, count)
        if has_safe_limits
        else None,
        throttles=throttles,
        removed_groups=tuple(message.removed_groups),
        removed_group_ids=columns["removed_group_ids"].astype(np.int64),
    )


def _check_count(message: Any) -> None:
    for name in ("groups", "removed_groups", "throttles"):
        count = len(getattr(message, name))
        if count > MOST_NAMES:
            raise InputError(f"LimitsUpdate: {count} {name} (at most {MOST_NAMES})")


def _check_numbers(message: Any, columns: dict[str, FloatArray | IntArray]) -> None:
    """Refuse numbers that a reader with signed 64-bit numbers would misread."""
    where = f"LimitsUpdate for {message.broker!r}"
    for name in _NUMBERS:
        if getattr(message, name) >= _SIGNED_LIMIT:
            raise InputError(f"{where}: {name} is {getattr(message, name)}")
    if message.issued_at_ms + message.lease_ms >= _SIGNED_LIMIT:
        raise InputError(f"{where}: the lease ends at {message.issued_at_ms + message.lease_ms} ms")
    for name in _IDS:
        if (columns[name] < 0).any():
            raise InputError(f"{where}: a negative id among {name}")


def _rates(
    broker: str, columns: dict[str, FloatArray | IntArray], names: Sequence[str], count: int
) -> FloatArray:
    """Columns as an array (count, dimensions); an empty column is unlimited."""
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
