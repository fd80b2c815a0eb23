"""A bank: laws side by side answer as each would alone; a change keeps what it can."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.errors import InputError
from quotaplane.model import DIMENSIONS
from quotaplane.throttle.bank import FORMS, LAWS, begin
from quotaplane.throttle.broker_quotas import laws_and_quotas
from quotaplane.throttle.terms import terms_of
from quotaplane.throttle.types import Quotas, Requests, ThrottleLaw, ThrottleMode
from quotaplane.throttle.waves import answer
from tests.unit.throttle.test_throttle_waves import assert_equal, traffic

BUCKET, WINDOWED, _, SLIDING = (LAWS.index(law) for law in ThrottleLaw)


@given(given_=traffic(), law=st.lists(st.integers(0, 3), min_size=5, max_size=5))
def test_each_law_answers_as_if_alone(given_: tuple[Quotas, Requests], law: list[int]) -> None:
    quotas, requests = given_
    codes = np.array(law[: len(quotas.hard)])
    bank, answers = begin(codes, quotas).answer(requests)
    at_ms = np.full(len(codes), 1.7e12 + 1e9)
    for code, name in enumerate(LAWS):
        mine = np.flatnonzero(codes == code)
        chosen = np.isin(requests.entity, mine)
        form = FORMS[name]
        alone, said = answer(
            form, form.begin(quotas), quotas, Requests(*(field[chosen] for field in requests))
        )
        assert_equal(tuple(field[chosen] for field in answers), said)
        left = form.balance(alone, form.terms(quotas), at_ms)
        np.testing.assert_array_equal(bank.balance(at_ms)[mine], left[mine])
        if len(mine):
            np.testing.assert_array_equal(bank.states[name][0], alone[0][mine])


def ask(at_ms: int, *units: float) -> Requests:
    count = len(units)
    return Requests(np.arange(count), np.full(count, at_ms), np.array(units))


def test_a_new_limit_keeps_what_was_used() -> None:
    law = np.array([BUCKET, SLIDING, WINDOWED])
    bank, _ = begin(law, Quotas.of([10.0] * 3, samples=10)).answer(ask(5000, 90.0, 90.0, 90.0))
    raised = bank.change(law, Quotas.of([20.0] * 3, samples=10))
    _, answers = raised.answer(ask(6000, 0.0, 0.0, 0.0))
    # 10 tokens and 20 of the second since; 200 in the window but 90; (20 - 90 / 9 s) * 9 s
    assert answers.balance.tolist() == [30.0, 110.0, 110.0 - 20.0]
    lowered = bank.change(law, Quotas.of([1.0] * 3, samples=10))
    _, answers = lowered.answer(ask(6000, 0.0, 0.0, 0.0))
    assert answers.balance.tolist() == [10.0, -80.0, 10.0 - 90.0 - 1.0]


def test_another_law_or_window_begins_anew_and_so_does_who_is_new() -> None:
    law = np.array([BUCKET, SLIDING, SLIDING])
    bank, _ = begin(law, Quotas.of([10.0] * 3, samples=10)).answer(ask(5000, 90.0, 90.0, 90.0))
    samples = np.array([10, 10, 5, 10])
    changed = bank.change(
        np.array([SLIDING, SLIDING, SLIDING, BUCKET]),
        Quotas(np.full(4, 10.0), samples, np.full(4, 1000), np.zeros(4, np.bool_)),
    )
    assert changed.balance(np.full(4, 5000.0)).tolist() == [100.0, 10.0, 50.0, 100.0]


def test_without_a_quota_all_is_admitted_and_with_one_again_the_bucket_is_full() -> None:
    law = np.array([BUCKET])
    bank, _ = begin(law, Quotas.of([5.0], samples=20, hard=True)).answer(ask(0, 560.0))
    free, answers = bank.change(law, Quotas.of([np.inf], samples=20, hard=True)).answer(ask(0, 1.0))
    assert answers.admitted.tolist() == [True]
    assert answers.balance.tolist() == [np.inf]
    again = free.change(law, Quotas.of([5.0], samples=20, hard=True))
    assert again.balance(np.zeros(1)).tolist() == [100.0]


def test_entities_do_not_become_fewer() -> None:
    bank = begin(np.array([BUCKET, BUCKET]), Quotas.of([5.0, 5.0]))
    with pytest.raises(InputError, match="a bank of 2 entities can't become one of 1"):
        bank.change(np.array([BUCKET]), Quotas.of([5.0]))


TEXTS = (
    "",
    "broken",
    '{"*": {"law": "windowed_rate", "mode": "hard"}}',
    '{"publish_bytes": {"samples": 5}, "*": {"law": "sliding_window"}}',
    '{"total_bytes": {"law": "amended_rate", "window_s": 0.25}}',
)


@given(st.lists(st.sampled_from(TEXTS), max_size=9))
def test_every_entity_has_the_terms_of_its_group_and_dimension(texts: list[str]) -> None:
    limits = np.arange(float(len(texts) * len(DIMENSIONS))).reshape(len(texts), len(DIMENSIONS))
    law, quotas = laws_and_quotas(texts, limits)
    assert quotas.rate_per_s.tolist() == list(map(float, range(limits.size)))
    found = zip(law, quotas.samples, quotas.window_ms, quotas.hard, strict=True)
    for (code, samples, window_ms, hard), (text, dimension) in zip(
        found, ((text, dimension) for text in texts for dimension in DIMENSIONS), strict=True
    ):
        terms = terms_of(text, dimension)
        assert (LAWS[code], samples, window_ms) == (terms.law, terms.samples, terms.window_ms)
        assert hard == (terms.mode is ThrottleMode.HARD)
