"""How simulated brokers hold to limits: each law's numbers, and what none may exceed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.sim.broker_throttle import SLOTS_PER_S, BrokerThrottle, BrokerThrottles
from quotaplane.throttle.terms import ThrottleTerms
from quotaplane.throttle.types import ThrottleLaw, ThrottleMode
from tests.examples import examples

BUCKET, WINDOWED, AMENDED, SLIDING = ThrottleLaw
HARD, SOFT = ThrottleMode
SLOT_S = 1 / SLOTS_PER_S


def held(
    law: ThrottleLaw = BUCKET, mode: ThrottleMode = SOFT, samples: int = 1, window_s: float = 1.0
) -> ThrottleTerms:
    return ThrottleTerms(law=law, mode=mode, samples=samples, window_s=window_s)


def used(demand: float, limits: list[float], terms: ThrottleTerms, **options) -> list[float]:
    """Usage of one entity in each interval."""
    one = BrokerThrottle(1, terms, **options)
    return [float(one.use(np.array([demand]), np.array([limit]))[0]) for limit in limits]


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        # The limit is 20, the demand 40: two requests of 1 every 50 ms, while 1 token comes in.
        # The full bucket of 20 lasts for just the first second; two seconds' one for two.
        (held(BUCKET, SOFT), [40, 20, 20, 20]),
        (held(BUCKET, HARD), [40, 20, 20, 20]),
        (held(BUCKET, HARD, samples=2), [40, 40, 20, 20]),
        # 20 fit into each second, and not one more; 60 into three, until the first 40 leave.
        (held(SLIDING, HARD), [20, 20, 20, 20]),
        (held(SLIDING, HARD, samples=3), [40, 20, 0, 40]),
        # The one that is too much is admitted, and the client delayed until the next second.
        (held(SLIDING, SOFT), [21, 21, 21, 21]),
        # The first 40 are written down to the two seconds before: 20 leave with each second.
        # In the third second 60 are in it, and one more until it is noticed.
        (held(AMENDED, HARD, samples=3), [40, 40, 21, 20]),
        # At first two seconds are added to the known time: 40 in 1 + 1 s are 20 a second at t = 1.
        # Then 1 comes in as time grows by 50 ms. At t = 2 nothing is added any more: 60 are too
        # many until t = 3. Then 1 in 50 ms again, and 2 when the first 40 are 3 s old, at 3.95.
        (held(WINDOWED, HARD, samples=3), [40, 20, 0, 21]),
    ],
    ids=str,
)
def test_by_hand(terms: ThrottleTerms, expected: list[float]) -> None:
    assert used(40.0, [20.0] * 4, terms) == pytest.approx(expected, abs=1e-9)


def test_soft_is_muted_for_as_long_as_it_was_told() -> None:
    """1000 wanted, 10 allowed: requests of 0.5 until the bucket of 10 is overdrawn, then one."""
    one = BrokerThrottle(1, held(), interval_s=SLOT_S)
    sent = [float(one.use(np.array([1000.0]), np.array([10.0]))[0]) * SLOT_S for _ in range(41)]
    assert sent[0] == pytest.approx(10.5)
    assert sent[1:] == pytest.approx([0.5] * 40)


def test_a_client_is_muted_for_no_longer_than_a_raised_limit_asks_for() -> None:
    """110 of 11 s at 10 are used in the first; it would be muted for the other ten."""
    terms = held(WINDOWED, SOFT, samples=11)
    assert used(400.0, [10.0] * 4, terms) == pytest.approx([110, 0, 0, 0], abs=1)
    raised = used(400.0, [10.0, 100.0, 10.0, 10.0], terms)
    assert raised == pytest.approx([110, 400, 0, 0], abs=1)


@pytest.mark.parametrize("law", list(ThrottleLaw))
@pytest.mark.parametrize("mode", list(ThrottleMode))
def test_a_limit_of_nothing_admits_nothing_and_none_everything(law, mode) -> None:
    terms = held(law, mode, samples=2)
    assert used(7.0, [0.0, 0.0, np.inf, 0.0, np.inf], terms) == [0, 0, 7, 0, 7]
    assert used(0.0, [0.0, 5.0, np.inf], terms) == [0, 0, 0]
    assert used(5.0, [5.0] * 4, terms) == pytest.approx([5.0] * 4, rel=SLOT_S)


def test_each_entity_has_its_own_time_and_state() -> None:
    pair, single = BrokerThrottle(2, held()), BrokerThrottle(1, held())
    demand, limit = np.array([90.0]), np.array([30.0])
    for turn in range(6):
        alone = single.use(demand, limit)
        assert pair.use(demand, limit, of=np.array([1])) == alone
        if turn == 3:
            single.forget(np.array([True]))
            pair.forget(np.array([False, True]))
    assert pair.use(demand, limit, of=np.array([0])) == 60.0


@pytest.mark.parametrize("law", list(ThrottleLaw))
def test_who_begins_anew_is_as_one_that_is_new(law) -> None:
    """Put to other terms and back, or forgotten: whatever its limit was before."""
    terms, demand, limit = held(law), np.array([500.0]), np.array([100.0])
    fresh = [float(BrokerThrottle(1, terms).use(demand, limit)[0])]
    brokers = BrokerThrottles(1, terms)
    brokers.use(demand, np.array([1.0]))
    brokers.put(np.array([0]), held(SLIDING, HARD))
    brokers.use(demand, limit)
    brokers.put(np.array([0]), None)
    assert brokers.use(demand, limit) == fresh
    brokers.use(demand, np.array([1.0]))
    brokers.forget(np.array([0]))
    assert brokers.use(demand, limit) == fresh


RATES = st.floats(0.1, 1e5)


@examples(0.6)
@given(
    st.lists(st.tuples(RATES, RATES), min_size=1, max_size=5),
    st.sampled_from(ThrottleMode),
    st.integers(1, 4),
    st.sampled_from([0.1, 1.0]),
)
def test_a_bucket_admits_rate_and_burst_and_one_request_in_any_time(
    pairs, mode, samples, window_s
) -> None:
    """Exactly: between two times, the limit times their distance, the burst, and one request.

    That one is a 20th of what is allowed in a second, at most. A soft answer is in whole
    milliseconds: the client may be back half of one early.
    """
    demand, limit = np.array(pairs).T
    bucket = held(BUCKET, mode, samples, window_s)
    brokers = BrokerThrottle(len(pairs), bucket, interval_s=SLOT_S)
    sent = [np.zeros(len(pairs))]
    sent += [SLOT_S * brokers.use(demand, limit) for _ in range(80)]
    total = np.cumsum(sent, axis=0)
    early_s = 0.0005 if mode is SOFT else 0.0
    for begin in range(80):
        time_s = SLOT_S * np.arange(0, 80 - begin)[:, None]  # the first slot's are sent at once
        most = limit * (time_s + samples * window_s + SLOT_S + early_s)
        assert (total[begin + 1 :] - total[begin] <= most * (1 + 1e-9)).all()


@examples(0.4)
@given(st.data(), st.sampled_from(ThrottleMode))
def test_buckets_of_one_quota_admit_it_and_one_burst_whoever_has_it(data, mode) -> None:
    """Limits that add up to no more than a quota, and move: quota times time, the quota for a
    second, and a request of each; the requests are as large as the largest limit makes them."""
    brokers, rounds, quota = 3, 12, 100.0
    enforcer = BrokerThrottle(brokers, held(mode=mode))
    share = st.lists(st.integers(0, 100), min_size=brokers, max_size=brokers)
    sent = [0.0]
    for _ in range(rounds):
        parts = np.array(data.draw(share), float)
        limit = quota * parts / max(parts.sum(), 1.0)
        demand = np.array(data.draw(share), float) * 10
        sent.append(float(enforcer.use(demand, limit).sum()))
    total = np.cumsum(sent)
    for begin in range(rounds):
        time_s = np.arange(1, rounds - begin + 1)
        most = quota * (time_s + 1.0) + brokers * quota * (SLOT_S + 0.0005)
        assert (total[begin + 1 :] - total[begin] <= most * (1 + 1e-9)).all()


@examples(0.6)
@given(st.lists(st.tuples(RATES, RATES), min_size=1, max_size=5), st.integers(1, 10))
def test_a_hard_sliding_window_never_has_more_in_it_than_it_allows(pairs, samples) -> None:
    demand, limit = np.array(pairs).T
    window = held(SLIDING, HARD, samples, window_s=2 * SLOT_S)
    brokers = BrokerThrottle(len(pairs), window, interval_s=2 * SLOT_S)
    sent = np.array([2 * SLOT_S * brokers.use(demand, limit) for _ in range(40)])
    for begin in range(40 - samples + 1):
        most = limit * samples * 2 * SLOT_S
        assert (sent[begin : begin + samples].sum(axis=0) <= most * (1 + 1e-9)).all()


@pytest.mark.nightly
@pytest.mark.parametrize("law", list(ThrottleLaw))
@pytest.mark.parametrize("mode", list(ThrottleMode))
def test_in_the_long_run_a_limit_is_used_and_not_exceeded(law, mode) -> None:
    limit = np.array([10.0, 37.0, 500.0, 2000.0])
    demand = limit * [1.2, 1.9, 5.0, 40.0]
    brokers = BrokerThrottle(4, held(law, mode, samples=10, window_s=0.1))
    mean = np.mean([brokers.use(demand, limit) for _ in range(80)][20:], axis=0)
    assert (mean >= 0.95 * limit).all()
    assert (mean <= 1.1 * limit).all()
