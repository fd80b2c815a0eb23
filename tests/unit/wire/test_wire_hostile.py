"""Reports made to cost as much as they can: what is read of them, and what is made of the rest.

Nothing here measures time; benchmarks/hostile_reports.py does.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quotaplane.settings import Reports
from quotaplane.wire.intake import Intake
from quotaplane.wire.pb.pulsar_resource_usage_pb2 import ResourceUsageInfo
from quotaplane.wire.pb.quotaplane_pb2 import UsageReport
from quotaplane.wire.rejected_reports import MOST_LETTERS, condensed
from quotaplane.wire.report_own import encode_report
from quotaplane.wire.reports import encode_stock_report
from tests.unit.wire.wire_cases import NOW_MS, damaged, decode_now, own_report, refused

GROUP = "a group as it may be called"
GOOD, NICE = (
    encode_stock_report(broker, [GROUP], np.array([[5, 10, 15, 20]])) for broker in ("good", "nice")
)
SIZE = 1 << 20


def own(broker: str = "b", rest: bytes = b"", **head: int) -> bytes:
    """A report in our own format: a heartbeat, and what comes behind its head."""
    given = {"started_at_ms": 1, "sequence": 1, "window_ms": 5000, **head}
    return encode_report(broker=broker, groups=[], usage=np.empty((0, 4)), **given) + rest


def filled(head: bytes, piece: bytes, size: int = SIZE) -> list[bytes]:
    return [head + piece * ((size - len(head)) // len(piece))]


STOCK = b"\x0a\x01b"
IDS = b"\x4a\xc0\x84\x3d" + np.arange(125_000, dtype="<i8").tobytes()
BOMBS: dict[str, Callable[[], list[bytes]]] = {
    "empty entries": lambda: filled(STOCK, b"\x12\x00"),
    "empty entries without a broker": lambda: filled(b"", b"\x12\x00"),
    "empty names": lambda: filled(STOCK, b"\x12\x02\x0a\x00"),
    "names of a letter": lambda: filled(STOCK, b"\x12\x03\x0a\x01a"),
    "names of a letter without a broker": lambda: filled(b"", b"\x12\x03\x0a\x01a"),
    "unknown fields": lambda: filled(STOCK, b"\x18\x01"),
    "nested": lambda: filled(STOCK, b"\x1b" * 90 + b"\x1c" * 90),
    "nested too deep": lambda: filled(STOCK, b"\x1b" * 1000 + b"\x1c" * 1000),
    "our empty names": lambda: filled(own(), b"\x42\x00"),
    "our names of a letter": lambda: filled(own(), b"\x42\x01a"),
    "our ids alone": lambda: [own(rest=IDS)],
    "our ids in pieces": lambda: filled(own(), b"\x4a\x08abcdefg\x00"),
    "our ids not packed": lambda: filled(own(), b"\x49abcdefg\x00"),
    "our empty pieces": lambda: filled(own(), b"\x4a\x00"),
    "our unknown fields": lambda: filled(own(), b"\x78\x00"),
    "our brokers": lambda: filled(own(), b"\x12\x01b"),
    "a long name": lambda: [own(rest=b"\x42\xff\xff\x3f" + b"x" * 0xFFFFF)],
    "a long broker": lambda: [own("b" * SIZE)],
    "junk": lambda: [b"\xff" * 100] * 1_000,
    "heartbeats": lambda: [own(sequence=n) for n in range(1_000)],
    "heartbeats of many": lambda: [own(f"b{n}") for n in range(1_000)],
    "odd heartbeats": lambda: [own(f"b{n}", b"\x78\x00") for n in range(1_000)],
    "one group each": lambda: [own(f"b{n}", b"\x42\x01g\x52\x08" + bytes(8)) for n in range(1_000)],
    "nothing": lambda: [b""] * 1_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_bomb_costs_few_objects_and_leaves_good_reports_alone(
    bomb: Callable[[], list[bytes]],
) -> None:
    values = bomb()
    decode_now(GOOD, values[0][:1000])  # what is made once
    tracemalloc.start()
    try:
        found = decode_now(GOOD, *values, NICE, reports=Reports())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 30e6  # of Python and numpy
    letters = condensed(found.rejected)
    brokers = found.headers["broker"].to_pylist()
    assert {brokers[0], brokers[-1]} == {"good", "nice"}
    assert found.entries["group"].to_pylist().count(GROUP) == 2
    assert letters.num_rows <= 2 * (MOST_LETTERS + 1)
    assert max(map(len, found.rejected["detail"].to_pylist()), default=0) < 600
    assert found.headers.num_rows + sum(refused(found).values()) == len(values) + 2


def test_names_that_are_new_are_learned_a_part_at_a_time() -> None:
    names = [f"never seen before {n}" for n in range(50)]
    value = encode_stock_report("b", names, np.ones((50, 4)))
    known = GOOD
    decode_now(known)
    for round_ in range(3):
        found = decode_now(known, value, intake=Intake(new_names=20))
        assert found.entries.num_rows == 1 + min(20 * (round_ + 1), 50)
        letters = found.rejected.to_pylist()
        assert [letter["reason"] for letter in letters] == ["too_many_entries"] * (round_ < 2)
        assert not any(letter["counts_as_bad"] for letter in letters)  # the report is used


def test_of_a_report_with_many_bad_entries_a_few_are_kept() -> None:
    counts = np.ones((3000, 4))
    counts[1:] = 2.0**63
    value = encode_stock_report("b", [f"group {n}" for n in range(3000)], counts)
    usage = np.full((3000, 4), -1.0)
    usage[0] = 1.0
    ours = own_report(groups=[f"group {n}" for n in range(3000)], usage=usage)
    found = decode_now(value, ours)
    assert found.entries["group"].to_pylist() == ["group 0"] * 2
    raw = found.rejected["raw"].to_pylist()
    kept = ResourceUsageInfo.FromString(raw[0])
    assert [entry.owner for entry in kept.usageMap] == [f"group {n}" for n in range(1, 101)]
    assert len(raw[1]) < 5000
    assert all("2999 of 3000 entries" in text for text in found.rejected["detail"].to_pylist())


def test_a_name_that_is_not_utf8_costs_its_own_report_only() -> None:
    bad = GOOD + b"\x12\x04\x0a\x02\xc0\xa1"
    cut = GOOD + b"\x12\x05\x0a\x03\xe2\x82a"  # the character goes on in what is no name any more
    found = decode_now(GOOD, bad, NICE, cut)
    assert found.headers["broker"].to_pylist() == ["good", "nice"]
    assert found.rejected["detail"].to_pylist() == ["a name in it is not UTF-8"] * 2


def test_a_name_of_many_kilobytes_costs_its_own_report() -> None:
    long, usual = (
        encode_stock_report("b", ["g" * size, "usual"], np.ones((2, 4))) for size in (20_000, 9000)
    )
    found = decode_now(long, long + b"\x12\x04\x0a\x02\xc0\xa1", usual, GOOD)
    assert found.entries["group"].to_pylist() == ["usual", GROUP]
    assert found.rejected["reason"].to_pylist() == ["bad_group"] * 3


@pytest.mark.parametrize("at_ms", [-(2**63), -1, 2**62, 2**63 - 1])
def test_no_publish_time_raises(at_ms: int) -> None:
    found = decode_now(GOOD, own(), published_at_ms=at_ms)
    assert found.headers.num_rows + sum(refused(found).values()) == 2


@pytest.mark.parametrize("rest", [b"", b"\x42\x01g", b"\x78\x00"], ids=["alone", "groups", "odd"])
@pytest.mark.parametrize(
    ("started_at_ms", "reason"),
    [
        (NOW_MS + 30_000, None),
        (NOW_MS + 30_001, "future"),
        (2**63 - 1, "future"),
        (2**63, "absurd"),
        (2**64 - 1, "absurd"),
    ],
)
def test_a_broker_that_started_after_now_is_not_heard(
    rest: bytes, started_at_ms: int, reason: str | None
) -> None:
    said_twice = own("b", rest) + UsageReport(started_at_ms=started_at_ms).SerializeToString()
    for value in (own("b", rest, started_at_ms=started_at_ms), said_twice):
        found = decode_now(value)
        assert refused(found) == ({} if reason is None else {reason: 1})
        assert found.headers.num_rows == (reason is None)


HEARTBEATS = st.builds(
    own,
    st.text(min_size=1, max_size=5),
    started_at_ms=st.sampled_from([0, 1, 127, 128, 2**40, 2**56, 2**63 - 1, 2**63, 2**64 - 1]),
    sequence=st.sampled_from([0, 7, 2**56 - 1, 2**63, 2**64 - 1]),
    window_ms=st.sampled_from([0, 5000, 2**32 - 1]),
)


NO_PROTOBUF = {"not_protobuf": 1}


@example(b"\x0dQPR1\x12\x010\x18\x80\x80\x80\x80\x80\x80\x18\x80\x80\x80\x80\x80\x80\x80\x01")
@given(damaged(HEARTBEATS))
def test_damaged_heads_are_read_as_the_library_reads_them(value: bytes) -> None:
    plainly = decode_now(value)
    if value[:5] != b"\x0dQPR1":
        return
    # A second magic changes nothing, but then it is no head as they are written.
    odd = decode_now(value[:5] + value[:5] + value[5:])
    for name in plainly.headers.column_names:
        assert plainly.headers[name].to_pylist() == odd.headers[name].to_pylist()
    # With two faults, as a start that is to come before bytes that are no protobuf, either is said.
    assert refused(plainly) == refused(odd) or (refused(plainly) and refused(odd) == NO_PROTOBUF)
