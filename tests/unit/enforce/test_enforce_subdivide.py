"""A broker's limit divided over its topics: what holds whatever the law, and what each one does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.enforce.least_bytes import PUBLISH_BYTES
from quotaplane.enforce.subdivide import MOST, Divide, subdivide
from quotaplane.model import FloatArray
from quotaplane.topics.topic_layout import Layout
from tests.unit.enforce.enforce_cases import layout_of, only_messages

Drawn = tuple[Layout, FloatArray, FloatArray, Any]
"""A layout, limits, usage, and what is saturated."""
LAWS: tuple[Divide, ...] = ("max_min", "even", "by_rate")


def rates_of(
    limit: float,
    usage: list[float],
    saturated: list[bool] | None = None,
    law: Divide = "max_min",
    floor_share: float = 0.1,
) -> list[float]:
    """Rates of topics of one pair, in publish messages."""
    layout = layout_of({f"t{i:03}": "b" for i in range(len(usage))}, "g")
    full = np.zeros((len(usage), 4), np.bool_)
    full[:, 0] = saturated or False
    used = np.repeat(np.array(usage)[:, None], 4, axis=1)
    answer = subdivide(layout, only_messages([limit]), used, full, law=law, floor_share=floor_share)
    assert np.isposinf(answer.rates[:, 1:]).all()
    rates: list[float] = answer.rates[:, 0].tolist()
    return rates


@st.composite
def clusters(draw: st.DrawFn) -> Drawn:
    """Topics of up to three groups on up to three brokers, some with partitions."""
    brokers, groups = ["b1", "b2", "b3", ""], ["g1", "g2", "g3"]
    count = draw(st.integers(1, 12))
    topics: dict[str, str | list[str]] = {}
    group = {}
    for index in range(count):
        name = f"t{index:02}"
        if draw(st.integers(0, 3)) == 0:
            topics[name] = draw(st.lists(st.sampled_from(brokers), min_size=1, max_size=4))
        else:
            topics[name] = draw(st.sampled_from(brokers))
        group[name] = draw(st.sampled_from(groups))
    layout = layout_of(topics, group)
    finite = st.floats(0, 1e4) | st.integers(0, 50).map(float) | st.floats(0, 1e9)
    numbers = finite | st.just(math.inf)
    pairs = len(layout.pairs.broker)
    limits = only_messages(draw(st.lists(numbers, min_size=pairs, max_size=pairs)))
    p = len(layout.parts)
    used = draw(st.lists(st.floats(0, 1e6) | st.just(math.nan), min_size=p, max_size=p))
    full = draw(st.lists(st.booleans(), min_size=p, max_size=p))
    usage = np.repeat(np.array(used)[:, None], 4, axis=1)
    return layout, limits, usage, np.repeat(np.array(full)[:, None], 4, axis=1)


@given(clusters(), st.sampled_from(LAWS), st.sampled_from([0.01, 0.1, 0.5, 1.0]))
def test_shares_are_whole_and_fair(cluster: Drawn, law: Divide, floor_share: float) -> None:
    layout, limits, usage, saturated = cluster
    shares = subdivide(layout, limits, usage, saturated, law=law, floor_share=floor_share).shares
    pairs = layout.pairs
    for pair, limit in enumerate(limits[:, 0]):
        own = shares[pairs.parts[pairs.starts[pair] : pairs.starts[pair + 1]], 0]
        if np.isinf(limit):
            assert np.isposinf(own).all()
            continue
        units = math.ceil(limit - 1e-9)
        parts = pairs.parts[pairs.starts[pair] : pairs.starts[pair + 1]]
        used = np.nan_to_num(usage[parts, 0])
        held = saturated[parts, 0]
        assert (own == np.floor(own)).all()
        assert (own >= 1).all()
        # What all of them may use together, at most and while somebody wants more, at least.
        assert np.minimum(own, used)[~held].sum() <= units + len(own)
        assert own.sum() <= 2 * units * (1 + 1e-9) + 2 * len(own)
        if law == "even":
            assert own.sum() == max(units, len(own))
        elif law == "max_min":
            busy = own[held].sum() + np.minimum(own, used)[~held].sum()
            assert busy <= units * (1 + 1e-9) + len(own)
            if held.any() and not np.isnan(usage[parts, 0]).any():
                assert busy >= units * (1 - 1e-9) - 1
        floor = math.floor(max(floor_share * units / len(own), 1.0) * (1 - 1e-9))
        if law != "max_min" or not (held | (used > own)).any():
            assert (own >= min(floor, math.floor(units / len(own)))).all()
    assert np.isnan(shares[layout.broker < 0]).all()


@given(clusters(), st.sampled_from(LAWS))
def test_a_partitioned_topic_keeps_to_its_shares(cluster: Drawn, law: Divide) -> None:
    layout, limits, usage, saturated = cluster
    rates, shares, least, _ = subdivide(layout, limits, usage, saturated, law=law)
    wants = np.where(saturated, np.inf, np.nan_to_num(usage))[:, 0]
    assert (np.isnan(least) == np.isnan(rates)).all()
    assert not (least > rates).any()
    for topic in range(len(layout.topics)):
        parts = np.flatnonzero(layout.topic == topic)
        own, rate = shares[parts, 0], rates[topic, 0]
        if len(parts) == 1:
            assert rate == min(own[0], MOST[0]) or np.isnan(own[0]) or np.isinf(own[0])
            assert np.isnan(rate) == np.isnan(own[0])
            continue
        limited = np.isfinite(own)
        if not limited.any():
            assert np.isnan(rate) == np.isnan(own).all()
            assert np.isnan(rate) or np.isposinf(rate)
            continue
        budget = own[limited].sum()
        assert rate >= 1
        assert rate == math.floor(rate)
        if rate > 1 and law != "even":
            assert np.minimum(wants[parts][limited], rate).sum() <= budget * (1 + 1e-9) + len(parts)
        if law == "even":
            assert rate == max(math.floor(budget / limited.sum()), 1) or rate == MOST[0]


@given(st.lists(st.floats(0, 100), min_size=2, max_size=9), st.randoms(), st.integers(1, 500))
def test_topics_may_come_in_any_order(usage: list[float], random: Any, limit: int) -> None:
    order = list(range(len(usage)))
    random.shuffle(order)
    for law in LAWS:
        once = rates_of(limit, usage, law=law)
        again = rates_of(limit, [usage[i] for i in order], law=law)
        # Who of those with equal remainders is rounded up goes by name.
        assert np.abs(np.array(again) - np.array(once)[order]).max() <= 1


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("limit", [3, 17, 999_999_937, 10**15 - 1])
def test_no_unit_is_lost_to_rounding(law: Divide, limit: int) -> None:
    layout = layout_of({f"t{i}": "b" for i in range(7)}, "g")
    limits = np.full((1, 4), float(limit))
    usage = np.outer([4.0, 3.0, 4.0, 5.0, 7.0, 11.0, 4.0], np.ones(4))
    full = np.ones((7, 4), np.bool_)
    shares = subdivide(layout, limits, usage, full, law=law, floor_share=0.01).shares
    sums = shares.sum(axis=0).tolist()
    if law == "by_rate":
        # The floor comes on top, and in published bytes it is as high as the even share.
        assert max(limit, 7) <= sums.pop(PUBLISH_BYTES) <= 2 * max(limit, 7)
    assert sums == [max(limit, 7)] * len(sums)


def test_max_min_gives_those_held_back_what_the_others_do_not_use() -> None:
    # The floor of an idle one is on top: kept free, the broker would never be seen to be full.
    assert rates_of(100, [30, 0], [True, False]) == [100, 5]
    assert rates_of(2, [1, 0], [True, False]) == [2, 1]
    # Rounded up, for the same reason.
    assert rates_of(1.67, [1], [True]) == [2]
    assert rates_of(59.99999, [1], [True]) == [60]
    assert rates_of(100, [30, 10, 0], [True, True, False]) == [50, 50, 3]
    assert rates_of(100, [30, 10, 0], [True, False, False]) == [90, 20, 3]
    assert rates_of(90, [math.nan] * 3) == [30, 30, 30]


def test_while_nobody_is_held_back_what_is_left_over_is_spread() -> None:
    assert rates_of(100, [20, 10, 0]) == [43, 33, 23]
    # Up to their even share they may double, whoever is held back: so noise costs no writes.
    assert rates_of(90, [29, 28, 27]) == [31, 30, 30]
    assert rates_of(90, [40, 28, 2], [True, False, False]) == [60, 30, 4]
    assert rates_of(100, [98, 1, 1]) == [100, 3, 3]
    assert rates_of(40, [30, 30]) == [20, 20]  # the limit came down
    assert rates_of(2, [0, 0]) == [1, 1]
    assert rates_of(40, [0]) == [40]


def test_by_rate_goes_by_usage_above_the_floor_and_even_by_nothing() -> None:
    assert rates_of(110, [30, 10, 0], law="by_rate", floor_share=0.3) == [83, 27, 11]
    assert rates_of(2, [1, 0], law="by_rate") == [2, 1]
    assert rates_of(100, [0, 0, 0, 0], law="by_rate") == [25, 25, 25, 25]
    assert rates_of(100, [900, 0, 0], [True] * 3, law="even") == [34, 33, 33]


def test_a_busy_partition_has_what_idle_ones_on_other_brokers_leave() -> None:
    layout = layout_of({"p": ["b1", "b2", "b3"]}, "g")
    usage, full = np.zeros((3, 4)), np.zeros((3, 4), np.bool_)
    usage[0], full[0] = 10.0, True
    limits = only_messages([10, 10, 10])
    assert subdivide(layout, limits, usage, full).rates[0, 0] == 30
    usage[:], full[:] = 10.0, True
    assert subdivide(layout, limits, usage, full).rates[0, 0] == 10
    assert subdivide(layout, limits, usage * 0 + 1, ~full, law="even").rates[0, 0] == 10
    # Nobody wants much: what the busiest one uses, and an even part of what is left over.
    usage[:] = np.array([[6.0], [1.0], [1.0]])
    assert subdivide(layout, limits, usage, ~full).rates[0, 0] == math.floor(6 + (30 - 8) / 3)
    # Nothing is left over: still the busiest one must not look held back.
    usage[:] = np.array([[10.0], [10.0], [10.0]])
    assert subdivide(layout, limits, usage, ~full).rates[0, 0] == math.floor(10 / 0.95 + 1)


def test_brokers_without_a_limit_do_not_count_for_a_partitioned_topic() -> None:
    layout = layout_of({"p": ["b1", "b2", "b3"]}, "g")
    usage, full = np.full((3, 4), 9.0), np.ones((3, 4), np.bool_)
    rate = subdivide(layout, only_messages([10, math.inf, math.nan]), usage, full).rates[0, 0]
    assert rate == 10
    rate = subdivide(layout, only_messages([math.nan, math.inf, math.nan]), usage, full).rates[0, 0]
    assert rate == math.inf
    never = subdivide(layout, np.full((3, 4), np.nan), usage, full).rates
    assert np.isnan(never).all()


def test_rates_stay_within_what_pulsar_can_hold() -> None:
    layout = layout_of({"t": "b"}, "g")
    limits, nothing = np.full((1, 4), 1e18), np.zeros((1, 4))
    rates = subdivide(layout, limits, nothing, nothing > 0).rates
    assert rates.tolist() == [[2**31 - 1, 2**53, 2**31 - 1, 2**53]]
