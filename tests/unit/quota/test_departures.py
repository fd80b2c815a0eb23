"""Brokers that left the cluster's list: their share is free at once, if nothing contradicts it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.model import Transition
from quotaplane.quota.config import Events
from quotaplane.quota.outcome import Outcome
from quotaplane.wire.shard_inputs import pack_departures, unpack_departures
from tests.unit.quota.step_cases import (
    CONFIG,
    NOTHING,
    T0,
    Shard,
    report,
    reports,
    started,
    with_quotas,
)


def left(events: Events = NOTHING, **left_at_ms: int) -> Events:
    """The events, and brokers that left the list."""
    return replace(events, departures=unpack_departures([pack_departures(left_at_ms)]))


def three(transition: Transition = Transition.FAST) -> Shard:
    """Three brokers that want more than there is, after their first reports."""
    config = replace(CONFIG, transition=transition, lease_ms=60_000, learns=False)
    shard = with_quotas(("g", 90), config=config)
    round_(shard, T0, "b1 b2 b3")
    return shard


def wanting(name: str, at_ms: int) -> dict[str, object]:
    return report(name, at_ms, {"g": 30}, throttled=200)


def round_(shard: Shard, at_ms: int, names: str, **left_at_ms: int) -> Outcome:
    """A round with reports of some brokers, and others on the list of those that left."""
    events = reports(*(wanting(name, at_ms) for name in names.split()))
    return shard.run(left(events, **left_at_ms), now_ms=at_ms)


def ended(outcome: Outcome) -> list[tuple[str, str]]:
    return [(row["broker"], row["why"]) for row in outcome.ended.to_pylist()]


def statuses(outcome: Outcome) -> list[tuple[str, str]]:
    return [(row["broker"], row["status"]) for row in outcome.brokers.to_pylist()]


def test_the_share_of_a_broker_that_left_the_list_is_free_in_the_same_round() -> None:
    shard = three()
    assert list(shard.in_force.values()) == pytest.approx([30, 30, 30])
    outcome = shard.run(left(b3=T0 + 500), now_ms=T0 + 1000)
    assert ended(outcome) == [("b3", "departed")]
    assert statuses(outcome) == [("b3", "gone")]
    assert outcome.counts.brokers_departed == 1
    assert shard.in_force == {("g", "b1"): pytest.approx(45), ("g", "b2"): pytest.approx(45)}
    assert shard.state.brokers.names == ("b1", "b2")
    # The list goes on to say so, and nothing more follows from it.
    again = shard.run(left(b3=T0 + 500), now_ms=T0 + 2000)
    assert (ended(again), again.counts.brokers_departed, len(again.limits)) == ([], 0, 0)


def test_under_strict_the_lease_must_run_out() -> None:
    shard, without = three(Transition.STRICT), three(Transition.STRICT)
    for at_ms in range(T0 + 1000, T0 + 100_000, 7_000):
        events = reports(wanting("b1", at_ms), wanting("b2", at_ms))
        outcome = shard.run(left(events, b3=T0 + 500), now_ms=at_ms)
        silent = without.run(events, now_ms=at_ms)
        assert outcome.limits == silent.limits
        assert ended(outcome) == ended(silent)
        assert outcome.counts.brokers_departed == 0
    assert shard.state.brokers.names == ("b1", "b2"), "by silence, as ever"


def test_a_broker_whose_report_is_newer_than_the_list_is_alive_whatever_the_list_says() -> None:
    shard = three()
    for at_ms in range(T0 + 1000, T0 + 8000, 1000):
        assert ended(round_(shard, at_ms, "b1 b2 b3", b3=T0 + 500)) == []
    # It is silent from here on, and its departure is none: silence decides.
    reasons = []
    for at_ms in range(T0 + 12_000, T0 + 40_000, 5000):
        reasons += ended(round_(shard, at_ms, "b1 b2", b3=T0 + 500))
    assert reasons == [("b3", "silent")]


def test_a_broker_that_reports_is_alive_although_its_clock_is_behind() -> None:
    """It lost its session and serves on; then it dies, and the next list that says so is right."""
    shard = three()
    for second in range(1, 60, 2):
        at_ms = T0 + 1000 * second
        made = [wanting("b1", at_ms), wanting("b2", at_ms)]
        if second % 4 == 1:  # rounds without its report come between
            made.append(wanting("b3", at_ms - 60_000) | {"started_at_ms": 1})
        departures = {} if second < 13 else {"b3": T0 + 12_500}
        outcome = shard.run(left(reports(*made), **departures), now_ms=at_ms)
        assert ended(outcome) == []
    outcome = round_(shard, at_ms + 5000, "b1 b2", b3=at_ms + 4000)
    assert ended(outcome) == [("b3", "departed")]


def test_a_report_from_before_the_list_does_not_bring_it_back() -> None:
    shard = three()
    shard.run(left(b3=T0 + 500), now_ms=T0 + 1000)
    late = reports(wanting("b3", T0 + 400))
    outcome = shard.run(left(late, b3=T0 + 500), now_ms=T0 + 1500)
    assert shard.state.brokers.names == ("b1", "b2")
    assert ("g", "b3") not in shard.in_force
    assert outcome.counts.limits_sent == 0


def test_a_broker_that_comes_back_is_a_new_one() -> None:
    shard = three()
    shard.run(left(b3=T0 + 500), now_ms=T0 + 1000)
    at_ms = T0 + 20_000
    round_(shard, at_ms, "b1 b2 b3")
    assert list(shard.in_force.values()) == pytest.approx([30, 30, 30])
    outcome = shard.run(left(b3=at_ms + 100), now_ms=at_ms + 1000)
    assert ended(outcome) == [("b3", "departed")]


def test_half_of_the_brokers_may_leave_at_once_but_not_more() -> None:
    shard = started(100, b1=50, b2=50, b3=50, b4=50)
    outcome = shard.run(left(b1=T0 + 500, b2=T0 + 500, b3=T0 + 500), now_ms=T0 + 1000)
    assert ended(outcome) == []
    outcome = shard.run(left(b1=T0 + 1500, b2=T0 + 1500), now_ms=T0 + 2000)
    assert ended(outcome) == [("b1", "departed"), ("b2", "departed")]


def test_a_list_without_most_brokers_does_not_end_those_that_go_on_one_by_one() -> None:
    """As more of them report, fewer are left that could be gone: still the list is wrong."""
    shard = started(100, b1=50, b2=50, b3=50, b4=50)
    of_three = dict.fromkeys(("b1", "b2", "b3"), T0 + 500)
    for second, name in enumerate(("b1", "b2", "b3", "b4"), start=1):
        at_ms = T0 + 1000 * second
        outcome = shard.run(left(reports(report(name, at_ms, {"g": 50})), **of_three), now_ms=at_ms)
        assert ended(outcome) == []


def test_brokers_that_the_shard_does_not_know_change_nothing() -> None:
    shard = three()
    before = shard.state
    outcome = shard.run(left(x1=T0, x2=T0, x3=T0, x4=T0), now_ms=T0 + 1000)
    assert (ended(outcome), len(outcome.limits)) == ([], 0)
    assert shard.state.brokers.names == before.brokers.names


def test_a_broker_that_is_silent_for_too_long_is_silent_whatever_the_list_says() -> None:
    shard = three()
    shard.run(now_ms=T0 + 5_000)
    at_ms = T0 + int(CONFIG.expire_after_ms) + 1
    assert ended(round_(shard, at_ms, "b1 b2", b3=T0 + 500)) == [("b3", "silent")]


def test_the_order_of_names_does_not_matter() -> None:
    found = []
    for order in (("b1", "b3", "x"), ("x", "b3", "b1")):
        shard = started(100, b1=50, b2=50, b3=50, b4=50)
        rows = pa.table(
            {"broker": pa.chunked_array([list(order)]), "left_at_ms": np.full(3, T0 + 500)}
        )
        shard.run(Events(departures=rows), now_ms=T0 + 1000)
        found.append(shard.in_force)
    assert found[0] == found[1]
    assert sorted(found[0]) == [("g", "b2"), ("g", "b4")]
