"""Two names with one id: of a tree they are made in seconds, so names are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.model import DIMENSIONS, RATE_COLUMNS, group_id
from quotaplane.quota.groups import plain_groups
from quotaplane.quota.state import ShardState
from quotaplane.streams.quota.id_collisions import without_clashes
from quotaplane.streams.shard_program import Batch
from quotaplane.wire.reports import encode_stock_report
from quotaplane.wire.shard_inputs import pack_groups
from tests.unit.quota.step_cases import CONFIG as STEP
from tests.unit.quota.step_cases import T0, Shard, quotas, report, reports
from tests.unit.streams.shard_cases import PROGRAM, packed, tables, usage_report

ONE, OTHER = "acme::ns-396206", "acme::ns-1026894"
"""The first two of acme::ns-0, acme::ns-1 ... with one id: a million digests, 1.7 s of a core."""


def test_a_report_of_one_does_not_take_the_limit_of_the_other_away() -> None:
    """Brokers know groups by id: a published removal of OTHER would remove ONE's limit."""
    shard = Shard()
    shard.run(quotas((ONE, 100)), now_ms=T0)
    shard.run(reports(report("b1", T0, {ONE: 10.0})), now_ms=T0)
    at = T0 + int(STEP.lease_ms + STEP.stale_after_ms) + 5
    shard.run(now_ms=at)
    held = report("b1", at, {OTHER: 0.0, "nobody": 0.0}, limit=1.0)
    outcome = shard.run(reports(held), now_ms=at)
    assert outcome.limited_but_deleted is not None
    assert outcome.limited_but_deleted["group"].to_pylist() == ["nobody"]
    assert outcome.unknown is not None
    assert set(outcome.unknown["group"].to_pylist()) == {OTHER, "nobody"}


@pytest.mark.parametrize("groups", [[ONE, OTHER], [OTHER, ONE], [OTHER, ONE, OTHER, ONE, OTHER]])
@pytest.mark.parametrize("format_", ["stock", "ours"])
def test_within_one_report_neither_replaces_the_other(groups: list[str], format_: str) -> None:
    rates = np.array([[10.0 if name == ONE else 70.0] * 4 for name in groups])
    ours, stock = usage_report("b", groups, usage=rates), encode_stock_report("b", groups, rates)
    value = stock if format_ == "stock" else ours
    found = _round([(ONE, 100.0)], value)
    assert [row["resource_group"] for row in found["usage"]] == [ONE]
    assert found["usage"][0][RATE_COLUMNS[0]] == 10.0
    assert [row["detail"] for row in found["rejected_reports"]] == [
        f"broker b: no resource group {OTHER}"
    ]
    assert found["counts"][0]["rejected_by_reason"] == {"unknown_group": 1}


def test_a_report_by_id_can_not_be_told_apart() -> None:
    assert group_id(ONE) == group_id(OTHER)
    value = usage_report("b", groups=None, group_ids=[group_id(OTHER)])
    found = _round([(ONE, 100.0)], value)
    assert [row["resource_group"] for row in found["usage"]] == [ONE]


def _round(put: list[tuple[str, float]], value: bytes) -> dict[str, list[dict[str, Any]]]:
    """Groups are put, each a version later, and a report of them arrives."""
    arrived = {
        "groups": [payload for _, payload in pack_groups(changes(put), 1)],
        "reports": packed(value, at_ms=T0),
    }
    _, outputs = PROGRAM.run(ShardState(), arrived, Batch(0, 1, T0))
    return tables(outputs)


def changes(rows: list[tuple[str, float | None]], version: int = 1) -> pa.Table:
    """Each a version later: a quota, or None where the group is deleted."""
    return pa.table(
        {
            "group": [name for name, _ in rows],
            "group_id": [group_id(name) for name, _ in rows],
            "deleted": [quota is None for _, quota in rows],
            "version": pa.array(range(version, version + len(rows)), pa.int64()),
            RATE_COLUMNS[0]: pa.array([quota for _, quota in rows], pa.float64()),
        }
    )


def test_the_second_one_that_others_wrote_into_the_table_has_no_effect_and_is_told() -> None:
    value = encode_stock_report("b", [ONE], np.full((1, 4), 5.0))
    found = _round([(ONE, 100.0), (OTHER, 3.0)], value)
    (letter,) = found["rejected_reports"]
    assert letter["reason"] == "bad_definition"
    assert letter["position"] == "resource_groups@2"
    assert letter["detail"] == (
        f"group {OTHER!r}: has the same id as group {ONE!r} and no effect: put it by another name"
    )
    (limit,) = found["limits"]
    assert (limit["resource_group"], limit[RATE_COLUMNS[0]]) == (ONE, 100.0)


DEFINED = plain_groups(
    np.array([group_id(ONE)]), pa.array([ONE]), np.full((len(DIMENSIONS), 1), 100.0)
)


@pytest.mark.parametrize(
    ("rows", "kept", "told"),
    [
        ([(ONE, 5.0)], [0], []),
        ([(OTHER, 5.0)], [], [0]),
        ([(OTHER, None)], [], []),
        ([(ONE, None)], [0], []),
        ([(ONE, None), (OTHER, 5.0)], [0, 1], []),
        ([(OTHER, 5.0), (ONE, None), (OTHER, 6.0)], [1, 2], [0]),
        ([(OTHER, 5.0), (ONE, 7.0), ("acme", 1.0), (OTHER, None)], [1, 2], [0]),
    ],
)
def test_a_group_keeps_its_id_until_it_is_deleted(
    rows: list[tuple[str, float | None]], kept: list[int], told: list[int]
) -> None:
    table = changes(rows)
    left, clashes = without_clashes(table, DEFINED)
    assert left.equals(table.take(pa.array(kept, pa.int64())))
    assert [row for row, _ in clashes] == told


def test_of_two_in_one_commit_it_is_always_the_same_that_holds() -> None:
    table = changes([(OTHER, 1.0), (ONE, 2.0)])
    table = table.set_column(3, "version", pa.array([4, 4]))
    for one in (table, table.take([1, 0])):
        left, ((row, _),) = without_clashes(one, ShardState().groups)
        assert left["group"].to_pylist() == [OTHER]
        assert one["group"][row].as_py() == ONE
