"""Reports for the tests of wire: random ones, damaged ones, and a reference decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from hypothesis import strategies as st

from quotaplane.model import IntArray
from quotaplane.settings import Reports
from quotaplane.wire.limits import encode_limits
from quotaplane.wire.pb.pulsar_resource_usage_pb2 import ResourceUsageInfo
from quotaplane.wire.reasons import STALE
from quotaplane.wire.rejected_reports import Refusal, letters_of_batch
from quotaplane.wire.report_heads import senders
from quotaplane.wire.reports import Decoded, decode, encode_report
from quotaplane.wire.sender_rules import ANY_SENDER

NOW_MS = 1_700_000_000_000
REPORTS = Reports(interval_s=5)

# Counts whose bytes look like tags and lengths of the message around them.
_TRICKY = [0, 1, 8, 10, 0x0A, 0x12, 0x1A, 0x22, 127, 128, 0x0A12, 18 << 7, 2322, 2**52 + 1]
counts = st.one_of(st.sampled_from(_TRICKY), st.integers(0, 2**52))
names = st.one_of(
    st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=12),
    st.text("ab/", min_size=1, max_size=300),
)


def with_fields(message: Any, fields: Mapping[str, Any]) -> bytes:
    """The bytes of a protobuf message in which some fields have other values."""
    for name, value in fields.items():
        if isinstance(value, list):
            del getattr(message, name)[:]
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    return bytes(message.SerializeToString())


@st.composite
def stock_messages(draw: st.DrawFn, values: st.SearchStrategy[int] = counts) -> Any:
    """A ResourceUsageInfo as a Pulsar broker could send it."""
    message: Any = ResourceUsageInfo(broker=draw(names))
    for name in draw(st.lists(names, max_size=8, unique=True)):
        entry = message.usageMap.add(owner=name)
        for part in ("publish", "dispatch"):
            if draw(st.booleans()):
                usage = getattr(entry, part)
                usage.messagesPerPeriod, usage.bytesPerPeriod = draw(values), draw(values)
        if draw(st.integers(0, 3)) == 0:
            entry.storage.totalBytes = draw(values)
    return message


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """A message with some bytes flipped, removed, duplicated or inserted."""
    value = bytearray(draw(whole))
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["flip", "set", "cut", "lose", "double", "insert"]))
        at = draw(st.integers(0, max(len(value) - 1, 0)))
        until = at + draw(st.integers(1, 12))
        if kind == "flip" and value:
            value[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "set" and value:
            value[at] = draw(st.sampled_from([0, 8, 10, 16, 18, 26, 34, 127, 128, 255]))
        elif kind == "cut":
            del value[at:]
        elif kind == "lose":
            del value[at:until]
        elif kind == "double":
            value[at:at] = value[at:until]
        else:
            value[at:at] = draw(st.binary(min_size=1, max_size=12))
    return bytes(value)


def entries_by_protobuf(value: bytes) -> tuple[str, list[tuple[Any, ...]]] | None:
    """Decode with protobuf alone: the broker, and each entry's owner and counts (None = absent).

    None if the bytes can't be decoded.
    """
    try:
        message: Any = ResourceUsageInfo.FromString(value)
        if not message.IsInitialized():
            return None
        rows = []
        for entry in message.usageMap:
            row: list[Any] = [entry.owner]
            for part in ("publish", "dispatch"):
                usage, has = getattr(entry, part), entry.HasField(part)
                two = [float(usage.messagesPerPeriod), float(usage.bytesPerPeriod)]
                row += two if has else [None, None]
            rows.append(tuple(row))
    except DecodeError:
        return None
    if any(isinstance(name, bytes) for name in (message.broker, *(row[0] for row in rows))):
        return None  # not UTF-8
    return message.broker, rows


def own_report(**changes: Any) -> bytes:
    """A good report of two groups in our own format, with changes."""
    fields: dict[str, Any] = {
        "broker": "broker-1",
        "started_at_ms": 1000,
        "sequence": 7,
        "window_ms": 5000,
        "groups": ["a", "b"],
        "usage": np.array([[1.0, 100.0, np.nan, 0.0], [2.0, 200.0, np.nan, 0.0]]),
    }
    return encode_report(**{**fields, **changes})


def limits_message(**changes: Any) -> bytes:
    """Limits of two groups of broker b1, with changes."""
    fields: dict[str, Any] = {
        "broker": "b1",
        "shard": 0,
        "epoch": 1,
        "seq": 7,
        "issued_at_ms": 0,
        "lease_ms": 5000,
        "groups": ["a", "b"],
        "limits": np.array([[20.0, np.inf, 0.0, np.inf], [1 / 3, np.inf, np.inf, np.inf]]),
    }
    return encode_limits(**{**fields, **changes})


def decode_now(*values: bytes | None, **options: Any) -> Decoded:
    """Decode reports published now, at positions "0", "1" ..."""
    return decode(
        values,
        np.full(len(values), options.pop("published_at_ms", NOW_MS)),
        [str(i) for i in range(len(values))],
        now_ms=NOW_MS,
        reports=options.pop("reports", REPORTS),
        intake=options.pop("intake", None),
    )


def refused(decoded: Decoded) -> dict[str, int]:
    """The number of refused reports by reason, from the dead letters."""
    sums = decoded.rejected.group_by("reason").aggregate([("reports", "sum")]).to_pylist()
    return {row["reason"]: row["reports_sum"] for row in sums}


def decode_fresh(
    values: Sequence[bytes | None],
    published_at_ms: IntArray,
    positions: Sequence[str],
    *,
    now_ms: int,
    oldest_s: float,
    **options: Any,
) -> Decoded:
    """Decode the reports that are not older than ``oldest_s``; the others are dead letters.

    As ``streams.sources`` does with reports of a topic that does not store them.
    """
    late = now_ms - published_at_ms > oldest_s * 1000
    stale = Refusal(np.flatnonzero(late), STALE, lambda _: "too old")
    fresh = np.flatnonzero(~late).tolist()
    rules = options.pop("senders", ANY_SENDER)
    if rules.named is not None:
        rules = replace(rules, named=rules.named.filter(pa.array(~late)))
    found = decode(
        [values[n] for n in fresh],
        published_at_ms[~late],
        [positions[n] for n in fresh],
        now_ms=now_ms,
        senders=rules,
        **options,
    )
    letters = letters_of_batch([stale], values, published_at_ms, positions, senders)
    return replace(found, rejected=pa.concat_tables([found.rejected, letters]))
