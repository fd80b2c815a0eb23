"""Promises of each law, on any requests: how much it lets through, and to whom it is due."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.throttle import amended_rate, sliding_window, token_bucket, windowed_rate
from quotaplane.throttle.types import Answers, Quotas, Requests
from quotaplane.throttle.waves import answer
from tests.unit.throttle.test_throttle_waves import FORMS, assert_equal, traffic

SLACK = 1e-9
"""Relative, for sums of floats."""

NOW_MS = 1_700_000_000_000


def run(form: Any, quotas: Quotas, requests: Requests) -> Answers:
    return answer(form, form.begin(quotas), quotas, requests)[1]


def alone(quotas: Quotas, at_ms: list[int], units: list[float]) -> tuple[Quotas, Requests]:
    own = Requests(np.zeros(len(units), np.int64), np.array(at_ms), np.array(units))
    return quotas, own


@st.composite
def one_entity(draw: st.DrawFn, *, hard: bool) -> tuple[Quotas, Requests]:
    """Up to 40 requests of one entity that would like to have more than its quota."""
    samples = draw(st.integers(1, 5))
    window_ms = draw(st.sampled_from([70, 100, 1000]))
    rate = draw(st.sampled_from([0.5, 5.0, 100.0]))
    n = draw(st.integers(1, 40))
    gap = st.one_of(
        st.sampled_from([0, 1, window_ms - 1, window_ms, window_ms + 1, samples * window_ms]),
        st.integers(0, 2 * window_ms),
    )
    at_ms = NOW_MS + np.cumsum(draw(st.lists(gap, min_size=n, max_size=n)), dtype=np.int64)
    share = rate * window_ms / 1000.0
    part = st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.9, samples, 3.0 * samples])
    units = share * np.array(draw(st.lists(part, min_size=n, max_size=n)), np.float64)
    quotas = Quotas.of([rate], samples=samples, window_ms=window_ms, hard=hard)
    return quotas, Requests(np.zeros(n, np.int64), at_ms, units)


def bound(form: Any, quotas: Quotas, begin_ms: int, end_ms: int) -> float:
    """The most that a law admits from one time to another, but for the last request; inf: none.

    The last request counts as well in the sliding window, and in no other law: these admit one
    that is greater than what is left.
    """
    rate, samples, window_ms = (
        float(field[0]) for field in (quotas.rate_per_s, quotas.samples, quotas.window_ms)
    )
    share = rate * window_ms / 1000.0
    slots = end_ms // window_ms - begin_ms // window_ms
    if form is token_bucket:
        return samples * share + rate * (end_ms - begin_ms) / 1000.0
    if form is windowed_rate:
        return (samples + 1) * share if end_ms - begin_ms < samples * window_ms else np.inf
    if form is amended_rate:
        return (samples + slots) * share if slots < samples else np.inf
    return samples * share * -(-(slots + 1) // samples)


def most_beyond_the_bound(form: Any, quotas: Quotas, requests: Requests, took: Any) -> float:
    """Most units above the bound in any span from one admitted request to another."""
    at_ms, units = requests.at_ms[took].tolist(), requests.units[took].tolist()
    worst = -np.inf
    for first in range(len(units)):
        total = 0.0
        for last in range(first, len(units)):
            counted = total + (units[last] if form is sliding_window else 0.0)
            most = bound(form, quotas, at_ms[first], at_ms[last])
            worst = max(worst, counted - most * (1.0 + SLACK))
            total += units[last]
    return worst


@pytest.mark.parametrize("form", FORMS)
@given(given_=one_entity(hard=True))
def test_hard_admits_no_more_than_its_bound(form: Any, given_: tuple[Quotas, Requests]) -> None:
    quotas, requests = given_
    answers = run(form, quotas, requests)
    assert most_beyond_the_bound(form, quotas, requests, answers.admitted) <= 0.0


@pytest.mark.parametrize("form", [token_bucket, amended_rate, sliding_window])
@given(given_=one_entity(hard=False))
def test_soft_who_waits_as_told_keeps_to_the_quota(
    form: Any, given_: tuple[Quotas, Requests]
) -> None:
    """Returned times are long enough: to half a millisecond for tokens, to less than a window for
    the amended rate (it falls when windows end), exactly for the sliding window.
    """
    quotas, requests = given_
    rate, window_ms = quotas.rate_per_s[0], int(quotas.window_ms[0])
    state, waits_until = form.begin(quotas), 0
    for at_ms, units in zip(requests.at_ms.tolist(), requests.units.tolist(), strict=True):
        now = max(at_ms, waits_until)
        left = form.balance(state, form.terms(quotas), np.array([float(now)]))[0]
        assert left >= -(0.5e-3 * rate if form is token_bucket else 0.0) - SLACK * rate
        state, answers = answer(form, state, quotas, alone(quotas, [now], [units])[1])
        waits_until = now + int(answers.throttle_ms[0])
        if form is amended_rate and waits_until > now:
            waits_until += window_ms - 1


@given(given_=one_entity(hard=True))
def test_who_comes_back_when_the_sliding_window_says_is_admitted_and_not_before(
    given_: tuple[Quotas, Requests],
) -> None:
    quotas, requests = given_
    state = sliding_window.begin(quotas)
    for at_ms, units in zip(requests.at_ms.tolist(), requests.units.tolist(), strict=True):
        state, answers = answer(sliding_window, state, quotas, alone(quotas, [at_ms], [units])[1])
        wait_ms = answers.throttle_ms[0]
        if answers.admitted[0] or wait_ms == np.inf:
            continue
        for when, admitted in [(wait_ms - 1, False), (wait_ms, True)]:
            again = alone(quotas, [at_ms + int(when)], [units])[1]
            assert answer(sliding_window, state, quotas, again)[1].admitted[0] == admitted


@pytest.mark.parametrize("form", FORMS)
@given(given_=traffic(), seed=st.integers(0, 2**32 - 1))
def test_entities_in_another_order_are_answered_the_same(
    form: Any, given_: tuple[Quotas, Requests], seed: int
) -> None:
    quotas, requests = given_
    place = np.random.default_rng(seed).permutation(len(quotas.hard))
    moved = requests._replace(entity=np.argsort(place)[requests.entity])
    assert_equal(run(form, quotas, requests), run(form, quotas.take(place), moved))


@pytest.mark.nightly
@pytest.mark.parametrize("form", FORMS)
@given(given_=traffic())
def test_nobody_is_affected_by_others(form: Any, given_: tuple[Quotas, Requests]) -> None:
    quotas, requests = given_
    together = run(form, quotas, requests)
    for one in range(len(quotas.hard)):
        own = requests.entity == one
        asked = Requests(requests.entity[own] * 0, requests.at_ms[own], requests.units[own])
        assert_equal(
            run(form, quotas.take(np.array([one])), asked), [field[own] for field in together]
        )


@pytest.mark.parametrize("form", FORMS)
@given(given_=traffic())
def test_nothing_asked_is_fine_while_the_quota_is_kept(
    form: Any, given_: tuple[Quotas, Requests]
) -> None:
    quotas, requests = given_
    twice = Requests(*(np.repeat(field, 2) for field in requests))
    twice.units[1::2] = 0.0
    answers = run(form, quotas, twice)
    kept = answers.balance[::2] >= 0
    assert answers.admitted[1::2][kept].all()
    assert not answers.throttle_ms[1::2][kept].any()


@pytest.mark.parametrize("form", FORMS)
@given(given_=one_entity(hard=False), by=st.sampled_from([1.1, 2.0, 10.0]))
def test_soft_a_higher_quota_never_leaves_less_or_delays_longer(
    form: Any, given_: tuple[Quotas, Requests], by: float
) -> None:
    quotas, requests = given_
    low = run(form, quotas, requests)
    high = run(form, replace(quotas, rate_per_s=quotas.rate_per_s * by), requests)
    slack = SLACK * (requests.units.sum() + np.abs(low.balance).max())
    assert (high.balance >= low.balance - slack).all()
    assert (high.throttle_ms <= low.throttle_ms + 1).all()


@pytest.mark.parametrize("form", FORMS)
@given(given_=one_entity(hard=True), by=st.sampled_from([1.1, 2.0, 10.0]))
def test_hard_a_higher_quota_is_never_the_first_to_refuse(
    form: Any, given_: tuple[Quotas, Requests], by: float
) -> None:
    quotas, requests = given_
    low = run(form, quotas, requests).admitted.tolist()
    raised = replace(quotas, rate_per_s=quotas.rate_per_s * by)
    high = run(form, raised, requests).admitted.tolist()
    until = low.index(False) if False in low else len(low)
    assert all(high[:until])


GREAT = [(0, 22.0), (100, 1000.0)]
"""22 exceed a quota of 10 over two windows; it refuses the 1000 then, one of 20 admits them."""


@pytest.mark.parametrize(
    ("form", "asked"),
    [
        (token_bucket, [*GREAT, *[(2050, 0.1)] * 5]),
        (windowed_rate, [*GREAT, *[(2050, 0.1)] * 5]),
        (amended_rate, [*GREAT, *[(1050, 0.1)] * 5]),
        (sliding_window, [(0, 30.0), (100, 7.0), (100, 7.0), (100, 6.0)]),
    ],
)
def test_hard_a_higher_quota_may_refuse_more_later(
    form: Any, asked: list[tuple[int, float]]
) -> None:
    """It may admit a great request, and has then nothing left for the small ones after it."""
    after_ms, units = zip(*asked, strict=True)
    requests = alone(Quotas.of([1.0]), [NOW_MS + ms for ms in after_ms], list(units))[1]
    low, high = (
        run(form, Quotas.of([rate], samples=2, hard=True), requests).admitted.sum()
        for rate in (10.0, 20.0)
    )
    assert low > high


def test_the_windowed_rate_may_rise_without_a_request() -> None:
    """Kafka's rate: an old sample that held nothing leaves, and its time is no longer counted."""
    quotas = Quotas.of([5.0], samples=2)
    asked = alone(quotas, [NOW_MS, NOW_MS + 999, NOW_MS + 1000], [0.0, 0.0, 12.0])[1]
    state, _ = answer(windowed_rate, windowed_rate.begin(quotas), quotas, asked)
    terms = windowed_rate.terms(quotas)
    left = [windowed_rate.balance(state, terms, np.array([NOW_MS + ms]))[0] for ms in (2998, 2999)]
    assert left == pytest.approx([5 * 2.998 - 12, 5 * 1.999 - 12])
