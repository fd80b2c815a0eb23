"""The quick what-if by numbers computed by hand, without a history."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.errors import InputError
from quotaplane.model import DIMENSIONS, FloatArray
from quotaplane.query.buckets import Grid
from quotaplane.quota.group_changes import change_groups
from quotaplane.quota.groups import Groups
from quotaplane.quota.state import ShardState
from quotaplane.replay.period import MOST_CELLS, Period, period_of
from quotaplane.replay.quick_what_if import (
    below,
    by_broker,
    compare,
    difference_rows,
    steady_config,
    steady_limits,
    totals,
)
from quotaplane.replay.quota_what_if import less_and_more
from tests.closed_loop.conftest import settings_with

D, INF, NAN = len(DIMENSIONS), np.inf, np.nan
MESSAGES = DIMENSIONS[0]


def groups_with(**quotas: Any) -> Groups:
    """Groups by id; a quota, or a dict with more columns."""
    rows = [q if isinstance(q, dict) else {f"{MESSAGES}_per_s": q} for q in quotas.values()]
    names = {column for row in rows for column in row}
    columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in sorted(names)}
    columns |= {"group": [name.replace("__", "::") for name in quotas], "version": [1] * len(rows)}
    columns |= {"group_id": list(range(1, len(rows) + 1)), "deleted": [False] * len(rows)}
    return change_groups(ShardState(), pa.table(columns)).groups


def period_with(groups: Groups, lines: list[tuple[int, str, float, float]], count: int) -> Period:
    """A period of ``count`` seconds; lines: place of the group, broker, usage and limit."""
    brokers = tuple(sorted({broker for _, broker, _, _ in lines}))
    shape = (D, len(lines), count)
    used, limit = np.zeros(shape), np.full(shape, INF)
    for place, (_, _, rate, most) in enumerate(lines):
        used[0, place], limit[0, place] = rate, most
    return Period(
        since_ms=0,
        until_ms=1000 * count,
        grid=Grid(0, 1000, count),
        brokers=brokers,
        group=np.array([group for group, *_ in lines]),
        broker=np.array([brokers.index(broker) for _, broker, _, _ in lines]),
        quota=np.repeat(groups.quota[:, :, None], count, axis=2),
        used=used,
        throttled=np.full(shape, NAN),
        limit=limit,
        demand=np.full(shape, INF),
        used_ms=np.full((len(lines), count), 1000.0),
    )


def with_quota(period: Period, rate: float | None) -> FloatArray:
    """The period's quotas, of the first group another one."""
    quota = period.quota.copy()
    if rate is not None:
        quota[0, 0] = rate
    return quota


def limits(
    period: Period, groups: Groups, quota: float | None = None, law: str | None = None
) -> FloatArray:
    """On messages, in each bucket."""
    config = steady_config(settings_with(), law)
    return steady_limits(period, groups, with_quota(period, quota), config)[0]


def test_the_example_of_the_page() -> None:
    # Two brokers use 50 each of a quota of 100 for an hour; with 60 each has 30.
    groups = groups_with(g=100.0)
    period = period_with(groups, [(0, "a", 50.0, 50.0), (0, "b", 50.0, 50.0)], 3600)
    quota, config = with_quota(period, 60.0), steady_config(settings_with())
    before, after = (steady_limits(period, groups, q, config) for q in (period.quota, quota))
    np.testing.assert_allclose(after[0], 30.0, rtol=1e-6)
    assert np.isinf(after[1:]).all()
    rows = difference_rows(period, groups, compare(period, before, after, quota)).to_pylist()
    assert [(row["broker"], row["dimension"]) for row in rows] == [("a", MESSAGES), ("b", MESSAGES)]
    for row in rows:
        assert row["less_units"] == pytest.approx(72_000, rel=1e-6)
        assert (row["less_s"], row["more_units"]) == (3600, 0)
        assert row["limit_per_s"] == pytest.approx(50)
        assert row["changed_limit_per_s"] == pytest.approx(30, rel=1e-6)
        assert row["first_less_at"].timestamp() == 0
        assert row["last_less_at"].timestamp() == 3600


def test_each_bucket_is_divided_on_its_own() -> None:
    groups = groups_with(g=100.0)
    period = period_with(groups, [(0, "a", 80.0, 80.0), (0, "b", 10.0, 50.0)], 2)
    period.used[0, :, 1] = 50.0
    period.limit[0, :, 1] = 50.0
    # First b has its 10 and 2 % on top, then both are at their limits.
    np.testing.assert_allclose(limits(period, groups, 60.0), [[50, 30], [10, 30]], rtol=1e-6)


def test_a_pair_without_reports_takes_no_part() -> None:
    groups = groups_with(g=100.0)
    period = period_with(groups, [(0, "a", 90.0, 50.0), (0, "b", 90.0, 50.0)], 2)
    period.used_ms[1, 1] = 0.0
    period.used[0, 1, 1] = NAN
    np.testing.assert_allclose(limits(period, groups), [[50.0, 100.0], [50.0, INF]], rtol=1e-6)


def test_siblings_share_by_weight_and_floor() -> None:
    lines = [(1, "a", 40.0, 40.0), (2, "a", 40.0, 40.0)]
    plain = groups_with(t=80.0, t__x=INF, t__y=INF)
    period = period_with(plain, lines, 3)
    rate = f"{MESSAGES}_per_s"
    weighted = groups_with(t={rate: 80.0}, t__x={rate: None, "weight": 3.0}, t__y={rate: None})
    floored = groups_with(
        t={rate: 80.0}, t__x={rate: None}, t__y={rate: None, f"floor_{rate}": 70.0}
    )
    cases = ((plain, [40.0, 40.0]), (weighted, [60.0, 20.0]), (floored, [10.0, 70.0]))
    for groups, expected in cases:
        every = np.repeat([expected], 3, axis=0).T
        np.testing.assert_allclose(limits(period, groups), every, rtol=1e-5)


def test_terms_of_single_brokers_hold_in_every_bucket() -> None:
    rate = f"{MESSAGES}_per_s"
    terms = '{"a": {"weight": 3}, "b": {"ceiling": {"publish_messages_per_s": 5}}}'
    groups = groups_with(other=INF, g={rate: 100.0, "brokers": terms})
    lines = [(1, "a", 80.0, 50.0), (1, "b", 80.0, 50.0), (1, "c", 80.0, 20.0)]
    period = period_with(groups, lines, 4)
    expected = np.repeat([[95 * 3 / 4, 5.0, 95 / 4]], 4, axis=0).T
    np.testing.assert_allclose(limits(period, groups), expected, rtol=1e-5)


def test_a_refusal_shows_the_demand_of_a_broker_at_its_limit() -> None:
    groups = groups_with(g=100.0)
    period = period_with(groups, [(0, "a", 20.0, 20.0), (0, "b", 80.0, 80.0)], 1)
    period.throttled[0] = [[10.0], [100.0]]
    np.testing.assert_allclose(limits(period, groups, 120.0), [[30.0], [90.0]], rtol=1e-6)


def test_where_the_law_gives_the_same_the_recorded_limit_stays() -> None:
    groups = groups_with(g=100.0)
    period = period_with(groups, [(0, "a", 50.0, 41.0), (0, "b", 50.0, 44.0)], 2)
    law = steady_limits(period, groups, period.quota, steady_config(settings_with()))
    same = compare(period, law, law, period.quota)
    np.testing.assert_array_equal(same.limit, period.limit)
    assert not same.less.any()
    assert not same.more.any()


def test_another_law() -> None:
    groups = groups_with(g=90.0)
    lines = [(0, "a", 80.0, 80.0), (0, "b", 5.0, 80.0), (0, "c", 5.0, 80.0)]
    period = period_with(groups, lines, 1)
    found = limits(period, groups, law="static")
    np.testing.assert_allclose(found, [[30.0]] * 3, rtol=1e-6)


def test_sums_over_brokers_of_a_group_and_those_below() -> None:
    groups = groups_with(t=80.0, t__x=INF, t__x__z=INF, u=1.0)
    assert below(groups, 0).tolist() == [True, True, True, False]
    assert below(groups, 1).tolist() == [False, True, True, False]
    lines = [(0, "a", 1.0, 5.0), (1, "a", 2.0, INF), (2, "b", 4.0, INF), (3, "b", 8.0, 9.0)]
    period = period_with(groups, lines, 1)
    pairs = below(groups, 0)[period.group]
    assert by_broker(period, pairs, period.used[0]).tolist() == [[3.0], [4.0]]
    assert by_broker(period, pairs, period.limit[0]).tolist() == [[5.0], [INF]]
    assert np.isnan(by_broker(period, pairs & False, period.used[0])).all()


def test_totals_count_only_time_that_was_measured() -> None:
    groups = groups_with(g=100.0)
    period = period_with(groups, [(0, "a", 50.0, 50.0)], 4)
    period.used_ms[0] = [0.0, 500.0, 1000.0, 1000.0]
    changed = period.limit.copy()
    changed[0, 0] = [10.0, 10.0, 30.0, 70.0]
    sums = totals(period, compare(period, period.limit, changed, period.quota))
    assert sums.less[0, 0] == 40 * 0.5 + 20
    assert (sums.less_ms[0, 0], sums.first_ms[0, 0], sums.last_ms[0, 0]) == (1500, 1000, 3000)
    assert (sums.more[0, 0], sums.more_ms[0, 0]) == (20, 1000)


def test_less_and_more() -> None:
    used = np.array([50.0, 50.0, 50.0, 50.0, 10.0, 50.0])
    limit = np.array([50.0, 20.0, INF, 50.0, 50.0, 50.0])
    changed = np.array([30.0, 10.0, 40.0, 60.0, 60.0, INF])
    less, more = less_and_more(used, limit, changed)
    assert less.tolist() == [20, 10, 10, 0, 0, 0]
    assert more.tolist() == [0, 0, 0, 10, 0, 0]


def columns(rows: list[dict[str, Any]], *names: str) -> dict[str, Any]:
    return {name: np.array([row.get(name) for row in rows]) for name in names}


def recorded(buckets: int = 4) -> Period:
    """Usage of two brokers from 1 s on, a limit on one from 2 s on, a quota changed at 3 s."""
    usage = [
        {"broker": b, "at_ms": 1000 * n, "used_per_s": 10.0 * n}
        for b in ("b", "a")
        for n in range(2, 5)
    ]
    limits = [
        {"broker": "a", "at_ms": 2000, "limit_per_s": 25.0, "demand_per_s": NAN},
        {"broker": "a", "at_ms": 3500, "limit_per_s": 35.0, "demand_per_s": 30.0},
        {"broker": "gone", "at_ms": 100, "limit_per_s": 1.0, "demand_per_s": 1.0},
    ]
    changes = [{"at_ms": 3000, "version": 2, "from_per_s": 50.0, "to_per_s": NAN}]
    both = {"resource_group": "g", "dimension": MESSAGES}
    more = {"window_ms": 1000, "hold_ms": 5000, "throttled_per_s": NAN, "epoch": 1, "seq": 1}
    more |= {"created": False, "deleted": False}
    given = (
        columns([{**row, **both, **more} for row in rows], *rows[0], *both, *more)
        for rows in (usage, limits, changes)
    )
    quota = np.full((D, 1), INF)
    grid = Grid(0, 1000, buckets)
    return period_of(["g"], quota, tuple(given), (0, 1000 * buckets), grid)  # type: ignore[arg-type]


def test_a_period_of_rows() -> None:
    period = recorded()
    assert period.brokers == ("a", "b")
    np.testing.assert_array_equal(period.used[0], [[NAN, 20.0, 30.0, 40.0]] * 2)
    np.testing.assert_array_equal(period.limit[0], [[INF, INF, 25, 30], [INF] * 4])
    np.testing.assert_array_equal(period.demand[0], [[INF, INF, INF, 30], [INF] * 4])
    np.testing.assert_array_equal(period.quota[0], [[50, 50, 50, INF]])
    np.testing.assert_array_equal(period.used_ms, [[0, 1000, 1000, 1000]] * 2)
    # What nobody reports of a total is the sum of its parts, if these are known.
    assert np.isnan(period.used[DIMENSIONS.index("total_messages")]).all()


def test_too_many_brokers_for_so_many_points_are_refused() -> None:
    with pytest.raises(InputError, match=f"at most {MOST_CELLS // 2} points"):
        recorded(MOST_CELLS)
