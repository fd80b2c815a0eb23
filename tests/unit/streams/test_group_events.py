"""Groups become events of shards: how many, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.groups.policy_options import POLICY_COLUMNS
from quotaplane.model import RATE_COLUMNS
from quotaplane.streams import group_events
from quotaplane.wire.shard_inputs import unpack_groups

ARROW_ROWS = 100
"""Rows of a batch that Spark sends to Python: conf/spark-defaults.conf."""


def changes(names: Sequence[str], quotas: Sequence[float]) -> list[pa.RecordBatch]:
    """Rows of the change feed, in batches as Spark sends them."""
    count = len(names)
    columns: dict[str, Any] = {"resource_group": pa.array(names)}
    columns |= {name: pa.array(quotas, pa.float64()) for name in RATE_COLUMNS}
    columns |= {name: pa.nulls(count) for name in POLICY_COLUMNS}
    columns |= {
        "_change_type": pa.array(["insert"] * count),
        "_commit_version": pa.array([1] * count, pa.int64()),
    }
    batches: list[pa.RecordBatch] = pa.table(columns).to_batches(max_chunksize=ARROW_ROWS)
    return batches


def events(names: Sequence[str], quotas: Sequence[float], shards: int) -> list[dict[str, Any]]:
    mapper = group_events._to_group_events(shards)
    return [row for batch in mapper(iter(changes(names, quotas))) for row in batch.to_pylist()]


def test_a_shard_gets_many_groups_in_one_payload() -> None:
    names = [f"tenant/{number}" for number in range(2000)]
    found = events(names, [1.0] * len(names), shards=8)
    assert len(found) == 8, "not one for each shard and batch of 100 rows"
    groups = unpack_groups([row["payload"] for row in found])
    assert sorted(groups["group"].to_pylist()) == sorted(names)


def test_no_more_than_a_bound_is_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_events, "_GROUPS_AT_ONCE", 3 * ARROW_ROWS)
    names = [f"tenant/{number}" for number in range(1000)]
    found = events(names, [1.0] * len(names), shards=1)
    sizes = [len(unpack_groups([row["payload"]])) for row in found]
    assert sizes == [300, 300, 300, 100]


def test_the_last_change_of_a_group_stays_the_last() -> None:
    names = ["g"] * 250
    (row,) = events(names, np.arange(250.0).tolist(), shards=1)
    assert unpack_groups([row["payload"]])[RATE_COLUMNS[0]].to_pylist()[-1] == 249.0


def test_nothing_is_made_of_nothing() -> None:
    assert events([], [], shards=2) == []
