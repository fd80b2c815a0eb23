"""Events by shard: nothing lost, nothing doubled, whatever is packed together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.groups.policy_options import POLICY_COLUMNS
from quotaplane.model import BASIC, RATE_COLUMNS, THROTTLED_COLUMNS, group_id, shard_of
from quotaplane.wire.reports import encode_stock_report
from quotaplane.wire.shard_inputs import (
    ENTRIES,
    GROUPS,
    HEADERS,
    entries_schema,
    pack_groups,
    pack_reports,
    unpack_groups,
    unpack_reports,
)
from tests.unit.wire.wire_cases import decode_now, own_report

NAMES = [f"group-{i}" for i in range(40)]


def _stock(broker: str, count: int) -> bytes:
    return encode_stock_report(broker, NAMES[:count], np.full((count, BASIC), 5.0 * count))


def _rows(headers: pa.Table, entries: pa.Table) -> list[tuple[Any, ...]]:
    """(broker, group, rates) of each entry, sorted; rates as text, so that NaN equals NaN."""
    brokers = headers["broker"].to_pylist()
    return sorted(
        (brokers[row["report"]], row["group"], *(str(row[name]) for name in RATE_COLUMNS[:BASIC]))
        for row in entries.to_pylist()
    )


@pytest.mark.parametrize("shards", [1, 2, 7])
def test_every_entry_is_in_its_shard_with_every_header(shards: int) -> None:
    decoded = decode_now(_stock("b1", 40), _stock("b2", 25), _stock("b3", 0))
    packed = pack_reports(decoded, shards)
    assert [shard for shard, _ in packed] == list(range(shards))
    rows = []
    for shard, payload in packed:
        headers, entries = unpack_reports([payload])
        assert headers.equals(decoded.headers)
        assert set(shard_of(entries["group_id"].to_numpy(), shards).tolist()) <= {shard}
        rows += _rows(headers, entries)
    assert sorted(rows) == _rows(decoded.headers, decoded.entries)
    assert len(rows) == 65


def test_several_batches_are_joined_and_keep_their_headers() -> None:
    one = decode_now(_stock("b1", 10), _stock("b2", 20))
    two = decode_now(_stock("b3", 0))
    three = decode_now(_stock("b4", 30), own_report(broker="b5", throttled=np.full((2, 4), 3.0)))
    payloads = [pack_reports(part, 1)[0][1] for part in (one, two, three)]
    headers, entries = unpack_reports(payloads)
    assert headers.schema == HEADERS
    assert entries.schema == entries_schema(THROTTLED_COLUMNS[:BASIC])
    column = entries["throttled_dispatch_bytes_per_s"].to_numpy()
    expected = np.where(entries["report"].to_numpy() == 4, 3.0, np.nan)
    np.testing.assert_array_equal(column, expected)
    assert headers["broker"].to_pylist() == ["b1", "b2", "b3", "b4", "b5"]
    counted = np.bincount(entries["report"].to_numpy(), minlength=5).tolist()
    assert counted == [10, 20, 0, 30, 2]
    assert _rows(headers, entries) == sorted(
        row for part in (one, two, three) for row in _rows(part.headers, part.entries)
    )


def test_no_usable_report_is_no_payload() -> None:
    assert pack_reports(decode_now(b"?"), 4) == []
    headers, entries = unpack_reports([])
    assert headers.schema == HEADERS
    assert entries.schema == ENTRIES


def _changes(names: list[str], version: int) -> pa.Table:
    """Columns in an order of their own, as a reader of the change feed may have them."""
    columns: dict[str, Any] = {
        "version": pa.array([version] * len(names), pa.int64()),
        "group": pa.array(names),
        "deleted": pa.array([name.endswith("3") for name in names]),
        "group_id": pa.array([group_id(name) for name in names], pa.int64()),
    }
    for name, kind in POLICY_COLUMNS.items():
        value = "x" if kind == pa.string() else 3
        columns[name] = pa.array([value if i % 2 else None for i in range(len(names))], kind)
    for at, rate in enumerate(RATE_COLUMNS):
        columns[rate] = pa.array([None if i % 4 == at else float(i) for i in range(len(names))])
    return pa.table(columns)


@pytest.mark.parametrize("shards", [1, 3])
def test_groups_round_trip(shards: int) -> None:
    first, second = _changes(NAMES, 1), _changes(NAMES[:1], 2)
    payloads: dict[int, list[bytes]] = {}
    for table in (first, second.to_batches()[0]):
        for shard, payload in pack_groups(table, shards):
            payloads.setdefault(shard, []).append(payload)
    found = [unpack_groups(payloads[shard]) for shard in sorted(payloads)]
    for shard, table in zip(sorted(payloads), found, strict=True):
        assert table.schema == GROUPS
        assert {shard_of(number, shards) for number in table["group_id"].to_pylist()} == {shard}
        assert table["version"].to_pylist() == sorted(table["version"].to_pylist())
    rows = [row for table in found for row in table.to_pylist()]
    expected = [row for table in (first, second) for row in table.select(GROUPS.names).to_pylist()]
    assert sorted(map(repr, rows)) == sorted(map(repr, expected))


def test_a_single_change_goes_to_one_shard_only() -> None:
    assert [shard for shard, _ in pack_groups(_changes(["a"], 1), 64)] == [
        shard_of(group_id("a"), 64)
    ]
    assert unpack_groups([]).schema == GROUPS
