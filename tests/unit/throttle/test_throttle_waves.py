"""The engine: every law in waves against its plain loop, whatever the batch and its cuts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.errors import InputError
from quotaplane.throttle import amended_rate, sliding_window, token_bucket, windowed_rate
from quotaplane.throttle.bank import begin as begin_bank
from quotaplane.throttle.types import Answers, Quotas, Requests
from quotaplane.throttle.waves import answer

FORMS: list[Any] = [token_bucket, windowed_rate, amended_rate, sliding_window]


@st.composite
def traffic(draw: st.DrawFn, most: int = 60) -> tuple[Quotas, Requests]:
    entities = draw(st.integers(1, 5))
    of = st.lists
    rate = draw(
        of(st.sampled_from([0.0, 0.3, 5.0, 100.0, np.inf]), min_size=entities, max_size=entities)
    )
    samples = draw(of(st.sampled_from([1, 2, 3, 6, 12]), min_size=entities, max_size=entities))
    window_ms = draw(of(st.sampled_from([1, 70, 100, 1000]), min_size=entities, max_size=entities))
    hard = draw(of(st.booleans(), min_size=entities, max_size=entities))
    n = draw(st.integers(0, most))
    entity = draw(of(st.integers(0, entities - 1), min_size=n, max_size=n))
    gaps = draw(of(st.sampled_from([0, 0, 1, 30, 100, 999, 1000, 12_000]), min_size=n, max_size=n))
    units = draw(of(st.sampled_from([0.0, 0.1, 1.0, 7.0, 60.0, 560.0]), min_size=n, max_size=n))
    start = draw(st.sampled_from([0, 1_700_000_000_123]))
    return (
        Quotas(np.array(rate), np.array(samples), np.array(window_ms), np.array(hard)),
        Requests(
            np.array(entity, np.int64),
            start + np.cumsum(gaps, dtype=np.int64),
            np.array(units, float),
        ),
    )


def assert_equal(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("form", FORMS)
@given(given_=traffic())
def test_waves_are_the_plain_loop_to_the_last_bit(
    form: Any, given_: tuple[Quotas, Requests]
) -> None:
    quotas, requests = given_
    begun = form.begin(quotas)
    results = [answer(form, begun, quotas, requests, narrow) for narrow in (0, 1000)]
    assert_equal(results[0][1], results[1][1])
    assert_equal(results[0][0], results[1][0])


@pytest.mark.parametrize("form", FORMS)
@given(given_=traffic(), cuts=st.lists(st.integers(0, 60), max_size=4))
def test_a_batch_may_be_split_anywhere(
    form: Any, given_: tuple[Quotas, Requests], cuts: list[int]
) -> None:
    quotas, requests = given_
    whole_state, whole = answer(form, form.begin(quotas), quotas, requests)
    state, parts = form.begin(quotas), []
    edges = [0, *sorted(min(cut, len(requests.entity)) for cut in cuts), len(requests.entity)]
    for begin, end in pairwise(edges):
        state, part = answer(form, state, quotas, Requests(*(f[begin:end] for f in requests)))
        parts.append(part)
    assert_equal(Answers(*map(np.concatenate, zip(*parts, strict=True))), whole)
    assert_equal(state, whole_state)


@pytest.mark.parametrize("form", FORMS)
@given(given_=traffic())
def test_what_it_remembers_is_not_changed(form: Any, given_: tuple[Quotas, Requests]) -> None:
    quotas, requests = given_
    begun = form.begin(quotas)
    answer(form, begun, quotas, requests)
    assert_equal(begun, form.begin(quotas))


@pytest.mark.parametrize("form", FORMS)
def test_a_request_before_the_last_one_is_told(form: Any) -> None:
    quotas = Quotas.of([5.0, 5.0])
    requests = Requests(np.array([0, 1, 0]), np.array([20, 5, 10]), np.ones(3))
    with pytest.raises(InputError, match="request 2: is at 10 ms, before the last one at 20 ms"):
        answer(form, form.begin(quotas), quotas, requests)
    state, _ = answer(form, form.begin(quotas), quotas, Requests(*(f[:2] for f in requests)))
    with pytest.raises(InputError, match="request 0: is at 10 ms"):
        answer(form, state, quotas, Requests(*(f[2:] for f in requests)))


@pytest.mark.parametrize("units", [-1.0, np.nan, np.inf])
def test_units_are_checked(units: float) -> None:
    quotas = Quotas.of([5.0])
    requests = Requests(np.array([0, 0]), np.array([0, 0]), np.array([1.0, units]))
    with pytest.raises(InputError, match="request 1: units must be a number from 0"):
        answer(token_bucket, token_bucket.begin(quotas), quotas, requests)


@pytest.mark.parametrize("entity", [-1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_a_request_of_nobody_is_nobody_elses(form: Any, entity: int) -> None:
    quotas = Quotas.of([5.0, 5.0])
    requests = Requests(np.array([0, entity]), np.array([0, 0]), np.ones(2))
    with pytest.raises(InputError, match=f"request 1: there is no entity {entity}, only 0 to 1"):
        answer(form, form.begin(quotas), quotas, requests)
    bank = begin_bank(np.full(2, FORMS.index(form)), quotas)
    with pytest.raises(InputError, match="request 1: there is no entity"):
        bank.answer(requests)


@pytest.mark.parametrize(
    ("rate", "samples", "says"),
    [
        (np.nan, 1, "entity 1: rate_per_s must be 0 or more, not nan"),
        (-1.0, 1, "entity 1: rate_per_s must be 0 or more, not -1"),
        (5.0, 0, "entity 0: samples must be 1 or more, not 0"),
    ],
)
def test_quotas_are_checked(rate: float, samples: int, says: str) -> None:
    with pytest.raises(InputError, match=says):
        Quotas.of([1.0, rate], samples=samples)
