"""What every law must hold, and the laws of others as their sources word them."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.errors import ConfigError
from quotaplane.laws import LAWS, REASON_TEXTS, Law, Problem, Reason, get_law, one_group
from quotaplane.laws.reason import text
from quotaplane.laws.segments import Segments

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "max_min": ("max_min", {}),
    "static": ("static", {}),
    "proportional": ("proportional", {}),
    "pip82": ("pip82", {}),
    "pip82-each": ("pip82", {"residual": "each", "steal": False}),
    "pip82-in-proportion": ("pip82", {"residual": "proportional", "steal": False}),
    "pip82-in-proportion-stealing": ("pip82", {"residual": "proportional", "steal": True}),
}

rates = st.one_of(
    st.sampled_from([0.0, 1.0, 10.0, 50.0]), st.floats(1e-100, 1e6), st.integers(0, 100).map(float)
)
broker = st.tuples(
    rates,  # usage
    st.one_of(rates, st.just(math.inf)),  # limit
    st.one_of(rates, st.just(math.inf)),  # demand
    st.floats(0.01, 100),  # weight
    st.one_of(st.just(0.0), rates),  # floor
)
quotas = st.one_of(rates, st.just(math.inf))
groups = st.lists(st.tuples(quotas, st.lists(broker, max_size=7)), min_size=1, max_size=4)

each_law = pytest.mark.parametrize("variant", VARIANTS)


def law_of(variant: str) -> Law:
    name, options = VARIANTS[variant]
    return get_law(name, options)


def problem(parts: list[Any]) -> Problem:
    rows = np.array([row for _, part in parts for row in part], dtype=float).reshape(-1, 5)
    return Problem(
        np.concatenate([[0], np.cumsum([len(part) for _, part in parts])]).astype(np.int64),
        np.array([quota for quota, _ in parts]),
        *(rows[:, column].copy() for column in range(5)),
    )


@each_law
@given(parts=groups)
def test_limits_are_numbers_and_only_unlimited_where_the_quota_is(
    variant: str, parts: list[Any]
) -> None:
    given_ = problem(parts)
    inputs = [array.copy() for array in (given_.usage, given_.demand, given_.floor, given_.quota)]
    allocation = law_of(variant)(given_)
    limits = allocation.limits
    assert limits.shape == given_.demand.shape == allocation.reasons.shape
    assert not np.isnan(limits).any()
    assert (limits >= 0).all()
    unlimited = np.isinf(np.repeat(given_.quota, np.diff(given_.starts)))
    assert np.array_equal(np.isinf(limits), unlimited)
    assert np.array_equal(allocation.reasons == Reason.UNLIMITED, unlimited)
    for before, after in zip(
        inputs, (given_.usage, given_.demand, given_.floor, given_.quota), strict=True
    ):
        assert np.array_equal(before, after)


@each_law
@given(parts=groups)
def test_no_group_gets_more_than_its_law_allows(variant: str, parts: list[Any]) -> None:
    given_ = problem(parts)
    rows = Segments(given_.starts)
    quota = np.where(np.isinf(given_.quota), 0.0, given_.quota)
    limits = law_of(variant)(given_).limits
    total = rows.total(np.where(np.isinf(limits), 0.0, limits))
    name, options = VARIANTS[variant]
    if LAWS[name].conserving:
        bound = quota
    elif name == "proportional":
        idle = rows.total(given_.usage) == 0
        bound = np.where(idle, rows.counts * quota, np.maximum(quota, 1) + rows.counts)
    elif {"residual": "each", **options}["residual"] == "proportional":
        bound = quota * (1.5 if options["steal"] else 1.0) * (1 + 1e-12)
    else:
        bound = quota * np.maximum(rows.counts, 1) * (1 + 1e-12)
    assert (total <= bound).all()


@each_law
@given(parts=groups, seed=st.integers(0, 1000))
def test_the_order_of_brokers_does_not_matter(variant: str, parts: list[Any], seed: int) -> None:
    order = np.random.default_rng(seed)
    given_ = problem(parts)
    shuffle = np.concatenate(
        [order.permutation(np.arange(first, last)) for first, last in pairwise(given_.starts)]
    ).astype(np.int64)
    columns = ("usage", "limit", "demand", "weight", "floor")
    shuffled = replace(given_, **{name: getattr(given_, name)[shuffle] for name in columns})
    straight, turned = law_of(variant)(given_), law_of(variant)(shuffled)
    # The floor of stock's law jumps by 1 where rounding crosses a whole number.
    off = 1.0 if variant == "proportional" else 1e-9
    assert np.allclose(turned.limits, straight.limits[shuffle], rtol=1e-9, atol=off * 1.0001)


@each_law
@given(parts=groups)
def test_groups_know_nothing_of_each_other(variant: str, parts: list[Any]) -> None:
    law = law_of(variant)
    together = law(problem(parts)).limits
    alone = [law(problem([part])).limits for part in parts]
    assert np.allclose(together, np.concatenate(alone), rtol=1e-9, atol=1e-9)


@each_law
def test_no_groups_at_all(variant: str) -> None:
    nothing = np.zeros(0)
    empty = Problem(np.zeros(1, np.int64), nothing, *[nothing] * 5)
    assert law_of(variant)(empty).limits.shape == (0,)


@pytest.mark.parametrize(
    ("quota", "mine", "others", "expected"),
    [
        (100, 20, [20], 50),
        (100, 20, [80], 20),
        (100, 20, [130], 13),
        (100, 20, [40], 33),
        (100, 40, [20], 66),
        (10, 0, [0], 10),
        (math.inf, 5, [5], math.inf),
        (0, 5, [5], 1),
        (100, 0, [50], 1),
    ],
)
def test_stock_calculator(quota: float, mine: float, others: list[float], expected: float) -> None:
    # In stock's own tests the sum of all is given, with the broker's use in it: 40 for 20 + 20.
    limits = get_law("proportional")(one_group(quota, usage=[mine, *others])).limits
    assert limits[0] == expected


def test_stock_starves_whoever_wakes_late() -> None:
    usage = np.array([50.0, 0.0])
    for _ in range(10):
        limits = get_law("proportional")(one_group(100, usage=usage.tolist())).limits
        usage = np.minimum([50.0, 50.0], limits)
    assert limits.tolist() == [98.0, 1.0]


PIP_USAGE = [10.0, 50.0, 30.0]


@pytest.mark.parametrize(
    ("options", "usage", "limit", "expected"),
    [
        ({"residual": "each"}, PIP_USAGE, None, [20, 60, 40]),
        ({"residual": "proportional"}, PIP_USAGE, None, [100 / 9, 500 / 9, 300 / 9]),
        ({"residual": "each"}, [0, 0], None, [100, 100]),
        ({"residual": "proportional"}, [0, 0], None, [50, 50]),
        ({"residual": "each", "steal": False}, [120, 80], None, [60, 40]),
        ({"residual": "proportional", "steal": False}, [120, 80], None, [60, 40]),
        ({}, [80, 20], [80, 20], [80, 50]),
        ({"steal": False}, [80, 20], [80, 20], [80, 20]),
        ({}, [80, 20], [80, 60], [80, 20]),  # not at its limit: not unfairly throttled
        ({}, [50, 30, 15, 5], [50, 30, 15, 5], [50, 30, 22.5, 27.5]),  # paired from both ends
        ({}, [80, 50], [80, 50], [800 / 13, 50]),  # over quota: half-way after the reduction
        ({}, [60, 20, 20], [60, 20, 20], [60, 30, 30]),  # equals share the lowest one's place
    ],
)
def test_pip82_as_it_is_worded(
    options: dict[str, Any], usage: list[float], limit: list[float] | None, expected: list[float]
) -> None:
    limits = get_law("pip82", options)(one_group(100, usage=usage, limit=limit)).limits
    assert limits.tolist() == pytest.approx(expected)


def test_pip82_keeps_the_quota_zero_at_zero() -> None:
    allocation = get_law("pip82")(one_group(0, usage=[5, 0], limit=[5, 0]))
    assert allocation.limits.tolist() == [0.0, 0.0]
    assert allocation.reasons.tolist() == [Reason.NO_QUOTA] * 2


def test_static_is_even_or_by_weight() -> None:
    static = get_law("static")
    assert static(one_group(100, usage=[80, 20, 0, 0])).limits.tolist() == [25.0] * 4
    assert static(one_group(90, usage=[1, 2], weight=[2, 1])).limits.tolist() == [60.0, 30.0]


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("fair", {}, "law: unknown law 'fair'"),
        ("max_min", {"steal": True}, "options.steal: unknown option of law max_min"),
        ("pip82", {"steel": True}, "options.steel: unknown option of law pip82"),
        ("pip82", {"steal": 1}, "options.steal: must be true or false, not 1"),
        ("pip82", {"steal": None}, "options.steal: must be true or false, not None"),
        ("pip82", {"residual": "half"}, "options.residual: must be each or proportional"),
        ("pip82", {"residual": ["each"]}, "options.residual: must be each or proportional"),
    ],
)
def test_a_wrong_choice_is_named(name: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        get_law(name, options)
    assert says in str(raised.value)


def test_every_reason_has_its_words() -> None:
    assert len(REASON_TEXTS) == len(Reason) == len(set(REASON_TEXTS))
    assert [int(reason) for reason in Reason] == list(range(len(Reason)))
    assert text(Reason.FAIR_SHARE) == "saturated: fair share"
