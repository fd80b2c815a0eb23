"""Dry runs' step: however events are cut into steps the answers are the same; nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.arrow_ipc import pack, unpack
from quotaplane.errors import HistoryError
from quotaplane.throttle.bank import LAWS
from quotaplane.throttle.entities import EntityStates, begin
from quotaplane.throttle.requests import REASONS, Bounds
from quotaplane.throttle.step import DECIDED, METRICS, Decided, decide

T0 = 1_790_000_000_000
BOUNDS = Bounds(late_ms=60_000, ahead_ms=30_000)
HARD = '{"*": {"mode": "hard"}}'
LAWS_IN_TURN = {
    name: f'{{"*": {{"law": "{law.value}", "mode": "{mode}", "samples": {samples}}}}}'
    for name, law, mode, samples in zip(
        "abcde",
        [*LAWS, LAWS[0]],
        ["soft", "hard", "soft", "hard", "hard"],
        [1, 3, 5, 1, 2],
        strict=True,
    )
}


def definitions(**rates: float | None) -> pa.Table:
    return pa.table(
        {
            "group": list(rates),
            "publish_messages_per_s": pa.array(rates.values(), pa.float64()),
            "publish_bytes_per_s": pa.array([7.0] * len(rates), pa.float64()),
            "throttle": [LAWS_IN_TURN.get(name, HARD) for name in rates],
        }
    )


def events(*rows: tuple[Any, Any, Any], **more: list[Any]) -> pa.Table:
    """(entity, milliseconds after T0, units) each."""
    entity, at, units = zip(*rows, strict=True) if rows else ((), (), ())
    at_ms = [None if ms is None else T0 + ms for ms in at]
    return pa.table(
        {
            "entity": pa.array(entity, pa.string()),
            "at_ms": pa.array(at_ms, pa.int64()),
            "units": pa.array(units, pa.float64()),
            **more,
        }
    )


def run(ledger: EntityStates, parts: list[pa.Table]) -> tuple[EntityStates, list[Decided]]:
    """Step by step, with the ledger put to rest and woken in between, as the operator does."""
    decided = []
    for part in parts:
        ledger, one = decide(EntityStates.from_bytes(ledger.to_bytes()), part, T0 + 10**9, BOUNDS)
        decided.append(one)
    return ledger, decided


@st.composite
def traffic(draw: st.DrawFn) -> pa.Table:
    """In the order of time and of position."""
    n = draw(st.integers(0, 40))
    gaps = draw(st.lists(st.sampled_from([0, 0, 1, 90, 1000, 2500]), min_size=n, max_size=n))
    rows = [
        (draw(st.sampled_from("abcdexyz")), at, draw(st.sampled_from([0.0, 1.0, 3.0, 8.0])))
        for at in np.cumsum(gaps).tolist()
    ]
    dimension = [draw(st.sampled_from(["publish_messages", "publish_bytes", None])) for _ in rows]
    return events(
        *rows, dimension=pa.array(dimension, pa.string()), position=[f"t/0@{i}" for i in range(n)]
    )


@given(
    whole=traffic(),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    seed=st.integers(0, 99),
)
def test_events_may_be_cut_into_steps_anywhere_and_come_in_any_order_within_them(
    whole: pa.Table, cuts: list[int], seed: int
) -> None:
    ledger = begin(definitions(a=5.0, b=5.0, c=2.0, d=3.0, e=1.0, x=None))
    at_once, [expected] = run(ledger, [whole])
    edges = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    random = np.random.default_rng(seed)
    parts = [
        whole.slice(low, high - low).take(random.permutation(high - low))
        for low, high in pairwise(edges)
    ] or [whole]
    in_parts, decided = run(ledger, parts)

    got = pa.concat_tables([one.decisions for one in decided])
    by = [("at_ms", "ascending"), ("position", "ascending")]
    assert got.sort_by(by).equals(expected.decisions.sort_by(by))
    assert not any(len(one.rejected) for one in decided)
    assert last_metrics(decided) == last_metrics([expected])
    assert set(at_once.names.to_pylist()) == set(in_parts.names.to_pylist())


def last_metrics(decided: list[Decided]) -> dict[Any, Any]:
    """The last ones of each entity, and its counts and units over all."""
    found: dict[Any, Any] = {}
    for row in (row for one in decided for row in one.metrics.to_pylist()):
        key = row["entity"], row["dimension"]
        before = found.get(key, {})
        row["since_ms"] = before.get("since_ms", row["since_ms"])
        for name in METRICS.names[4:10]:
            row[name] += before.get(name, 0)
        found[key] = row
    return found


def test_what_is_said_of_an_event() -> None:
    ledger = begin(definitions(a=10.0, hard=10.0, closed=0.0))
    _, decided = decide(
        ledger,
        events(
            ("a", 0, 15.0),
            ("hard", 0, 15.0),
            ("hard", 1, 15.0),
            ("closed", 0, 1.0),
            ("nobody", 0, 1e9),
            tag=[1, 2, 3, 4, 5],
        ),
        T0 + 1,
        BOUNDS,
    )
    assert decided.decisions.schema.names[4:] == DECIDED.names
    told = [tuple(row.values())[3:] for row in decided.decisions.to_pylist()]
    error = "THROTTLING_QUOTA_EXCEEDED"
    assert told == [
        (1, True, 500, -5.0, None, 0, True),
        (2, True, 0, -5.0, None, 0, True),
        (3, False, 499, pytest.approx(-4.99), error, 0, True),
        (4, True, 0, -1.0, None, 0, True),
        (5, True, 0, None, None, 0, True),
    ]


def test_what_is_only_watched_is_answered_and_told_apart() -> None:
    modes = ["hard", "soft", "shadow", None, "hard", None]
    percent = [100.0, None, 100.0, None, 99.9, 0.0]
    rates = pa.table({"group": list("abcdef"), "publish_messages_per_s": [1.0] * 6, "mode": modes})
    rates = rates.append_column("enforcement_percent", [percent])
    asked = events(*((name, 0, 2.0) for name in "abcdefg"))
    _, [decided] = run(begin(rates), [asked])
    expected = [True, False, False, True, False, False, True]
    assert decided.decisions["enforced"].to_pylist() == expected
    assert decided.decisions["throttle_ms"].to_pylist() == [1000] * 6 + [0]


def test_a_quota_of_zero_delays_for_ever() -> None:
    soft = pa.table({"group": ["a"], "publish_messages_per_s": [0.0]})
    _, decided = decide(begin(soft), events(("a", 0, 1.0)), T0, BOUNDS)
    [row] = decided.decisions.to_pylist()
    assert (row["admitted"], row["throttle_ms"], row["balance"]) == (True, None, -1.0)
    [row] = decided.metrics.to_pylist()
    assert (row["delayed"], row["refused"], row["throttle_ms"]) == (1, 0, None)


def test_metrics_are_as_of_the_last_event_of_each_entity() -> None:
    ledger = begin(definitions(a=10.0, hard=10.0))
    rows = [("a", 0, 15.0), ("hard", 2000, 15.0), ("hard", 2500, 5.0), ("x", 7, 3.0)]
    _, decided = decide(ledger, events(*rows), T0 + 2500, BOUNDS)
    expected = [
        ("a", T0, 1, 0, 1, 15.0, 15.0, 1.5, -5.0, 500.0),
        ("hard", T0 + 2500, 2, 0, 0, 20.0, 20.0, 20 / 10.5, -5.0, None),
        ("x", T0 + 7, 1, 0, 0, 3.0, 3.0, None, None, None),
    ]
    names = "entity until_ms events refused delayed units_asked units_admitted rate_per_s tokens"
    got = decided.metrics.select([*names.split(), "throttle_ms"]).to_pylist()
    assert [tuple(row.values()) for row in got] == expected


def test_a_late_event_is_answered_as_of_the_newest_time_and_marked() -> None:
    ledger = begin(definitions(a=10.0))
    ledger, _ = decide(ledger, events(("a", 50_000, 4.0)), T0 + 50_000, BOUNDS)
    late = events(("a", 45_000, 3.0), ("a", 50_500, 5.0), ("a", 49_000, 5.0), ("b", 0, 1.0))
    _, decided = decide(ledger, late, T0 + 50_500, BOUNDS)
    got = decided.decisions.select(["balance", "late_ms"]).to_pylist()
    # 10 - 4; then - 3 and - 5 at that time, and - 5 half a second later
    assert [tuple(row.values()) for row in got] == [(3.0, 5000), (-2.0, 0), (-2.0, 1000), (None, 0)]
    assert [
        (row["entity"], row["late"], row["until_ms"] - T0) for row in decided.metrics.to_pylist()
    ] == [
        ("a", 2, 50_500),
        ("b", 0, 0),
    ]


def test_one_clock_that_is_ahead_makes_nobody_late() -> None:
    ledger = begin(definitions(a=10.0))
    ahead = events(("a", 30_000, 4.0), ("a", -1000, 1.0), ("b", 30_000, 1.0))
    ledger, decided = decide(ledger, ahead, T0, BOUNDS)
    assert decided.decisions["balance"].to_pylist() == [6.0, 9.0, None]
    assert decided.decisions["at_ms"].to_pylist()[0] == T0 + 30_000
    assert [row["until_ms"] for row in decided.metrics.to_pylist()] == [T0, T0]
    ledger, decided = decide(ledger, events(("a", 100, 0.0)), T0 + 200, BOUNDS)
    assert decided.decisions.select(["balance", "late_ms"]).to_pylist() == [
        {"balance": 7.0, "late_ms": 0}
    ]
    # The job's own clock may go back, too.
    ledger, decided = decide(ledger, events(("a", 300, 0.0)), T0 - 1000, BOUNDS)
    assert decided.decisions["late_ms"].to_pylist() == [0]
    assert ledger.last_ms.tolist() == [T0 + 100]


def test_an_event_that_is_too_late_is_a_dead_letter_and_counts_for_nothing() -> None:
    ledger = begin(definitions(a=10.0))
    ledger, _ = decide(ledger, events(("a", 70_000, 4.0)), T0 + 70_000, BOUNDS)
    late = events(("a", 9_999, 5.0), ("a", 10_000, 1.0))
    after, decided = decide(ledger, late, T0 + 70_000, BOUNDS)
    assert decided.rejected.select(["at_ms", "reason"]).to_pylist() == [
        {"at_ms": T0 + 9_999, "reason": "too_late"}
    ]
    assert decided.decisions["balance"].to_pylist() == [5.0]
    assert after.last_ms.tolist() == [T0 + 70_000]


def test_what_cannot_be_used_is_a_dead_letter_with_its_reason() -> None:
    nan = float("nan")
    rows = [
        (None, 0, 1.0, "no_entity"),
        ("", None, nan, "no_entity"),
        ("a", None, 1.0, "no_time"),
        ("a", -T0 - 1, 1.0, "no_time"),
        ("a", 30_001, 1.0, "future"),
        ("a", 30_000, 1.0, None),
        ("a", 0, None, "bad_units"),
        ("a", 0, nan, "bad_units"),
        ("a", 0, float("inf"), "bad_units"),
        ("a", 0, -0.5, "bad_units"),
        ("a", 0, 1e18, None),
        ("a", 0, 1.001e18, "bad_units"),
    ]
    table = events(*(row[:3] for row in rows), tag=[str(n) for n in range(len(rows))])
    _, decided = decide(begin(definitions(a=10.0)), table, T0, BOUNDS)
    rejected = dict(
        zip(
            decided.rejected["tag"].to_pylist(), decided.rejected["reason"].to_pylist(), strict=True
        )
    )
    assert rejected == {str(n): row[3] for n, row in enumerate(rows) if row[3]}
    assert decided.decisions["tag"].to_pylist() == ["5", "10"]
    odd = events(("a", 0, 1.0), dimension=["height"])
    _, decided = decide(begin(), odd, T0, BOUNDS)
    assert decided.rejected["reason"].to_pylist() == ["bad_dimension"]
    assert {*rejected.values(), "bad_dimension", "too_late"} == REASONS.keys()


def test_no_events_are_no_trouble() -> None:
    ledger, decided = decide(begin(definitions(a=1.0)), events(), T0, BOUNDS)
    assert [len(table) for table in decided] == [0, 0, 0]
    assert len(ledger) == 0


def test_who_has_no_quota_leaves_no_trace() -> None:
    ledger, _ = decide(begin(definitions(a=1.0)), events(("a", 0, 1.0), ("b", 0, 1.0)), T0, BOUNDS)
    assert ledger.names.to_pylist() == ["a"]


def test_without_positions_who_asks_for_less_comes_first() -> None:
    rows = [("hard", 0, 8.0), ("hard", 0, 1.0), ("hard", 0, 4.0)]
    _, decided = decide(begin(definitions(hard=10.0)), events(*rows), T0, BOUNDS)
    assert decided.decisions["balance"].to_pylist() == [-3.0, 9.0, 5.0]


def test_columns_that_are_passed_on_may_have_any_name() -> None:
    rows = [("hard", 0, 8.0), ("hard", 0, 1.0)]
    asked = events(*rows, position=["t@10", "t@9"], length=[1, 2])
    _, decided = decide(begin(definitions(hard=10.0)), asked, T0, BOUNDS)
    assert decided.decisions["balance"].to_pylist() == [1.0, 9.0]
    assert decided.decisions["length"].to_pylist() == [1, 2]


def test_units_may_be_whole_numbers_beyond_those_of_a_float() -> None:
    asked = events(("hard", 0, 8.0)).set_column(2, "units", pa.array([2**53 + 1]))
    _, decided = decide(begin(definitions(hard=10.0)), asked, T0, BOUNDS)
    assert decided.decisions["units"].to_pylist() == [2**53 + 1]
    assert decided.decisions["balance"].to_pylist() == [10.0 - 2**53]


def changes(*rows: tuple[str, float | None, bool, int]) -> pa.Table:
    """(group, messages a second, whether it was deleted, version) each."""
    group, rate, deleted, version = zip(*rows, strict=True)
    told = begin(pa.table({"group": group, "publish_messages_per_s": rate})).definitions
    return told.append_column("deleted", [deleted]).append_column("version", [version])


def test_a_changed_quota_holds_at_once_and_keeps_what_was_used() -> None:
    ledger = begin().changed(changes(("a", 10.0, False, 1), ("b", 10.0, False, 1)))
    ledger, _ = decide(ledger, events(("a", 0, 8.0), ("b", 0, 8.0)), T0, BOUNDS)
    ledger = ledger.changed(changes(("a", 4.0, False, 2)))
    ledger, decided = decide(ledger, events(("a", 0, 1.0), ("b", 0, 1.0)), T0, BOUNDS)
    assert decided.decisions["balance"].to_pylist() == [1.0, 1.0]
    assert decided.decisions["throttle_ms"].to_pylist() == [0, 0]
    ledger = ledger.changed(changes(("a", 4.0, True, 3)))
    ledger, decided = decide(ledger, events(("a", 0, 99.0), ("b", 0, 1.0)), T0, BOUNDS)
    assert decided.decisions["balance"].to_pylist() == [None, 0.0]
    assert decided.decisions["admitted"].to_pylist() == [True, True]
    ledger = ledger.changed(changes(("a", 4.0, False, 4)))
    _, decided = decide(ledger, events(("a", 0, 1.0)), T0, BOUNDS)
    assert decided.decisions["balance"].to_pylist() == [3.0]


@pytest.mark.parametrize("terms", ['{"*": {"law": "sliding_window"}}', '{"*": {"samples": 3}}'])
def test_under_another_law_late_stays_late_and_the_meter_goes_on(terms: str) -> None:
    first = pa.table({"group": ["a"], "publish_messages_per_s": [9.0]})
    law = '{"*": {"law": "windowed_rate"}}'
    ledger = begin(first.append_column("throttle", [[law]]))
    ledger, _ = decide(ledger, events(("a", 70_000, 8.0)), T0 + 70_000, BOUNDS)
    ledger = ledger.defined(first.append_column("throttle", [[terms]]))
    asked = events(("a", 9_999, 1.0), ("a", 50_000, 1.0), ("a", 70_000, 1.0))
    ledger, [decided] = run(ledger, [asked])
    assert decided.rejected["reason"].to_pylist() == ["too_late"]
    assert decided.decisions["late_ms"].to_pylist() == [20_000, 0]
    [row] = decided.metrics.to_pylist()
    assert row["until_ms"] == T0 + 70_000
    assert row["rate_per_s"] == pytest.approx(10.0 / 10)  # 8 of before are in it


def test_who_has_no_quota_any_more_is_forgotten_and_others_stay_as_they_were() -> None:
    rates = dict.fromkeys("abcde", 5.0)
    ledger = begin(definitions(**rates))
    rows = [(name, 10 * at, 1.0 + at) for at in range(9) for name in "abcde"]
    ledger, _ = decide(ledger, events(*rows), T0 + 80, BOUNDS)
    for gone in "bda":
        ledger = ledger.defined(definitions(**{**rates, gone: None}))
        assert gone not in ledger.names.to_pylist()
        assert len(ledger) == 4
        rest = events(*((name, 500, 1.0) for name in "abcde" if name != gone))
        ledger, [decided] = run(ledger, [rest])
        expected, _ = decide(begin(definitions(**rates)), events(*rows), T0 + 80, BOUNDS)
        _, told = decide(expected, rest, T0 + 500, BOUNDS)
        assert decided.decisions.equals(told.decisions)
        assert decided.metrics.equals(told.metrics)
        ledger = expected
    assert len(ledger.defined(definitions())) == 0
    nobody = EntityStates.from_bytes(ledger.defined(definitions()).to_bytes())
    assert nobody.bank.states == {}


def test_of_several_changes_the_last_one_counts() -> None:
    told = changes(
        ("a", 3.0, False, 3),
        ("a", 1.0, False, 1),
        ("a", 2.0, True, 3),
        ("b", 5.0, False, 2),
        ("b", 5.0, True, 4),
    )
    ledger = begin().changed(told)
    assert ledger.definitions.select(["group", "publish_messages_per_s"]).to_pylist() == [
        {"group": "a", "publish_messages_per_s": 3.0}
    ]


def test_a_ledger_of_another_format_is_told() -> None:
    first, *others = unpack(begin().to_bytes())
    blob = pack(first.replace_schema_metadata({"format": "0"}), *others)
    with pytest.raises(
        HistoryError, match="format 0, this version reads 1; start a new checkpoint"
    ):
        EntityStates.from_bytes(blob)


def test_the_step_imports_no_spark_and_no_io() -> None:
    code = (
        "import sys, quotaplane.throttle.step\n"
        "bad = {'pyspark', 'kafka', 'deltalake', 'pandas', 'google'} & set(sys.modules)\n"
        "sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
