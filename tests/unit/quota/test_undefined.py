"""Tests of undefined groups: one dead letter per broker, group and hour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.arrow import pack
from quotaplane.model import group_id
from quotaplane.quota.undefined_groups import QUIET_MS, UndefinedGroups
from tests.unit.quota.step_cases import T0, Shard, report, reports


def entries(pairs: Iterable[tuple[str, str | int]]) -> pa.Table:
    """Report entries of (broker, group) pairs; a group is a name or an id."""
    rows = [(b, None if isinstance(g, int) else g, g) for b, g in pairs]
    ids = [g if isinstance(g, int) else group_id(g) for _, _, g in rows]
    return pa.table(
        {
            "broker": pa.array([b for b, _, _ in rows], pa.string()).dictionary_encode(),
            "group": pa.array([g for _, g, _ in rows], pa.string()),
            "group_id": pa.array(ids, pa.int64()),
        }
    )


def told(table: pa.Table | None) -> list[tuple[str, str | None, int]]:
    rows = [] if table is None else table.to_pylist()
    return sorted((row["broker"], row["group"] or "", row["reports"]) for row in rows)


def test_a_pair_is_told_once_an_hour_with_the_reports_since() -> None:
    memory, now_ms = UndefinedGroups(), T0
    pairs = [("b1", "g"), ("b2", "g"), ("b1", "h")]
    letters = []
    while now_ms <= T0 + 2 * QUIET_MS:
        memory, found = memory.next(entries(pairs), now_ms)
        letters += [(now_ms - T0, *one) for one in told(found)]
        now_ms += 5_000
    each = QUIET_MS // 5_000
    assert letters == [
        (at_ms, broker, group, count)
        for at_ms, count in ((0, 1), (QUIET_MS, each), (2 * QUIET_MS, each))
        for broker, group in sorted(pairs)
    ]
    assert len(memory) == 3


def test_several_reports_of_a_round_are_one_letter() -> None:
    _, found = UndefinedGroups().next(entries([("b", "g"), ("b", "h"), ("b", "g"), ("b", "g")]), T0)
    assert told(found) == [("b", "g", 3), ("b", "h", 1)]


def test_a_group_by_id_is_told_like_one_by_name() -> None:
    memory, found = UndefinedGroups().next(entries([("b", 7)]), T0)
    assert found.select(["group", "group_id"]).to_pylist() == [{"group": None, "group_id": 7}]
    assert told(memory.next(entries([("b", 7)]), T0 + 1)[1]) == []


def test_what_nobody_reports_any_more_is_forgotten() -> None:
    memory, _ = UndefinedGroups().next(entries([("b", "g")]), T0)
    assert len(memory.next(None, T0 + 2 * QUIET_MS - 1)[0]) == 1
    assert len(memory.next(None, T0 + 2 * QUIET_MS)[0]) == 0


def test_what_is_beyond_the_cap_is_told_together() -> None:
    cap = {"most_pairs": 10}
    made = [("b", f"invented {n}") for n in range(30)]
    memory, found = UndefinedGroups().next(entries(made), T0, **cap)
    assert found["others"].to_pylist().count(True) == 1
    assert found["reports"].to_pylist() == [20, *[1] * 10]
    # The next inventions are counted, and told an hour after the last ones.
    made = [("b", f"more {n}") for n in range(500)]
    memory, found = memory.next(entries(made), T0 + 1, **cap)
    assert (told(found), len(memory)) == ([], 11)
    memory, found = memory.next(entries([("b", "again")]), T0 + QUIET_MS, **cap)
    assert found.select(["reports", "others"]).to_pylist() == [{"reports": 501, "others": True}]


def test_long_names_are_told_a_part_a_round_until_all_are() -> None:
    made = [("b", f"{n:01000d}") for n in range(20)]
    memory, letters = UndefinedGroups(), []
    for round_ in range(5):
        memory, found = memory.next(entries(made), T0 + round_, most_bytes=5_000)
        assert found["group"].nbytes <= 5_000
        letters += found["group"].to_pylist()
    assert sorted(letters) == [group for _, group in made]


def test_the_order_of_entries_decides_nothing() -> None:
    bounds = {"most_pairs": 25, "most_bytes": 1_500}
    made = [(f"b{n % 3}", f"g{n % 11}") for n in range(90)]
    outcomes = []
    for seed in range(5):
        shuffled = np.random.default_rng(seed).permutation(len(made)).tolist()
        memory, found = UndefinedGroups().next(entries([made[n] for n in shuffled]), T0, **bounds)
        singly = found.filter(pa.array(~np.array(found["others"])))
        outcomes.append((_arrays(memory), told(singly)))
    assert outcomes == outcomes[:1] * 5


def _arrays(memory: UndefinedGroups) -> dict[str, list[int]]:
    return {name: array.tolist() for name, array in vars(memory).items()}


def test_it_is_part_of_the_state_and_a_batch_run_again_tells_the_same() -> None:
    shard = Shard()
    first = shard.run(reports(report("b", T0, {"g": 1.0, "h": 1.0})), now_ms=T0)
    assert told(first.unknown) == [("b", "g", 1), ("b", "h", 1)]
    before = shard.state
    again = []
    for _ in range(2):
        shard.state = before
        outcome = shard.run(reports(report("b", T0 + 5_000, {"g": 1.0, "new": 1.0})), now_ms=T0)
        again.append((told(outcome.unknown), _arrays(shard.state.undefined)))
        assert outcome.unknown_entries == 2
    assert again[0] == again[1]
    assert again[0][0] == [("b", "new", 1)]


@pytest.mark.nightly
def test_an_ordinary_first_day_is_small() -> None:
    """100 brokers report the same 5,000 undefined groups every 5 s."""
    names: Sequence[str] = [f"tenant-{n % 97:03d}/namespace-{n:06d}" for n in range(5_000)]
    brokers = [f"pulsar-broker-{n:03d}.example.com:8080" for n in range(100)]
    ids = np.array([group_id(name) for name in names])
    half = np.flatnonzero((ids >> 40) % 2 == 0)  # of one of two shards
    count = len(half) * len(brokers)
    table: Any = pa.table(
        {
            "broker": pa.DictionaryArray.from_arrays(
                pa.array(np.repeat(np.arange(100), len(half)), pa.int32()), pa.array(brokers)
            ),
            "group": pa.array([names[n] for n in half.tolist()] * 100),
            "group_id": pa.array(np.tile(ids[half], 100)),
        }
    )
    memory, letters, rounds = UndefinedGroups(), 0, 0
    for round_ in range(60):
        memory, found = memory.next(table, T0 + 5_000 * round_)
        assert found.num_rows < 15_000
        letters, rounds = letters + found.num_rows, rounds + (found.num_rows > 0)
    assert letters == len(memory) == count
    assert rounds < 40  # all are told within four minutes, and then none for the rest of the hour
    assert len(pack(pa.table({k: pa.array(v) for k, v in vars(memory).items()}))) < 12 * count
