"""Tests of the quota step on hand-made tables, without Spark, wire formats or a clock."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.arrays import to_single
from quotaplane.model import THROTTLED_COLUMNS, group_id
from quotaplane.quota.config import Events
from quotaplane.quota.headroom import wanted_headroom
from quotaplane.quota.state_codec import dump, load
from quotaplane.quota.step import next_due_ms
from quotaplane.wire.shard_inputs import pack_departures, unpack_departures
from tests.examples import examples
from tests.unit.quota.step_cases import (
    CONFIG,
    T0,
    WITH_PRICE,
    Shard,
    quotas,
    report,
    reports,
    sigma,
    started,
    with_quotas,
)


def test_pip82_example_gets_its_residual_as_headroom() -> None:
    """Those of less demand have all the headroom they want, the largest has the rest."""
    demand = np.array([10.0, 50.0, 30.0])
    shard = started(100, WITH_PRICE, b1=10, b2=50, b3=30)
    limits = np.array([shard.in_force["g", b] for b in ("b1", "b2", "b3")])
    wanted = wanted_headroom(demand, np.array(list(map(sigma, demand))), np.zeros(3, bool))
    assert (limits - demand)[[0, 2]] == pytest.approx(wanted[[0, 2]], rel=1e-3)
    assert limits[1] >= 50
    assert sum(limits) == pytest.approx(100)
    assert sum(limits) <= 100


def test_an_idle_broker_that_wakes_has_its_fair_share_one_round_after_it_was_seen_saturated() -> (
    None
):
    shard = started(100, WITH_PRICE, b1=200, b2=0)
    idle = shard.in_force["g", "b2"]
    assert idle == pytest.approx(0.05 * 50)  # of its even share
    for turn in (1, 2):  # b2 wakes: it uses all of the little it has, b1 all of the rest
        uses = {b: shard.in_force["g", b] for b in ("b1", "b2")}
        shard.report(T0 + 20_000 * turn, uses)
        assert shard.in_force["g", "b2"] == pytest.approx(50)


def test_a_broker_that_was_restarted_is_told_its_limits_at_once() -> None:
    shard = with_quotas(("g", 100))
    for at in (T0, T0 + 1_000):
        shard.report(at, {"b1": 200, "b2": 200}, started_at_ms=5)
    at = T0 + 2_000
    again = (
        report("b1", at, {"g": 200}, started_at_ms=at - 100),
        report("b2", at, {"g": 200}, started_at_ms=5),
    )
    outcome = shard.run(reports(*again), now_ms=at)
    assert outcome.limits["broker"].to_pylist() == ["b1"]
    assert outcome.limits["changed"].to_pylist() == [False]


def test_a_heartbeat_without_groups_does_not_change_how_its_broker_names_them() -> None:
    shard = with_quotas(("g", 100))
    shard.report(T0, {"b1": 9}, uses_ids=True)
    shard.run(reports(report("b1", T0 + 1_000, {}, uses_ids=False)), now_ms=T0 + 1_000)
    assert shard.state.brokers.uses_ids.tolist() == [True]
    assert shard.state.brokers.seen_at_ms.tolist() == [T0 + 1_000]


def test_a_clock_that_is_ahead_keeps_no_row_longer() -> None:
    shard = with_quotas(("g", 100))
    shard.run(reports(report("b1", T0 + 9_000, {"g": 9})), now_ms=T0)
    assert shard.state.leases.seen_at_ms.tolist() == [T0]


def test_a_report_from_before_a_raise_does_not_look_satisfied() -> None:
    """The window began under the old limit of 50, so a usage of 50 still counts as saturated."""
    shard = started(100, b1=200, b2=200)
    assert shard.in_force["g", "b1"] == pytest.approx(50)
    shard.report(T0 + 20_000, {"b1": 50, "b2": 10})
    assert shard.in_force["g", "b1"] == pytest.approx(90)
    shard.report(T0 + 21_000, {"b1": 50})
    assert shard.in_force["g", "b1"] == pytest.approx(90)


def test_a_report_that_names_an_older_applied_seq_is_held_against_the_limit_before() -> None:
    shard = started(100, b1=200, b2=200)
    shard.report(T0 + 20_000, {"b1": 50, "b2": 10})
    late = T0 + 29_000  # the window began after the raise, but the broker had not heard of it
    shard.report(late, {"b1": 50}, applied_epoch=1, applied_seq=1)
    assert shard.in_force["g", "b1"] == pytest.approx(90)
    shard.report(late + 1, {"b1": 50}, applied_epoch=1, applied_seq=2)
    headroom = {rate: 3 * sigma(rate) for rate in (50, 10)}
    spare = 100 - 60 - sum(headroom.values())
    assert shard.in_force["g", "b1"] == pytest.approx(50 + headroom[50] + spare / 2, rel=1e-3)


def test_a_silent_broker_turns_stale_then_gone_and_its_share_is_given_on() -> None:
    shard = started(100, b1=200, b2=200)
    seen = []
    for second in (4, 8, 12, 16):
        outcome = shard.report(T0 + second * 1000, {"b1": 50})
        seen.append([tuple(row.values())[:2] for row in outcome.brokers.to_pylist()])
    assert seen == [[], [], [("b2", "stale")], [("b2", "gone")]]
    assert shard.in_force == {("g", "b1"): pytest.approx(100)}
    assert shard.state.brokers.names == ("b1",)


def test_a_timer_alone_expires_the_last_broker_and_then_nothing_is_due() -> None:
    shard = started(100, b1=200)
    while (due := next_due_ms(shard.state, CONFIG)) is not None:
        assert due < T0 + 60_000
        shard.run(now_ms=due)
    assert (len(shard.state.leases), len(shard.state.brokers), shard.in_force) == (0, 0, {})


@pytest.mark.parametrize(
    ("quota", "limit"),
    [
        pytest.param(60, 30, id="lowered"),
        pytest.param(104, 52, id="by so little that in a demand it might be noise"),
        pytest.param(-5, 0, id="below zero, as somebody wrote into the table"),
        pytest.param(None, np.inf, id="taken away"),
    ],
)
def test_a_quota_change_is_in_force_with_its_own_round(quota: float | None, limit: float) -> None:
    shard = started(100, b1=200, b2=200)
    shard.run(quotas(("g", quota), version=5), now_ms=T0 + 100)
    assert list(shard.in_force.values()) == pytest.approx([limit, limit])


def test_the_latest_of_several_changes_counts_and_groups_come_and_go() -> None:
    shard = started(100, b1=10)
    outcome = shard.run(quotas("g", ("h", 7), ("g", 50), "h", version=3), now_ms=T0 + 1)
    assert shard.state.groups.names.to_pylist() == ["g"]
    assert shard.in_force == {("g", "b1"): pytest.approx(50)}
    outcome = shard.run(quotas("g", version=9), now_ms=T0 + 2)
    assert [(r["group"], r["why"]) for r in outcome.ended.to_pylist()] == [("g", "group_deleted")]
    assert len(shard.state.groups) == len(shard.state.leases) == 0


def test_unknown_groups_come_out_as_such_and_the_others_are_used() -> None:
    shard = with_quotas(("g", 100))
    outcome = shard.run(reports(report("b1", T0, {"nobody": 3, "g": 10})), now_ms=T0)
    assert outcome.unknown["group"].to_pylist() == ["nobody"]
    assert outcome.usage["group"].to_pylist() == ["g"]
    assert shard.in_force == {("g", "b1"): pytest.approx(100)}


def test_a_broker_that_missed_a_deletion_is_told_again() -> None:
    shard = started(100, b1=10)
    shard.run(quotas("g", version=3), now_ms=T0 + 1)
    late = report("b1", T0 + 2, {"g": 10, "never limited": 3}, limit=25.0)
    early = shard.run(reports(late), now_ms=T0 + 2)
    assert early.limited_but_deleted is None  # it may yet hear of the group
    at = T0 + int(CONFIG.lease_ms + CONFIG.stale_after_ms) + 5
    shard.run(now_ms=at)
    free = report("b2", at, {"h": 10}, limit=np.inf)
    held = report("b1", at, {"g": 10}, limit=25.0, uses_ids=True)
    outcome = shard.run(reports(free, held), now_ms=at)
    (told,) = outcome.limited_but_deleted.to_pylist()
    assert (told["broker"], told["group"], told["uses_ids"]) == ("b1", "g", True)
    assert told["group_id"] == group_id("g")
    assert len(outcome.ended) == 0


@pytest.mark.parametrize("times", [1, 10, 100, 1000])
@pytest.mark.parametrize("told", [{}, {THROTTLED_COLUMNS[1]: 0.0}])
def test_who_tells_what_it_refused_of_something_else_still_shows_that_it_wants_more(
    told: dict[str, float], times: float
) -> None:
    """Its limit is so near what it used before that noise, too, might be why it is touched: after
    some windows it is not. However much that is, and though small changes are not published."""
    shard = with_quotas(("g", 100 * times), config=WITH_PRICE)
    for turn in range(20):
        at, made = T0 + 5_000 * turn, []
        for broker, share in {"b1": 20.0 if turn < 10 else 60.0, "b2": 500.0}.items():
            used = min(share * times, shard.in_force.get(("g", broker), 50.0 * times))
            made.append(report(broker, at, {"g": used}, applied_epoch=1, applied_seq=shard.seq - 1))
            made[-1]["more"] |= told
        shard.run(reports(*made), now_ms=at)
    assert shard.in_force["g", "b1"] == pytest.approx(50 * times, rel=0.05)


def test_small_changes_are_not_sent_and_everything_is_renewed_in_turn() -> None:
    shard = started(100, b1=40, b2=40)
    renewed = 0
    for turn in range(1, CONFIG.refresh_rounds + 1):
        used = 40 + turn / 100
        outcome = shard.report(T0 + 2_000 * turn, {"b1": used, "b2": used})
        assert outcome.counts.limits_changed == 0
        renewed += len(outcome.limits)
    assert renewed == 2


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("quota"), st.sampled_from("gh"), st.floats(0, 1e6)),
        st.tuples(st.just("delete"), st.sampled_from("gh"), st.just(0.0)),
        st.tuples(st.just("report"), st.sampled_from("abc"), st.floats(0, 1e6)),
        st.tuples(st.just("wait"), st.just(""), st.floats(0, 30_000)),
        st.tuples(st.just("leave"), st.sampled_from("abc"), st.floats(0, 10_000)),
    ),
    max_size=25,
)


@pytest.mark.slow
@given(EVENTS)
@examples(2)
def test_whatever_happens_limits_in_force_fit_the_quota_and_the_state_survives_its_bytes(
    events: list[tuple[str, str, float]],
) -> None:
    shard, now = Shard(), T0
    for number, (kind, name, value) in enumerate(events):
        now += 1
        if kind == "wait":
            now += int(value)
            outcome = shard.run(now_ms=now)
        elif kind == "leave":
            left = unpack_departures([pack_departures({name: now - int(value)})])
            outcome = shard.run(Events(departures=left), now_ms=now)
        elif kind == "report":
            made = report(name, now, {"g": value, "h": value / 2})
            outcome = shard.run(reports(made), now_ms=now)
        else:
            change = name if kind == "delete" else (name, value)
            outcome = shard.run(quotas(change, version=number), now_ms=now)
        again = load(dump(shard.state))
        assert dump(again) == dump(shard.state)
        for index, group in enumerate(shard.state.groups.names.to_pylist()):
            rows = shard.state.leases
            total = rows.limit[0][rows.group == index].sum()
            told = [v for (g, _), v in shard.in_force.items() if g == group]
            if told:
                assert total <= shard.state.groups.quota[0][index] * (1 + 1e-9)
                assert sum(told) == pytest.approx(total)
        assert outcome.counts.limits_sent == len(outcome.limits)


def test_to_single_never_rounds_up() -> None:
    values = np.random.default_rng(1).random(1000) * 1e6
    single = to_single(values)
    assert (single <= values).all()
    assert single == pytest.approx(values, rel=1e-6)
    assert (to_single(single) == single).all()
    below_one = float(np.nextafter(np.float32(1.0), np.float32(0.0)))
    edges = to_single(np.array([0.0, 1e-50, 1.0 - 1e-12, np.inf]))
    assert edges.tolist() == [0.0, 0.0, below_one, np.inf]
