"""Our own report format: exact bytes, round trips, columns read as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from quotaplane.model import (
    BASIC,
    COUNTER_COLUMNS,
    LIMIT_COLUMNS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    group_id,
)
from quotaplane.wire.pb.quotaplane_pb2 import UsageReport
from quotaplane.wire.report_own import _REPORT
from quotaplane.wire.shard_inputs import ENTRIES, OPTIONAL_ENTRIES, entries_schema
from tests.unit.wire.wire_cases import damaged, decode_now, names, own_report

NAN = np.nan
rates = st.one_of(st.floats(0, 1e15), st.just(np.nan))
MOST = np.nextafter(2.0**63, 0)
amounts = st.one_of(rates, st.floats(0, MOST), st.sampled_from([2.0**53, MOST]))
"""Counters are exact, and may be above the highest rate."""


def test_a_report_is_what_protobuf_and_the_job_read() -> None:
    value = own_report(applied=(3, 9))
    assert value[:5] == b"\x0dQPR1"
    message: Any = UsageReport.FromString(value)
    assert message.broker == "broker-1"
    assert (message.started_at_ms, message.sequence, message.window_ms) == (1000, 7, 5000)
    assert (message.applied_epoch, message.applied_seq) == (3, 9)
    assert list(message.groups) == ["a", "b"]
    assert list(message.publish_bytes_per_s) == [100.0, 200.0]
    assert list(message.dispatch_messages_per_s) == []  # NaN throughout: left out
    assert list(message.dispatch_bytes_per_s) == [0.0, 0.0]
    (head,) = decode_now(value).headers.to_pylist()
    assert head["broker"] == "broker-1"
    assert (head["started_at_ms"], head["sequence"], head["window_s"]) == (1000, 7, 5.0)
    assert (head["applied_epoch"], head["applied_seq"]) == (3, 9)


@pytest.mark.parametrize(
    ("applied", "read"),
    [
        ({}, (-1, -1)),
        ({"applied_epoch": 0, "applied_seq": 2**62}, (0, 2**62)),
        ({"applied_epoch": 3}, (-1, -1)),
        ({"applied_seq": 9}, (-1, -1)),
    ],
)
def test_a_head_is_the_same_whether_the_library_reads_it_or_not(
    applied: dict[str, int], read: tuple[int, int]
) -> None:
    head = {"broker": "b", "started_at_ms": 2**40, "sequence": 2**63 - 1, "window_ms": 2**32 - 1}
    value = b"\x0dQPR1" + UsageReport(**head, **applied).SerializeToString()
    found, by_library = (
        decode_now(each).headers.to_pylist() for each in (value, value + b"\x78\x00")
    )
    assert found == by_library
    assert [(each["applied_epoch"], each["applied_seq"]) for each in found] == [read]


IN_FORCE = {"applied_seqs": np.array([9, -1]), "limits": np.array([[5.0, np.inf, np.nan, 0.0]] * 2)}


def test_what_is_in_force_is_told_group_by_group() -> None:
    found = decode_now(own_report(applied=(3, 9), **IN_FORCE), own_report()).entries
    assert found["applied_seq"].to_numpy().tolist() == pytest.approx([9, -1, NAN, NAN], nan_ok=True)
    told = found["limit_publish_messages_per_s"].to_numpy().tolist()
    assert told == pytest.approx([5, 5, NAN, NAN], nan_ok=True)
    assert found["limit_publish_bytes_per_s"].to_numpy()[:2].tolist() == [np.inf] * 2
    assert np.isnan(found["limit_dispatch_messages_per_s"].to_numpy()).all()


def test_further_dimensions_beside_reports_that_have_none() -> None:
    usage = np.array([[1.0, 2.0, 3.0, 4.0, NAN, NAN, 7.0, 8.0], [NAN] * 8])
    throttled = np.array([[0.0, 0.0, 0.0, 0.0, NAN, NAN, 0.5, NAN], [NAN] * 8])
    limits = np.full((2, 8), [NAN, NAN, NAN, NAN, 9.0, np.inf, 8.0, NAN])
    counters = np.array([[1.0, 2.0, NAN, 0.0, 5.0, 6.0], [NAN] * 6])
    told = own_report(
        broker="b2", usage=usage, throttled=throttled, limits=limits, counters=counters
    )
    found = decode_now(own_report(), told)
    assert found.rejected.num_rows == 0
    assert found.entries.schema == entries_schema(*OPTIONAL_ENTRIES)
    given_columns = {RATE_COLUMNS: usage, THROTTLED_COLUMNS: throttled, COUNTER_COLUMNS: counters}
    for columns, expected in given_columns.items():
        for name, column in zip(columns, expected.T, strict=True):
            np.testing.assert_array_equal(found.entries[name].to_numpy()[2:], column)
    for name in (*RATE_COLUMNS[BASIC:], *THROTTLED_COLUMNS, *COUNTER_COLUMNS, *LIMIT_COLUMNS):
        assert np.isnan(found.entries[name].to_numpy()[:2]).all()
    assert found.entries[LIMIT_COLUMNS[4]].to_numpy()[2:].tolist() == [9.0, 9.0]
    assert decode_now(own_report()).entries.schema == ENTRIES


def test_a_report_of_before_there_were_totals_reads_as_ever() -> None:
    old = "0d5150523112026231180120072888274201675208000000000000084072080000000000000000"
    found = decode_now(bytes.fromhex(old))
    assert found.entries.schema == entries_schema(THROTTLED_COLUMNS[:BASIC])
    assert found.entries["publish_messages_per_s"].to_pylist() == [3.0]


@pytest.mark.parametrize(
    ("further", "problem"),
    [
        ({"total_bytes_per_s": [-1.0]}, "total_bytes_per_s is -1"),
        ({"controller_mutations_per_s": [1e300]}, "controller_mutations_per_s is 1e+300"),
        ({"throttled_total_bytes_per_s": [-1.0]}, "throttled_total_bytes_per_s is -1"),
        ({"total_bytes_per_s": [1.0, 2.0]}, "total_bytes_per_s has 2 values for 1 groups"),
        ({"limit_total_bytes_per_s": [-1.0]}, "a limit in force is below zero"),
        ({"limit_publish_bytes_per_s": [-1.0]}, "a limit in force is below zero"),
        ({"applied_seqs": [1, 2]}, "applied_seqs has 2 values for 1 groups"),
        ({"counter_publish_bytes": [1.0, 2.0]}, "counter_publish_bytes has 2 values for 1 groups"),
    ],
)
def test_columns_that_make_no_sense_are_refused(further: dict[str, Any], problem: str) -> None:
    report = UsageReport(magic=0x31525051, broker="b", groups=["a"], **further)
    (letter,) = decode_now(report.SerializeToString()).rejected.to_pylist()
    assert problem in letter["detail"]


@pytest.mark.parametrize(
    ("counter", "reason"),
    [(-1.0, "negative"), (-np.inf, "negative"), (np.inf, "not_finite"), (2.0**63, "absurd")],
)
def test_a_counter_that_is_no_amount_refuses_its_entry_alone(counter: float, reason: str) -> None:
    counters = np.array([[1.0, NAN, NAN, NAN], [7.0, counter, NAN, NAN]])
    found = decode_now(own_report(), own_report(counters=counters, broker="b2"))
    (letter,) = found.rejected.to_pylist()
    assert (letter["reason"], letter["position"]) == (reason, "1")
    assert f"1 of 2 entries: 'b': counter_publish_bytes is {counter:g}" in letter["detail"]
    assert found.entries["group"].to_pylist() == ["a", "b", "a"]
    kept = found.entries["counter_publish_messages"].to_numpy()
    np.testing.assert_array_equal(kept, [NAN, NAN, 1.0])


@given(st.data(), st.lists(names, min_size=1, max_size=6, unique=True), st.booleans())
def test_round_trip(data: st.DataObject, groups: list[str], by_id: bool) -> None:
    d = data.draw(st.sampled_from([BASIC, len(RATE_COLUMNS)]))
    usage = data.draw(hnp.arrays(float, (len(groups), d), elements=rates))
    counters = data.draw(hnp.arrays(float, (len(groups), min(d, 5)), elements=amounts))
    applied = data.draw(st.none() | st.tuples(st.integers(0, 9), st.integers(0, 2**62)))
    throttled = np.where(np.isnan(usage), np.nan, 1.0)
    value = own_report(
        usage=usage,
        throttled=throttled,
        counters=counters,
        applied=applied,
        groups=None if by_id else groups,
        group_ids=[group_id(name) for name in groups] if by_id else None,
    )
    found = decode_now(value)
    assert found.rejected.num_rows == 0
    (head,) = found.headers.to_pylist()
    assert head["uses_ids"] == by_id
    assert (head["applied_epoch"], head["applied_seq"]) == (applied or (-1, -1))
    assert found.entries["group_id"].to_pylist() == [group_id(name) for name in groups]
    assert found.entries["group"].to_pylist() == ([None] * len(groups) if by_id else groups)
    for columns, given_values in ((RATE_COLUMNS, usage), (COUNTER_COLUMNS, counters)):
        said = [name for name in columns if name in found.entries.column_names]
        back = [found.entries[name].to_numpy() for name in said]
        for column, values in zip(back, given_values.T, strict=False):
            np.testing.assert_array_equal(column, values)
        assert np.isnan(given_values[:, len(said) :]).all()


@given(damaged(st.sampled_from([own_report(), own_report(groups=None, group_ids=[1, 2])])))
def test_columns_read_as_arrays_are_those_of_protobuf(value: bytes) -> None:
    try:
        expected: Any = UsageReport.FromString(value)
    except DecodeError:
        with pytest.raises(DecodeError):
            _REPORT.parse(value)
        return
    message, columns = _REPORT.parse(value)
    assert (message.broker, message.sequence) == (expected.broker, expected.sequence)
    assert list(message.groups) == list(expected.groups)
    for name, column in columns.items():
        np.testing.assert_array_equal(column, np.array(list(getattr(expected, name))))


ONE, TWO = (np.array([rate]).tobytes() for rate in (1.0, 2.0))


@pytest.mark.parametrize(
    "column", [b"\x51" + ONE + b"\x51" + TWO, b"\x52\x08" + ONE + b"\x52\x08" + TWO]
)
def test_a_column_may_be_not_packed_or_in_two_pieces(column: bytes) -> None:
    plain = own_report(usage=np.array([[1.0, *[NAN] * 3], [2.0, *[NAN] * 3]]))
    whole = b"\x52\x10" + ONE + TWO
    assert whole in plain
    found, expected = (decode_now(each).entries for each in (plain.replace(whole, column), plain))
    assert found.num_rows == 2
    for name in expected.column_names:
        np.testing.assert_array_equal(found[name].to_pylist(), expected[name].to_pylist())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group_ids": [1, 2]}, "either groups or group_ids"),
        ({"groups": None}, "either groups or group_ids"),
        ({"groups": ["a"]}, "2 rows of rates for 1 groups"),
        ({"throttled": np.zeros((1, 4))}, "shape"),
    ],
)
def test_encode_refuses_what_does_not_fit(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        own_report(**changes)
