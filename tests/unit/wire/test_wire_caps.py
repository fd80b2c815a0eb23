"""How many entries a report may have: honest ones are used, whatever others are beside them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.groups.ids import NOT_READ
from quotaplane.wire import report_own, report_stock
from quotaplane.wire.intake import BYTES_PER_ENTRY, DenseEntries, Intake
from quotaplane.wire.packed_columns import ColumnView
from quotaplane.wire.reports import encode_stock_report
from tests.unit.wire.wire_cases import decode_now, own_report, refused


def idle(broker: str, count: int, length: int, format_: str = "stock") -> bytes:
    """A report of groups whose use is unchanged: little more than their names."""
    names = [f"{n:0{length}d}" for n in range(count)]
    if format_ == "stock":
        return encode_stock_report(broker, names, np.full((count, 4), np.nan))
    head: dict[str, Any] = {"broker": broker, "usage": np.full((count, 4), np.nan)}
    if format_ == "ours":
        return own_report(groups=names, **head)
    return own_report(groups=None, group_ids=np.arange(count), **head)


@pytest.mark.parametrize("format_", ["stock", "ours", "ids"])
def test_small_entries_are_refused_only_beyond_the_even_part_and_the_spare_ones(
    format_: str,
) -> None:
    """And what has entries of ordinary size, or few of them, is not refused for it."""
    values = [
        idle("dense-1", 200, 4, format_),
        idle("usual-1", 20, 24, format_),
        idle("dense-2", 200, 4, format_),
        idle("small", 30, 4, format_),
        idle("dense-3", 200, 4, format_),
        idle("usual-2", 20, 24, format_),
    ]
    found = decode_now(*values, intake=Intake(dense_entries=375))
    used = set(found.headers["broker"].to_pylist())
    assert used >= {"usual-1", "usual-2", "small"}
    assert len(used & {"dense-1", "dense-2", "dense-3"}) == 1
    assert refused(found) == {"too_many_entries": len(values) - len(used)}


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["stock", "stock, odd", "ours", "ids"])
def test_brokers_with_5000_idle_groups_of_the_shortest_names_are_used(format_: str) -> None:
    names = ["".join(pair) for pair in itertools.product(map(chr, range(33, 127)), repeat=2)][:5000]
    head: dict[str, Any] = {"broker": "b00", "usage": np.full((5000, 4), np.nan)}
    value = encode_stock_report("b00", names, head["usage"])
    if format_ == "stock, odd":
        value += bytes.fromhex("18 01")
    elif format_ == "ours":
        value = own_report(groups=names, **head)
    elif format_ == "ids":
        value = own_report(groups=None, group_ids=range(5000), **head)
    found = decode_now(*(value.replace(b"b00", b"b%02d" % n) for n in range(100)))
    assert found.rejected.num_rows == 0
    assert found.headers.num_rows == 100
    assert found.entries.num_rows == 500_000


@pytest.mark.parametrize(
    ("piece", "count"),
    [(b"\x12\x00", 8000), (b"\x12\x02\x0a\x00", 4000), (b"\x12\x03\x0a\x01g", 3400)],
    ids=["empty entries", "empty names", "the same short name"],
)
def test_entries_smaller_than_any_broker_writes_are_refused_and_cost_others_nothing(
    piece: bytes, count: int
) -> None:
    evil = [b"\x0a\x03e%02d" % n + piece * count for n in range(70)]
    honest = [idle(f"b{n}", 5000, 7) for n in range(30)]
    found = decode_now(*evil, *honest)
    assert found.headers["broker"].to_pylist() == [f"b{n}" for n in range(30)]
    assert found.entries.num_rows == 150_000
    assert sum(refused(found).values()) == 70


@pytest.mark.parametrize("format_", ["stock", "ours"])
def test_many_new_names_of_few_reports_leave_room_for_those_of_others(format_: str) -> None:
    names = iter(range(10**6))

    def report(broker: str, count: int) -> bytes:
        groups = [f"{format_} new {next(names)}" for _ in range(count)]
        if format_ == "stock":
            return encode_stock_report(broker, groups, np.ones((count, 4)))
        return own_report(broker=broker, groups=groups, usage=np.ones((count, 4)))

    evil = [report(f"e{n}", 900) for n in range(4)]
    honest = [report(f"b{n}", 10) for n in range(16)]
    ids = own_report(broker="ids", group_ids=[NOT_READ, 5], groups=None, usage=np.ones((2, 4)))
    found = decode_now(*evil, *honest, ids, intake=Intake(new_names=600))
    entries = np.bincount(found.entries["report"].to_numpy())
    of_broker = dict(zip(found.headers["broker"].to_pylist(), entries.tolist(), strict=True))
    assert {name: of_broker[name] for name in of_broker if name[0] == "b"} == {
        f"b{n}": 10 for n in range(16)
    }
    assert sum(of_broker.get(f"e{n}", 0) for n in range(4)) == 600 - 160
    assert of_broker["ids"] == 1


@given(st.lists(st.tuples(st.integers(1, 400_000), st.integers(1, 8_000_000)), max_size=30))
def test_all_that_is_read_is_bounded_by_the_bytes(sizes: list[tuple[int, int]]) -> None:
    intake = Intake()
    dense = DenseEntries(intake, reports=len(sizes))
    entries, size = (np.array([pair[i] for pair in sizes], np.int64) for i in (0, 1))
    first, rest = slice(0, len(sizes) // 2), slice(len(sizes) // 2, None)
    kept = ~np.concatenate([dense.refuse(entries[part], size[part], 6) for part in (first, rest)])
    by_bytes = size // BYTES_PER_ENTRY
    assert entries[kept].sum() <= intake.dense_entries + by_bytes[kept].sum()
    usual = by_bytes + intake.dense_entries * 2 // (3 * max(len(sizes), 1))
    assert kept[entries <= np.minimum(usual, size // 6)].all()


FEW = Intake(dense_entries=30)


@pytest.mark.parametrize(
    "names",
    [b"\xf8\x07\x01" + b"\x42\x00" * 1000, b"\xc2\x00\x00" * 1000, b"\xc2\x00\x03abc" * 1000],
    ids=["an unknown field", "long tags of empty names", "long tags of names"],
)
def test_a_report_with_too_many_names_is_not_written_anew(
    names: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the library has to do with one that no encoder of ours wrote."""
    head = own_report(groups=[], usage=np.empty((0, 4)))
    for small in (b"\x42\x03abc", b"\xc2\x00\x03abc"):
        assert decode_now(head + small, intake=FEW).entries.num_rows == 1
    assert isinstance(report_own._REPORT, ColumnView)
    monkeypatch.setattr(report_own._REPORT, "_whole", None)
    assert refused(decode_now(head + names, intake=FEW)) == {"too_many_entries": 1}


@pytest.mark.parametrize("entry", [b"\x12\x00", b"\x92\x00\x00", b"\x92\x80\x00\x02\x0a\x00"])
def test_a_stock_report_with_too_many_entries_is_not_parsed(
    entry: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_stock, "ResourceUsageInfo", None)
    found = decode_now(b"\x0a\x01b" + entry * 5000, intake=FEW)
    (letter,) = found.rejected.to_pylist()
    assert letter["reason"] == "too_many_entries"
