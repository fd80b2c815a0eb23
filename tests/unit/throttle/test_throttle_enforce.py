"""What brokers are told, as laws and quotas of an enforcer."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.model import DIMENSIONS
from quotaplane.throttle.bank import LAWS, begin
from quotaplane.throttle.broker_quotas import laws_and_quotas
from quotaplane.throttle.terms import terms_of
from quotaplane.throttle.types import Requests, ThrottleMode

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


def test_a_bank_takes_it_and_follows_a_change_of_terms() -> None:
    limits = np.array([[10.0], [10.0]])
    bank = begin(*laws_and_quotas(["", ""], limits, ["publish_messages"]))
    two = np.array([0, 1])
    bank, answers = bank.answer(Requests(two, np.array([1000, 1000]), np.array([30.0, 30.0])))
    assert answers.admitted.all()
    bank = bank.change(
        *laws_and_quotas(["", '{"*": {"mode": "hard"}}'], limits, ["publish_messages"])
    )
    _, answers = bank.answer(Requests(two, np.array([1000, 1000]), np.array([1.0, 1.0])))
    assert answers.admitted.tolist() == [True, False]
