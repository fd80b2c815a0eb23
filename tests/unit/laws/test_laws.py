"""Properties that every law must have."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.errors import ConfigError
from quotaplane.laws import LAWS, REASON_TEXTS, Law, Problem, Reason, explain, get_law, one_group
from quotaplane.laws.segments import Segments

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "max_min": ("max_min", {}),
    "static": ("static", {}),
    "proportional": ("proportional", {}),
    "pip82": ("pip82", {}),
    "pip82-each": ("pip82", {"residual": "each", "steal": False}),
    "pip82-in-proportion": ("pip82", {"residual": "proportional", "steal": False}),
    "pip82-in-proportion-stealing": ("pip82", {"residual": "proportional", "steal": True}),
    "pip82-dominant": ("pip82", {"reduction": "dominant"}),
    "pip82-dominant-in-proportion": (
        "pip82",
        {"residual": "proportional", "reduction": "dominant", "steal": False},
    ),
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
    st.one_of(st.just(math.inf), rates),  # ceiling
    st.integers(-1, 2),  # priority
)
quotas = st.one_of(rates, st.just(math.inf))
groups = st.lists(st.tuples(quotas, st.lists(broker, max_size=7)), min_size=1, max_size=4)

each_law = pytest.mark.parametrize("variant", VARIANTS)


def law_of(variant: str) -> Law:
    name, options = VARIANTS[variant]
    return get_law(name, options)


def problem(parts: list[Any]) -> Problem:
    rows = np.array([row for _, part in parts for row in part], dtype=float).reshape(-1, 7)
    return Problem(
        np.concatenate([[0], np.cumsum([len(part) for _, part in parts])]).astype(np.int64),
        np.array([quota for quota, _ in parts]),
        *(rows[:, column].copy() for column in range(6)),
        priority=rows[:, 6].astype(np.int64),
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
        used = rows.total(given_.usage)
        rounding = 4e-7 * rows.counts * (quota + used)
        bound = np.maximum(rows.counts * quota, np.maximum(quota, 1) + rows.counts + rounding)
        bound[used > 1e-30] = (np.maximum(quota, 1) + rows.counts + rounding)[used > 1e-30]
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
    columns = ("usage", "limit", "demand", "weight", "floor", "ceiling", "priority")
    shuffled = replace(given_, **{name: getattr(given_, name)[shuffle] for name in columns})
    straight, turned = law_of(variant)(given_), law_of(variant)(shuffled)
    off = 1e-9
    if variant == "proportional":
        # A total that is added up otherwise may round to the next 32-bit float, and what that
        # changes may cross a whole number.
        off = 1.0001 + 1e-6 * float(given_.usage.sum() + given_.quota[given_.quota < np.inf].sum())
    assert np.allclose(turned.limits, straight.limits[shuffle], rtol=1e-9, atol=off)


@each_law
@given(parts=groups)
def test_groups_know_nothing_of_each_other(variant: str, parts: list[Any]) -> None:
    law = law_of(variant)
    together = law(problem(parts)).limits
    alone = [law(problem([part])).limits for part in parts]
    assert np.allclose(together, np.concatenate(alone), rtol=1e-9, atol=1e-9)


@each_law
@given(parts=groups)
def test_every_row_has_a_reason_that_fits_its_numbers(variant: str, parts: list[Any]) -> None:
    given_ = problem(parts)
    allocation = law_of(variant)(given_)
    texts = explain(given_, allocation)
    assert len(texts) == len(allocation.limits)
    for text_, code in zip(texts, allocation.reasons.tolist(), strict=True):
        assert text_
        assert not re.search(r"\b(nan|inf)\b", text_)
        assert "  " not in text_
        assert (code == Reason.UNLIMITED) == text_.startswith("unlimited")


@each_law
def test_no_groups_at_all(variant: str) -> None:
    nothing = np.zeros(0)
    empty = Problem(np.zeros(1, np.int64), nothing, *[nothing] * 5)
    assert law_of(variant)(empty).limits.shape == (0,)


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
        ("pip82", {"reduction": "each"}, "options.reduction: must be proportional or dominant"),
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
    assert REASON_TEXTS[Reason.FAIR_SHARE] == "saturated: fair share"
