"""The metrics: what they add up to, however the requests came, and that windows leave."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.throttle.bank import Bank, begin
from quotaplane.throttle.meter import Meter, grown, metrics, record
from quotaplane.throttle.meter import begin as begin_meter
from quotaplane.throttle.types import Quotas, Requests
from tests.unit.throttle.test_throttle_waves import assert_equal, traffic


def run(quotas: Quotas, parts: list[Requests]) -> tuple[Bank, Meter]:
    entities = len(quotas.hard)
    bank, meter = begin(np.zeros(entities, np.int64), quotas), begin_meter(entities)
    for part in parts:
        bank, answers = bank.answer(part)
        meter = record(meter, part, answers)
    return bank, meter


@given(given_=traffic(), cut=st.integers(0, 60))
def test_a_batch_may_be_split_anywhere(given_: tuple[Quotas, Requests], cut: int) -> None:
    quotas, requests = given_
    parts = [Requests(*(f[:cut] for f in requests)), Requests(*(f[cut:] for f in requests))]
    assert_equal(run(quotas, [requests])[1], run(quotas, parts)[1])


@given(given_=traffic())
def test_it_is_what_a_loop_over_the_last_eleven_seconds_finds(
    given_: tuple[Quotas, Requests],
) -> None:
    quotas, requests = given_
    bank, meter = run(quotas, [requests])
    _, answers = begin(bank.law, quotas).answer(requests)
    at_ms = int(requests.at_ms.max(initial=0)) + 500
    found = metrics(meter, bank, at_ms)
    for one in range(len(bank)):
        units, waited = 0.0, []
        for entity, when, asked, admitted, wait in zip(
            *requests, answers.admitted, answers.throttle_ms, strict=True
        ):
            if entity == one and when // 1000 > at_ms // 1000 - 11:
                units += asked if admitted else 0.0
                waited += [wait] if wait > 0 else []
        assert math.isclose(found.rate_per_s[one], units / (10 + at_ms % 1000 / 1000))
        mean = sum(waited) / len(waited) if waited else math.nan
        np.testing.assert_allclose(found.throttle_ms[one], mean)


def test_the_newest_window_never_falls() -> None:
    quotas = Quotas.of([5.0])
    parts = [Requests(np.array([0]), np.array([s * 1000]), np.array([3.0])) for s in (30, 25, 9)]
    _, meter = run(quotas, parts[:1])
    bank = begin(np.zeros(1, np.int64), quotas)
    for part in parts[1:]:  # to a bank that began anew
        meter = record(meter, part, bank.answer(part)[1])
    assert meter.newest.tolist() == [30]
    assert meter.units.sum() == 6.0


def test_who_is_new_begins_with_nothing() -> None:
    quotas = Quotas.of([5.0])
    _, meter = run(quotas, [Requests(np.array([0]), np.array([9_000]), np.array([3.0]))])
    more = grown(meter, 3)
    assert more.units.sum(axis=0).tolist() == [3.0, 0.0, 0.0]
    assert more.newest.tolist() == [9, 0, 0]
