"""Limits on the wire: exact, and refused by the broker's end when they make no sense."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from quotaplane.errors import InputError
from quotaplane.model import DIMENSIONS, group_id
from quotaplane.wire.limits import MAX_LIMITS_BYTES, MOST_NAMES, decode_limits
from quotaplane.wire.pb.quotaplane_pb2 import LimitsUpdate
from tests.unit.wire.wire_cases import limits_message, names, own_report

INF = np.inf
MAGIC = 0x314C5051
D = len(DIMENSIONS)


def test_protobuf_reads_what_is_written() -> None:
    head = {"shard": 2, "epoch": 3, "seq": 2**62, "issued_at_ms": 1_700_000_000_000}
    value = limits_message(removed_groups=["c"], removed_group_ids=[5], **head)
    assert value[:5] == b"\x0dQPL1"
    message: Any = LimitsUpdate.FromString(value)
    assert (message.broker, message.shard, message.epoch, message.seq) == ("b1", 2, 3, 2**62)
    assert (message.issued_at_ms, message.lease_ms) == (1_700_000_000_000, 5000)
    assert list(message.groups) == ["a", "b"]
    assert list(message.publish_messages_per_s) == [20.0, 1 / 3]
    assert list(message.publish_bytes_per_s) == []  # unlimited for all: left out
    assert list(message.dispatch_messages_per_s) == [0.0, INF]
    assert list(message.removed_groups) == ["c"]
    assert list(message.removed_group_ids) == [5]


def test_only_the_dimensions_that_are_given_are_written() -> None:
    some = np.array([[5.0, 7.0], [INF, 8.0]])
    value = limits_message(
        limits=some, safe_limits=some, dimensions=("publish_bytes", "total_bytes")
    )
    message: Any = LimitsUpdate.FromString(value)
    assert list(message.total_bytes_per_s) == list(message.safe_total_bytes_per_s) == [7.0, 8.0]
    assert {field.name for field, _ in message.ListFields() if field.name.endswith("_s")} == {
        f"{safe}{name}_per_s" for safe in ("", "safe_") for name in ("publish_bytes", "total_bytes")
    }
    found = decode_limits(value)
    assert found.limits[0].tolist() == [INF, 5.0, INF, INF, INF, 7.0, INF, INF]
    with pytest.raises(ValueError, match="argument 2 is longer"):
        limits_message(dimensions=("publish_bytes",))


HARD, SLIDING = '{"*": {"mode": "hard"}}', '{"*": {"law": "sliding_window"}}'


def test_terms_are_told_with_safe_limits_or_by_themselves() -> None:
    safe = np.ones((2, 4))
    for told in ((HARD, ""), ("", SLIDING), ("", "")):
        for with_safe in ({"safe_limits": safe}, {}):
            assert decode_limits(limits_message(throttles=told, **with_safe)).throttles == told
    assert decode_limits(limits_message(safe_limits=safe)).throttles == ("", "")
    # Defaults take no bytes beside safe limits.
    plain = limits_message(safe_limits=safe)
    assert limits_message(safe_limits=safe, throttles=["", ""]) == plain
    assert decode_limits(limits_message()).throttles is None
    with pytest.raises(ValueError, match="1 throttles for 2 groups"):
        limits_message(throttles=[HARD])


def test_a_limits_message_byte_for_byte() -> None:
    """The one in docs/reference/wire.md."""
    limits, safe_limits = np.array([[20.0]]), np.array([[10.0]])
    value = limits_message(groups=["g"], limits=limits, safe_limits=safe_limits, throttles=[HARD])
    head = bytes.fromhex("0d51504c31 12026231 2001 2807 388827 420167")
    limit = bytes.fromhex("5208 0000000000003440")
    safe = bytes.fromhex("8a0108 0000000000002440")
    assert value == head + limit + safe + bytes.fromhex("da0117") + HARD.encode()


@given(st.data(), st.lists(names, max_size=5), st.lists(names, max_size=3), st.booleans())
def test_round_trip(data: st.DataObject, groups: list[str], gone: list[str], by_id: bool) -> None:
    texts = st.lists(names, min_size=len(groups), max_size=len(groups))
    throttles = data.draw(st.none() | texts.map(tuple))
    elements = st.one_of(st.floats(0, 1e18), st.just(INF))
    rates = hnp.arrays(float, (len(groups), D), elements=elements)
    safe_limits = data.draw(st.none() | rates)
    same = {
        "shard": 2,
        "epoch": 3,
        "seq": 2**62,
        "issued_at_ms": 1_700_000_000_000,
        "broker_started_at_ms": data.draw(st.sampled_from([0, 77])),
        "limits": data.draw(rates),
    }
    ids, gone_ids = [group_id(name) for name in groups], [group_id(name) for name in gone]
    keys: dict[str, Any] = (
        {"groups": None, "group_ids": ids, "removed_group_ids": gone_ids}
        if by_id
        else {"groups": groups, "removed_groups": gone}
    )
    value = limits_message(safe_limits=safe_limits, throttles=throttles, **same, **keys)
    found = decode_limits(value)
    expected = {
        **same,
        "broker": "b1",
        "lease_ms": 5000,
        "groups": () if by_id else tuple(groups),
        "group_ids": ids if by_id else [],
        "removed_groups": () if by_id else tuple(gone),
        "removed_group_ids": gone_ids if by_id else [],
    }
    for name, each in expected.items():
        np.testing.assert_array_equal(getattr(found, name), each)
    if groups:  # of no groups there is nothing to be told
        defaults = None if safe_limits is None else ("",) * len(groups)
        assert found.throttles == (throttles or defaults)
        assert (found.safe_limits is None) == (safe_limits is None)
    if found.safe_limits is not None:
        np.testing.assert_array_equal(found.safe_limits, safe_limits)


@pytest.mark.parametrize("limit", [np.nan, -1.0, -INF])
def test_encode_refuses_limits_that_are_none(limit: float) -> None:
    with pytest.raises(ValueError, match="NaN or negative"):
        limits_message(limits=np.array([[1.0, 1, 1, limit], [1, 1, 1, 1]]))


def _raw(**fields: Any) -> bytes:
    return LimitsUpdate(**{"magic": MAGIC, "broker": "b", **fields}).SerializeToString()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"", "begins with nothing"),
        (own_report(), "begins with 0d 51 50 52 31"),
        (limits_message()[:-1], "or truncated"),
        (_raw(groups=["a"], group_ids=[1]), "both group names and group ids"),
        (_raw(groups=["a"], publish_bytes_per_s=[1, 2]), "2 values for 1 groups"),
        (_raw(groups=["a"], publish_bytes_per_s=[float("nan")]), "NaN or negative"),
        (_raw(groups=["a"], publish_bytes_per_s=[-1]), "NaN or negative"),
        (_raw(groups=["a"], throttles=["", ""]), "2 throttles for 1 groups"),
        (_raw(broker=""), "name is empty"),
        (_raw(broker="b\n"), "not printable"),
        (_raw(broker="b" * 513), "513 characters"),
        (_raw(group_ids=[-1]), "a negative id among group_ids"),
        (_raw(removed_group_ids=[5, -(2**63)]), "a negative id among removed_group_ids"),
        (b"\0" * (MAX_LIMITS_BYTES + 1), f"of {MAX_LIMITS_BYTES + 1} bytes"),
        *(
            (_raw(**{name: 2**63}), f"LimitsUpdate for 'b': {name} is {2**63}")
            for name in ("epoch", "seq", "issued_at_ms", "broker_started_at_ms")
        ),
        (_raw(issued_at_ms=2**63 - 5000, lease_ms=5000), "the lease ends at"),
    ],
)
def test_decode_refuses_what_is_none(value: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        decode_limits(value)


@pytest.mark.parametrize("column", ["groups", "removed_groups", "throttles"])
def test_names_are_counted_before_they_are_read(column: str) -> None:
    message = LimitsUpdate.FromString(limits_message(groups=[], limits=np.empty((0, 4))))
    getattr(message, column).extend(["x"] * (MOST_NAMES + 1))
    value = message.SerializeToString()
    assert len(value) < MAX_LIMITS_BYTES
    with pytest.raises(InputError, match=f"100001 {column} .at most 100000."):
        decode_limits(value)
