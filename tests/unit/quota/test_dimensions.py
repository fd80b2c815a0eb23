"""Dimensions beyond the first four: divided like any other; nowhere while nobody limits them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.arrow import unpack
from quotaplane.model import BASIC, DIMENSIONS
from quotaplane.quota.config import Events
from quotaplane.quota.leases import fresh_leases
from quotaplane.quota.reported_usage import with_totals
from quotaplane.quota.state_codec import dump
from tests.unit.quota.step_cases import (
    CONFIG,
    STRICT,
    T0,
    WITH_PRICE,
    Shard,
    quotas,
    report,
    reports,
    started,
    with_quotas,
)
from tests.unit.quota.test_redefine import change, changes

TOTAL, TOTAL_BYTES, MUTATIONS = "total_messages", "total_bytes", "controller_mutations"
PUBLISH, DISPATCH = DIMENSIONS[0], DIMENSIONS[2]
NAN, INF = np.nan, np.inf
D = len(DIMENSIONS)
FIRST = tuple(range(BASIC))


def limits_of(table: pa.Table, dimension: str) -> dict[str, float]:
    """By broker."""
    limits = table[f"{dimension}_per_s"].to_pylist()
    return dict(zip(table["broker"].to_pylist(), limits, strict=True))


def test_mutations_are_divided_like_anything_else() -> None:
    shard = with_quotas(("g", {MUTATIONS: 30.0}))
    used = {"b1": 20.0, "b2": 5.0}
    outcome = shard.report(T0, {b: {MUTATIONS: u} for b, u in used.items()})
    limits = limits_of(outcome.limits, MUTATIONS)
    messages = started({PUBLISH: 30.0}, b1={PUBLISH: 20.0}, b2={PUBLISH: 5.0})
    assert list(limits.values()) == messages.state.leases.limit[0].tolist()
    assert sum(limits.values()) == pytest.approx(30.0)
    assert limits["b1"] > 20.0
    assert limits["b2"] > 5.0
    assert limits_of(outcome.limits, PUBLISH) == {"b1": INF, "b2": INF}
    assert f"safe_{MUTATIONS}_per_s" in outcome.limits.column_names
    assert outcome.usage[f"{MUTATIONS}_per_s"].to_pylist() == [20.0, 5.0]


def test_a_total_is_made_of_its_parts() -> None:
    """Stock reports have no totals, and leave out what hardly changed."""
    shard = started({TOTAL: 100.0}, b1={PUBLISH: 50.0, DISPATCH: 70.0}, b2={PUBLISH: 30.0})
    total = shard.state.leases.usage[shard.state.leases.dimensions.index(4)]
    assert total.tolist() == pytest.approx([120, 30])
    outcome = shard.report(
        T0 + 5000, {"b1": {PUBLISH: 20.0, DISPATCH: NAN}, "b2": {DISPATCH: 10.0}}
    )
    assert outcome.usage[f"{TOTAL}_per_s"].to_pylist() == pytest.approx([90, 40])
    assert sum(limits_of(outcome.limits, TOTAL).values()) <= 100.0
    unchanged = shard.report(T0 + 9000, {"b1": NAN})
    assert unchanged.usage[f"{TOTAL}_per_s"].to_pylist() == [None]
    assert shard.state.leases.usage[4].tolist() == pytest.approx([90, 40])


def test_who_is_held_back_by_a_total_is_seen_saturated_and_wakes_up() -> None:
    shard = started({TOTAL: 100.0}, WITH_PRICE, b1={PUBLISH: 60.0, DISPATCH: 60.0}, b2=0.0)
    for second in (5, 10):
        limit = shard.state.leases.limit[4]
        shard.report(
            T0 + second * 1000,
            {"b1": {PUBLISH: limit[0] / 2, DISPATCH: limit[0] / 2}, "b2": {PUBLISH: limit[1]}},
        )
    assert shard.state.leases.limit[4].tolist() == pytest.approx([50, 50], rel=0.01)


def totals_of(
    usage: list[list[float]],
    throttled: list[list[float]],
    demand: float = 5.0,
) -> tuple[list[float], list[float]]:
    """Totals of entries (publish, dispatch, total) of one row that used 5 and 6 before; ``demand``
    is what it wanted to publish."""
    entries = len(usage)
    rows = fresh_leases(np.zeros(1, np.int64), np.zeros(1, np.int64), (*FIRST, 4))
    rows.usage[[0, 2], 0] = [5.0, 6.0]
    rows.estimates.demand[[0, 2], 0] = [demand, 6.0]
    rows.usage.setflags(write=False)

    def array(rates: list[list[float]]) -> np.ndarray:
        made = np.full((5, entries), NAN)
        made[[0, 2, 4]] = np.array(rates).T
        return made

    at = np.zeros(entries, np.int64)
    used, refused = with_totals(array(usage), array(throttled), rows, at)
    return used[4].tolist(), refused[4].tolist()


@pytest.mark.parametrize(
    ("usage", "throttled", "total", "refused"),
    [
        ([1, 2, NAN], [NAN, NAN, NAN], 3, NAN),
        ([1, NAN, NAN], [NAN, NAN, NAN], 7, NAN),
        ([NAN, NAN, NAN], [NAN, NAN, NAN], NAN, NAN),
        ([1, 2, 9], [NAN, NAN, NAN], 9, NAN),
        ([1, 2, NAN], [3, 4, NAN], 3, 7),
        ([1, 2, NAN], [3, NAN, NAN], 3, NAN),  # dispatch may have been refused as well
        ([1, NAN, NAN], [3, NAN, NAN], 7, 3),
        ([1, 2, NAN], [3, 4, 1], 3, 1),
    ],
)
def test_what_a_total_is(
    usage: list[float], throttled: list[float], total: float, refused: float
) -> None:
    found = totals_of([usage], [throttled])
    assert [*found[0], *found[1]] == pytest.approx([total, refused], nan_ok=True)


def test_what_is_refused_of_an_unchanged_part_may_be_unknown() -> None:
    """Then it is unknown of the total, and that is seen saturated where it is."""
    assert np.isnan(totals_of([[NAN, 2, NAN]], [[NAN, 3, NAN]], demand=INF)[1]).all()


def test_of_several_reports_in_a_round_each_goes_on_from_the_one_before() -> None:
    usage = [[9, NAN, NAN], [NAN, 2, NAN], [8, 2, NAN], [NAN, 3, NAN]]
    throttled = [[30, NAN, NAN], [NAN, 4, NAN], [NAN, 0, NAN], [NAN, 1, NAN]]
    used, refused = totals_of(usage, throttled)
    assert used == [15, 11, 10, 11]
    # What is refused of the third's publish nobody told, so nobody knows it of the fourth's.
    assert refused == pytest.approx([30, 34, NAN, NAN], nan_ok=True)


part = st.sampled_from([NAN, 0.0, 1.0, 5.0, 1e6])


@pytest.mark.slow
@given(st.lists(st.tuples(st.booleans(), part, part), min_size=1, max_size=8))
def test_the_total_kept_is_always_the_sum_of_the_parts_kept(
    seen: list[tuple[bool, float, float]],
) -> None:
    """Any reports, in one round or in several, with and without a quota."""
    shard = with_quotas(("g", 1.0))
    pending: list[dict[str, Any]] = []
    for number, (ends, publish, dispatch) in enumerate(seen, start=1):
        at_ms = T0 + number * 100
        pending.append(report("b1", at_ms, {"g": {PUBLISH: publish, DISPATCH: dispatch}}))
        if ends or number == len(seen):
            shard.run(reports(*pending), now_ms=at_ms)
            quota = {TOTAL: 7.0} if number % 2 else {PUBLISH: 7.0}
            shard.run(quotas(("g", quota), version=number), now_ms=at_ms + 50)
            pending = []
        rows = shard.state.leases
        if 4 in rows.dimensions and len(rows):
            both = rows.usage[[0, 2], 0].sum()
            assert rows.usage[4, 0] == pytest.approx(both, rel=1e-6)


def said(at_ms: int, usage: Any, throttled: Any, **others: float) -> Events:
    """Report of broker a, and those of others, by name: what they publish, with nothing refused."""
    rest = (report(b, at_ms, {"g": u}, throttled=0.0) for b, u in others.items())
    return reports(report("a", at_ms, {"g": usage}, throttled=throttled), *rest)


def test_what_is_still_refused_of_an_unchanged_part_stays_in_the_total() -> None:
    """Refusals are reported; then only the other part changes, and another broker leaves room."""
    shard = with_quotas(("g", {TOTAL: 300.0}))
    told = {PUBLISH: 400.0, DISPATCH: 0.0}
    shard.run(said(T0, {PUBLISH: 75.0, DISPATCH: 75.0}, told, b=150.0), now_ms=T0)
    rows = shard.state.leases
    assert rows.estimates.demand[4].tolist() == pytest.approx([550, 150])
    for second, b in ((5, 150.0), (10, 10.0), (15, 10.0)):
        at_ms = T0 + second * 1000
        usage, refused = {PUBLISH: NAN, DISPATCH: 75.0 + second % 2}, {DISPATCH: 1.0}
        outcome = shard.run(said(at_ms, usage, refused, b=b), now_ms=at_ms)
        rows = shard.state.leases
        assert rows.estimates.demand[4, 0] == pytest.approx(550, rel=0.01)
        assert rows.estimates.demand[0, 0] == pytest.approx(475)
        assert rows.reports_refused.all()
    assert rows.limit[4].tolist() == pytest.approx([290, 10], rel=0.02)
    assert outcome.counts.limits_changed == 0


def test_noise_of_an_unchanged_part_is_no_refusal() -> None:
    """Known demand may be a little more than the last usage."""
    shard = with_quotas(("g", {TOTAL: 300.0}))
    none = {PUBLISH: 0.0, DISPATCH: 0.0}
    for turn in range(12):
        used = {PUBLISH: 75.0 + 5 * (-1) ** turn, DISPATCH: 10.0}
        at_ms = T0 + turn * 5000
        shard.run(said(at_ms, used, none), now_ms=at_ms)
    assert shard.state.leases.estimates.demand[0, 0] > shard.state.leases.usage[0, 0] + 1
    last = T0 + 60_000
    shard.run(said(last, {PUBLISH: NAN, DISPATCH: 11.0}, {DISPATCH: 0.0}), now_ms=last)
    assert shard.state.leases.estimates.distrust[4].tolist() == [0]


def test_what_nobody_limits_is_nowhere() -> None:
    shard = started({PUBLISH: 100.0}, b1={PUBLISH: 50.0, MUTATIONS: 7.0})
    outcome = shard.report(T0 + 5000, {"b1": {PUBLISH: 90.0, MUTATIONS: 8.0}})
    assert shard.state.leases.dimensions == FIRST
    assert shard.state.leases.usage.shape == (BASIC, 1)
    assert not any("mutations" in name or "total" in name for name in outcome.limits.column_names)
    assert outcome.usage is not None  # but what was reported is history
    assert outcome.usage[f"{MUTATIONS}_per_s"].to_pylist() == [8.0]
    columns = {name for table in unpack(dump(shard.state)) for name in table.column_names}
    assert not any("mutations" in name or "total" in name for name in columns)


@pytest.mark.parametrize(
    ("scope", "dimensions"),
    [
        ("client=<default>", FIRST),
        ("user=alice,client=<default>", FIRST),
        ("client=app", (*FIRST, 4, 6)),
        ("client=%3Cdefault%3E", (*FIRST, 4, 6)),  # somebody who is really called so
        ("user=<default>,user=x", (*FIRST, 4, 6)),  # no scope: a group like any other
    ],
)
def test_a_template_makes_no_row_carry_what_only_it_limits(
    scope: str, dimensions: tuple[int, ...]
) -> None:
    """Each broker holds each such user to it by itself: there is nothing to divide."""
    text = '{"*": {"ceiling": {"total_messages_per_s": 3.0}}}'
    limited = {f"{MUTATIONS}_per_s": 5.0}
    shard = Shard()
    rows = [
        change("g", 1, **{f"{PUBLISH}_per_s": 100.0}),
        change(scope, 2, brokers=text, **limited),
    ]
    shard.run(Events(groups=changes(*rows)), now_ms=T0)
    for second in (0, 5):
        shard.report(T0 + second * 1000, {"b1": 1.0})
        assert shard.state.leases.dimensions == dimensions
    shard.run(quotas(("h", {TOTAL_BYTES: 5.0}), version=5), now_ms=T0 + 6000)
    assert shard.state.leases.dimensions == tuple(sorted({*dimensions, 5}))


def test_a_quota_that_comes_later_finds_the_total_known() -> None:
    shard = started({PUBLISH: 1000.0}, b1={PUBLISH: 50.0, DISPATCH: 60.0}, b2={PUBLISH: 5.0})
    outcome = shard.run(quotas(("g", {TOTAL: 100.0}), version=1), now_ms=T0 + 1000)
    assert shard.state.leases.dimensions == (*FIRST, 4)
    limits = limits_of(outcome.limits, TOTAL)
    assert limits["b1"] == pytest.approx(95, rel=0.03)
    assert sum(limits.values()) <= 100.0


def test_a_quota_that_comes_later_finds_mutations_unknown_until_they_are_reported() -> None:
    shard = started({PUBLISH: 1000.0}, b1={MUTATIONS: 9000.0}, b2={MUTATIONS: 1000.0})
    outcome = shard.run(quotas(("g", {MUTATIONS: 1e4}), version=1), now_ms=T0 + 1000)
    assert limits_of(outcome.limits, MUTATIONS) == pytest.approx({"b1": 5e3, "b2": 5e3}, rel=0.01)
    for second in (5, 10):
        told = shard.state.leases.limit[4]
        used = {"b1": min(9000.0, told[0]), "b2": min(1000.0, told[1])}
        shard.report(T0 + second * 1000, {b: {MUTATIONS: u} for b, u in used.items()})
    assert shard.state.leases.limit[4].tolist() == pytest.approx([9000, 1000], rel=0.06)


def test_a_quota_taken_away_is_told_and_then_forgotten() -> None:
    shard = started({TOTAL: 100.0}, b1={PUBLISH: 90.0})
    outcome = shard.run(quotas(("g", {PUBLISH: 50.0}), version=1), now_ms=T0 + 1000)
    assert limits_of(outcome.limits, TOTAL) == {"b1": INF}
    assert outcome.limits["published"].to_pylist() == [True]
    shard.run(now_ms=T0 + 2000)
    assert shard.state.leases.dimensions == FIRST
    again = shard.run(quotas(("g", {TOTAL: 60.0}), version=2), now_ms=T0 + 3000)
    assert limits_of(again.limits, TOTAL)["b1"] == pytest.approx(60, rel=1e-6)


def test_a_ceiling_alone_limits() -> None:
    text = '{"b1": {"ceiling": {"controller_mutations_per_s": 3.0}}}'
    shard = Shard()
    shard.run(Events(groups=changes(change("g", 1, brokers=text))), now_ms=T0)
    outcome = shard.report(T0, {"b1": 1.0, "b2": 1.0})
    assert limits_of(outcome.limits, MUTATIONS) == {"b1": 3.0}
    assert shard.state.leases.limit[4].tolist() == [3.0, INF]


def test_a_floor_waits_for_the_quota_above_it() -> None:
    """It says nothing by itself, and must not be lost meanwhile."""
    column = f"floor_{MUTATIONS}_per_s"
    shard = Shard()
    rows = [change("t", 1), change("t::a", 2, **{column: 8.0}), change("t::b", 3)]
    shard.run(Events(groups=changes(*rows)), now_ms=T0)
    one = report("b1", T0, {"t::a": {MUTATIONS: 9.0}, "t::b": {MUTATIONS: 9.0}})
    shard.run(reports(one), now_ms=T0)
    assert shard.state.leases.dimensions == FIRST
    limited = {f"{MUTATIONS}_per_s": 10.0}
    shard.run(Events(groups=changes(change("t", 4, **limited))), now_ms=T0 + 1000)
    two = report("b1", T0 + 5000, {"t::a": {MUTATIONS: 9.0}, "t::b": {MUTATIONS: 9.0}})
    outcome = shard.run(reports(two), now_ms=T0 + 5000)
    names = outcome.limits["group"].to_pylist()
    found = dict(zip(names, outcome.limits[f"{MUTATIONS}_per_s"].to_pylist(), strict=True))
    assert found == pytest.approx({"t::a": 8, "t::b": 2}, rel=0.01)


def test_strict_waits_for_an_answer_where_nothing_was_limited_before() -> None:
    """Brokers that were never limited may be using anything of a new quota."""
    shard = with_quotas(("g", {PUBLISH: 100.0}), config=STRICT)
    shard.report(T0, {"b1": 1.0, "b2": 1.0})
    shard.run(quotas(("g", {TOTAL: 100.0}), version=1), now_ms=T0 + 1000)
    rows = shard.state.leases
    assert rows.max_in_force[4].tolist() == [INF, INF]
    assert rows.limit[4].sum() <= 100.0
    shard.report(T0 + 2000, {"b1": 1.0}, applied_epoch=1, applied_seqs=2)
    assert np.isfinite(shard.state.leases.max_in_force[4]).tolist() == [True, False]


def test_strict_keeps_a_dimension_until_every_broker_was_told() -> None:
    shard = with_quotas(("g", {TOTAL: 100.0}), config=STRICT)
    shard.report(T0, {"b1": 1.0, "b2": 1.0})
    later = T0 + int(STRICT.stale_after_ms) + 1  # b2 was not heard of: it is told nothing
    shard.report(later, {"b1": 1.0})
    shard.run(quotas(("g", {PUBLISH: 100.0}), version=1), now_ms=later)
    shard.run(now_ms=later + 1)
    assert shard.state.leases.dimensions == (*FIRST, 4)
    assert np.isfinite(shard.state.leases.limit[4]).tolist() == [False, True]
    shard.report(later + 2, {"b1": 1.0, "b2": 1.0})
    shard.run(now_ms=later + 3)
    assert shard.state.leases.dimensions == FIRST


def test_what_a_deleted_group_may_still_use_where_it_was_not_limited_is_anything() -> None:
    shard = with_quotas(("t", {PUBLISH: 100.0}), ("t::a", {PUBLISH: 50.0}), config=STRICT)
    shard.run(reports(report("b1", T0, {"t": 1.0, "t::a": 1.0})), now_ms=T0)
    shard.run(quotas("t::a", version=5), now_ms=T0 + 1000)
    assert shard.state.deleted.held[:, 0].tolist() == [pytest.approx(50), *[INF] * (D - 1)]
    shard.run(quotas(("t", {TOTAL: 10.0}), version=6), now_ms=T0 + 2000)
    again = reports(report("b2", T0 + 3000, {"t": 1.0}))
    outcome = shard.run(again, now_ms=T0 + 3000)
    assert limits_of(outcome.limits, TOTAL)["b2"] == 0.0


def test_a_limit_of_an_earlier_epoch_is_handed_back_in_any_dimension() -> None:
    shard = with_quotas(("g", {PUBLISH: 100.0}), epoch=7)
    told = {"applied_epoch": 3, "applied_seq": 9, "limit": {MUTATIONS: 4.0, PUBLISH: 30.0}}
    outcome = shard.report(T0, {"b1": 1.0}, **told)
    assert limits_of(outcome.limits, MUTATIONS) == {"b1": 4.0}
    done = T0 + int(CONFIG.lease_ms + CONFIG.stale_after_ms) + 1
    outcome = shard.report(done, {"b1": 1.0})
    assert limits_of(outcome.limits, MUTATIONS) == {"b1": INF}
