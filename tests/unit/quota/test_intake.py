"""Tests of report intake: backlogs, duplicates, and implausible start times of brokers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.quota.config import EarlierLimits
from quotaplane.quota.estimate import estimate
from quotaplane.quota.estimate.demand import learn
from quotaplane.quota.outcome import Outcome
from quotaplane.quota.reported_usage import NEWEST
from tests.unit.quota.step_cases import (
    CONFIG,
    STRICT,
    T0,
    report,
    reports,
    started,
    with_quotas,
)


def test_of_a_backlog_the_newest_report_decides_and_few_are_learned_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand reports of one broker arrive in one round, in any order, and one of another."""
    turns: list[int] = []

    def counting(*args: Any, **kwargs: Any) -> Any:
        turns.append(args[1].usage.shape[-1])
        return learn(*args, **kwargs)

    monkeypatch.setattr(estimate, "learn", counting)
    shard = started(100, b1=10, b2=20)
    turns.clear()
    made = [report("b1", T0 + n, {"g": 90.0, "h": 1.0}) for n in range(1, 1_000)]
    made += [report("b1", T0 + 1_000, {"g": 30.0}), report("b2", T0 + 1_000, {"g": 25.0})]
    shuffled = [made[at] for at in np.random.default_rng(1).permutation(len(made))]
    outcome = shard.run(reports(*shuffled), now_ms=T0 + 1_000)
    assert len(turns) == NEWEST
    assert shard.state.leases.usage[0].tolist() == [30, 25]
    assert shard.state.leases.estimates.demand[0].tolist() == [
        30,
        (20 + 25) / 2,
    ]  # 5 more may be noise
    assert len(outcome.usage) == outcome.counts.reports == len(made)


def test_what_the_newest_reports_of_a_backlog_call_unchanged_was_told_by_one_before_them() -> None:
    shard = started(100, b1=10)
    told = [report("b1", T0 + n, {"g": 70.0 + n}, throttled=5.0) for n in range(1, 20)]
    unchanged = [report("b1", T0 + n, {"g": np.nan}) for n in range(20, 40)]
    shard.run(reports(*unchanged, *told), now_ms=T0 + 100)
    rows = shard.state.leases
    assert rows.usage[0].tolist() == [89]
    assert rows.estimates.demand[0].tolist() == [94]
    assert rows.reports_refused.tolist() == [True]
    assert rows.seen_at_ms.tolist() == [T0 + 39]


@pytest.mark.parametrize("start_ms", [T0 + 40_000, 2**63 - 1])
def test_a_start_in_the_future_that_was_believed_shuts_nobody_out(start_ms: int) -> None:
    shard = with_quotas(("g", 100), config=STRICT)
    for at_ms, start in ((T0, 5), (T0 + 1_000, start_ms)):
        shard.report(at_ms, {"b1": 9}, started_at_ms=start)
    assert shard.state.brokers.started_at_ms.tolist() == [start_ms]
    true = report("b1", T0 + 2_000, {"g": 50}, started_at_ms=5)
    outcome = shard.run(reports(true), now_ms=T0 + 2_000)
    assert shard.state.leases.usage[0].tolist() == [50]
    assert shard.state.brokers.started_at_ms.tolist() == [5]
    # What it was told meanwhile was for another incarnation: it hears of its limits at once.
    assert outcome.limits["for_start_ms"].to_pylist() == [5]
    again = report("b1", T0 + 1_500, {"g": 60}, started_at_ms=5)
    assert shard.run(reports(again), now_ms=T0 + 2_500).counts.outdated == 1


def test_a_start_that_a_clock_ahead_explains_is_believed() -> None:
    shard = with_quotas(("g", 100))
    ahead = T0 + int(CONFIG.max_clock_skew_ms)
    shard.report(T0, {"b1": 9}, started_at_ms=ahead)
    old = report("b1", T0 + 1_000, {"g": 50}, started_at_ms=5)
    assert shard.run(reports(old), now_ms=T0 + 1_000).counts.outdated == 1


def test_of_two_reports_under_one_number_the_one_published_first_counts() -> None:
    """Stock reports are numbered by publish time; two may have the same millisecond."""
    for turn in (1, -1):
        shard = started(100, b1=10)
        same = {"sequence": T0 + 9, "published_at_ms": T0 + 9}
        made = [
            report("b1", T0 + 9, {"g": used}, position=f"reports/0@{used}", **same)
            for used in (20, 40)
        ]
        late = report("b1", T0 + 9, {"g": 60}, **same | {"published_at_ms": T0 + 10})
        shard.run(reports(*[late, *made][::turn]), now_ms=T0 + 10)
        assert shard.state.leases.usage[0].tolist() == [20]


def numbered(sequence: int, **more: Any) -> dict[str, Any]:
    """A report of b1's present start, whose usage is its number."""
    header = {"started_at_ms": T0 - 1, "sequence": sequence, **more}
    return report("b1", T0 + sequence, {"g": float(sequence)}, **header)


def recorded(outcome: Outcome) -> dict[float, bool]:
    """Whether each recorded report counted, by its number."""
    names = ("publish_messages_per_s", "counted")
    columns = (outcome.usage[name].to_pylist() for name in names)
    return dict(zip(*columns, strict=True))


def test_a_report_that_comes_after_a_newer_one_is_recorded_once_and_decides_nothing() -> None:
    shard = with_quotas(("g", 100))
    first = shard.run(reports(numbered(1), numbered(3)), now_ms=T0 + 10)
    assert recorded(first) == {1: True, 3: True}
    late = shard.run(reports(numbered(2), numbered(3)), now_ms=T0 + 20)
    assert recorded(late) == {2: False}
    assert (late.counts.reports, late.counts.entries) == (0, 0)
    assert (late.counts.duplicates, late.counts.outdated) == (1, 1)
    assert shard.state.leases.usage[0].tolist() == [3]
    again = shard.run(reports(numbered(2), numbered(1)), now_ms=T0 + 30)
    assert recorded(again) == {}
    assert (again.counts.duplicates, again.counts.outdated) == (2, 0)


def test_what_can_not_be_told_from_a_report_sent_again_is_not_recorded() -> None:
    """More than 64 numbers back, or of an earlier start; a new start knows nothing yet."""
    shard = with_quotas(("g", 100))
    shard.run(reports(numbered(100)), now_ms=T0 + 200)
    late = shard.run(reports(numbered(36), numbered(37)), now_ms=T0 + 210)
    assert recorded(late) == {37: False}
    shard.run(reports(numbered(5, started_at_ms=T0)), now_ms=T0 + 220)
    after = shard.run(
        reports(numbered(99), numbered(4, started_at_ms=T0), numbered(5, started_at_ms=T0)),
        now_ms=T0 + 230,
    )
    assert recorded(after) == {4: False}


def test_a_stock_report_that_comes_late_is_recorded_once_if_none_of_its_second_was() -> None:
    """Stock reports have no start, and the time at which they were published as their number."""

    def at(after_ms: int) -> dict[str, Any]:
        at_ms = T0 + after_ms
        header = {"started_at_ms": 0, "sequence": at_ms, "published_at_ms": at_ms}
        return report("b1", at_ms, {"g": float(after_ms)}, **header)

    shard = with_quotas(("g", 100))
    shard.run(reports(at(70_000)), now_ms=T0 + 70_100)
    late = shard.run(reports(at(67_500), at(7_000), at(6_999)), now_ms=T0 + 72_000)
    assert recorded(late) == {67_500: False, 7_000: False}
    assert recorded(shard.run(reports(at(75_000)), now_ms=T0 + 75_100)) == {75_000: True}
    again = shard.run(reports(at(67_500), at(70_000), at(72_500)), now_ms=T0 + 77_000)
    assert recorded(again) == {72_500: False}
    assert (again.counts.duplicates, again.counts.outdated) == (2, 1)


@pytest.mark.nightly
@given(st.data())
def test_in_whatever_order_and_however_often_reports_come_each_is_recorded_once(
    data: st.DataObject,
) -> None:
    numbers = data.draw(st.lists(st.integers(1, 64), min_size=1, max_size=40))
    shard = with_quotas(("g", 100))
    found: list[float] = []
    at = 0
    while at < len(numbers):
        size = data.draw(st.integers(1, len(numbers) - at))
        outcome = shard.run(reports(*map(numbered, numbers[at : at + size])), now_ms=T0 + 100 + at)
        found += recorded(outcome)
        at += size
    assert sorted(found) == sorted(set(numbers))


def test_reports_set_aside_are_recorded_and_decide_nothing() -> None:
    """As if they had not come: the same limits and demands, but for the record."""
    old = [numbered(n) for n in (2, 3, 4, 4)]
    outcomes = []
    for aside in (None, reports(*old)):
        shard = started(100, b1=10)
        events = reports(numbered(9))
        if aside is not None:
            assert aside.headers is not None
            assert aside.entries is not None
            events = replace(events, aside=(aside.headers, aside.entries))
        outcome = shard.run(events, now_ms=T0 + 10)
        outcomes.append(repr(outcome.limits.to_pylist()))
        if aside is not None:
            assert recorded(outcome) == {9: True, 2: False, 3: False, 4: False}
            assert outcome.counts.reports == 1
            # That they do not count is told where they are set aside.
            assert (outcome.counts.outdated, outcome.counts.duplicates) == (0, 0)
    assert outcomes[0] == outcomes[1]


def test_what_an_earlier_control_plane_recorded_is_not_recorded_again() -> None:
    """A new checkpoint may read its topics from their beginning."""
    earlier = EarlierLimits(recorded_ms=T0 + 2)
    shard = with_quotas(("g", 100), config=replace(CONFIG, earlier=earlier))
    outcome = shard.run(reports(*map(numbered, (1, 2, 3))), now_ms=T0 + 10)
    assert recorded(outcome) == {3: True}
    assert outcome.counts.reports == 3
