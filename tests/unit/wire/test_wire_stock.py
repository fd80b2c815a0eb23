"""Stock Pulsar's format, byte for byte, and the fast reader against the protobuf library."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.model import BASIC, RATE_COLUMNS
from quotaplane.wire import report_stock as stock
from quotaplane.wire.intake import DenseEntries, Intake
from quotaplane.wire.pb.pulsar_resource_usage_pb2 import ResourceUsageInfo
from quotaplane.wire.report_batch import open_batch
from quotaplane.wire.reports import encode_stock_report
from tests.examples import examples
from tests.unit.wire.wire_cases import (
    NOW_MS,
    REPORTS,
    counts,
    damaged,
    decode_now,
    entries_by_protobuf,
    stock_messages,
)

# Written by hand from the .proto: broker "b1"; group "g1" with 300 bytes and 3 messages published,
# 150 bytes and 1 message dispatched, 5 bytes stored; group "g2" with nothing new.
GOLDEN = bytes.fromhex(
    "0a 02 62 31"
    "12 16"
    " 0a 02 67 31"
    " 12 05 08 ac 02 10 03"
    " 1a 05 08 96 01 10 01"
    " 22 02 08 05"
    "12 04"
    " 0a 02 67 32"
)


def _read(values: list[bytes]) -> list[Any]:
    """Content of each report: (broker, entries) with counts per period, or None; nothing of it is
    checked yet."""
    opened = open_batch(values, np.full(len(values), NOW_MS), NOW_MS, REPORTS, 8 << 20)
    dense = DenseEntries(Intake(), len(values))
    read = stock.read_stock(opened.stock, opened.first_entry, opened.canonical, values, dense)
    brokers = {index: header.broker for index, header in opened.headers.items()} | read.brokers
    refused = {i for one in (*opened.refusals, *read.refusals) for i in one.which.tolist()}
    found: list[Any] = [None if i in refused else (brokers[i], []) for i in range(len(values))]
    for block in read.blocks:
        for at, report in enumerate(block.report.tolist()):
            rates = [None if np.isnan(rate) else rate for rate in block.rates[:, at].tolist()]
            found[report][1].append((block.names[at].as_py(), *rates))
    return found


def test_golden_bytes() -> None:
    found = decode_now(GOLDEN)
    assert found.rejected.num_rows == 0
    (head,) = found.headers.to_pylist()
    assert [*head.values()] == ["b1", 0, NOW_MS, NOW_MS, 5.0, -1, -1, False, "0"]
    assert found.entries["group"].to_pylist() == ["g1", "g2"]
    assert found.entries.column_names[3:] == [*RATE_COLUMNS[:BASIC]]
    rates = [found.entries[name].to_pylist() for name in RATE_COLUMNS[:BASIC]]
    assert [first for first, _ in rates] == [0.6, 60.0, 0.2, 30.0]
    assert np.isnan([second for _, second in rates]).all()


def test_encode_writes_what_pulsar_writes() -> None:
    nan = np.nan
    value = encode_stock_report("b1", ["g1", "g2"], np.array([[3, 300, 1, 150], [nan] * 4]))
    without_storage = ResourceUsageInfo.FromString(GOLDEN)
    without_storage.usageMap[0].ClearField("storage")
    assert value == without_storage.SerializeToString()


def test_encode_refuses_half_a_class() -> None:
    with pytest.raises(ValueError, match="NaN"):
        encode_stock_report("b1", ["g"], np.array([[3, np.nan, np.nan, np.nan]]))


@given(st.lists(stock_messages(counts | st.integers(0, 2**64 - 1)), min_size=1, max_size=5))
def test_plain_reports_are_read_without_protobuf_as_protobuf_reads_them(
    messages: list[Any],
) -> None:
    values = [message.SerializeToString() for message in messages]
    with mock.patch.object(stock, "parse", side_effect=AssertionError):
        found = _read(values)
    assert found == [entries_by_protobuf(value) for value in values]


@pytest.mark.slow
@examples(3)
@given(st.lists(damaged(stock_messages().map(lambda m: m.SerializeToString())), max_size=3))
def test_damaged_reports_are_read_as_protobuf_reads_them_or_not_at_all(values: list[bytes]) -> None:
    for value, found in zip(values, _read(values), strict=True):
        expected = entries_by_protobuf(value)
        if found is not None:
            assert found == expected
        elif expected is not None:  # readable, and yet no report
            broker, entries = expected
            assert not entries or not broker.isprintable() or not broker


def test_entries_that_only_look_like_one() -> None:
    # 18 = the tag of an entry; 26 (the next tag) as a length; 10 = the tag of its owner
    value = encode_stock_report("b", ["g" * 8] * 1, np.array([[18, 18, 10, 2**40]]))
    long = encode_stock_report(
        "b", [f"g{i}" for i in range(200)], np.tile([[18, 2322, 2322, 2**31]], (200, 1))
    )
    assert _read([value, long, value]) == [entries_by_protobuf(v) for v in (value, long, value)]


def test_fields_out_of_order_and_unknown_ones_are_read_by_the_library() -> None:
    plain = encode_stock_report("b", ["g"], np.array([[1, 2, 3, 4]]))
    later_version = plain + bytes.fromhex("18 01")  # field 3, which Pulsar has not got yet
    swapped = plain[3:] + plain[:3]
    assert _read([later_version, swapped]) == [entries_by_protobuf(plain)] * 2


def test_overlong_numbers_mean_the_same() -> None:
    usage = bytes.fromhex("12 06 08 83 80 00 10 01")  # 3 in three bytes
    entry = bytes.fromhex("0a 01 67") + usage
    value = bytes.fromhex("0a 01 62 12") + bytes([len(entry)]) + entry
    assert _read([value]) == [("b", [("g", 1.0, 3.0, None, None)])]
