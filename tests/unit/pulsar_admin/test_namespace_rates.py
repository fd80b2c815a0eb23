"""Rates of namespaces: what they should be, and whose they are."""

from __future__ import annotations

import asyncio
import contextlib
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.pace import Bucket
from quotaplane.enforce.agent.namespace_defaults import NamespaceDefaults
from quotaplane.enforce.default_rates import default_rates, wanted_rates
from quotaplane.errors import ClusterError
from quotaplane.model import FloatArray
from quotaplane.pulsar_admin.namespace_rates import (
    NamespaceRates,
    namespace_rates,
    write_namespace_rates,
)
from tests.unit.enforce.enforce_cases import layout_of
from tests.unit.enforce.enforce_cluster import NAMESPACE, FakePulsar, administrators, full
from tests.unit.pulsar_admin.cluster_cases import Answer

INF = np.inf


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 20)), min_size=1, max_size=5),
    st.integers(0, 40),
)
def test_new_topics_stay_within_a_safe_limit(brokers: list[tuple[float, int]], new: int) -> None:
    topics = {f"t{b}-{n}": f"b{b}" for b, (_, count) in enumerate(brokers) for n in range(count)}
    # Each has another topic, of another group: a broker may have none of ours.
    layout = layout_of(
        {**topics, **{f"x{b}": f"b{b}" for b in range(len(brokers))}},
        {**dict.fromkeys(topics, "g"), **{f"x{b}": "x" for b in range(len(brokers))}},
    )
    if "g" not in layout.groups:
        return
    safe = np.full((len(brokers), 2, 4), np.nan)
    safe[:, layout.groups.index("g")] = np.array([limit for limit, _ in brokers])[:, None]
    rate = default_rates(layout, safe)[layout.groups.index("g"), 0]
    assert rate == np.floor(rate) >= 1
    assert np.isnan(default_rates(layout, safe)[layout.groups.index("x")]).all()
    for limit, count in brokers:
        assert min(new, count + 1) * rate <= max(limit, min(new, count + 1))


def test_a_broker_without_a_limit_leaves_new_topics_free() -> None:
    layout = layout_of({"s": "b1", "t": "b2"}, "g")
    safe = np.array([[[100.0, INF, np.nan, 10.0]], [[INF, INF, 80.0, np.nan]]])
    np.testing.assert_array_equal(default_rates(layout, safe), [[INF, INF, 40.0, 5.0]])


finite = st.one_of(st.floats(1, 1e9), st.just(INF))


@given(
    st.lists(finite, min_size=4, max_size=4),
    st.lists(st.one_of(finite, st.just(np.nan)), min_size=4, max_size=4),
    st.booleans(),
)
def test_a_rate_is_written_where_it_is_too_far_from_what_it_should_be(
    has: list[float], default: list[float], ours: bool
) -> None:
    def wanted(in_force: FloatArray) -> FloatArray:
        return wanted_rates(in_force, np.array([[ours, True]]), np.array([default]))

    rates = wanted(np.array([has]))
    for side, may in ((slice(0, 2), ours), (slice(2, 4), True)):
        before, new, after = np.array(has)[side], np.array(default)[side], rates[0, side]
        if not may or np.isnan(new).any():
            np.testing.assert_array_equal(after, before)
            continue
        np.testing.assert_array_equal(np.isinf(after), np.isinf(new))
        known = np.isfinite(new)
        assert (after[known] <= 2 * new[known]).all()
        assert (after[known] >= new[known] / 2).all()
    np.testing.assert_array_equal(wanted(rates), rates)  # and then it stays


@pytest.mark.parametrize("stopped_after", [1, 2, 3])
async def test_a_write_cut_short_leaves_no_unknown_rate(stopped_after: int) -> None:
    cluster, left = FakePulsar(), 0
    find = cluster.find

    def stopping(method: str, path: str) -> Answer:
        nonlocal left
        left -= method != "GET"
        return find(method, path) if left >= 0 or method == "GET" else Answer(500)

    cluster.find = stopping  # type: ignore[method-assign]
    async with cluster.rest() as rest:

        async def read() -> NamespaceRates:
            policies = await rest.get(f"/admin/v2/namespaces/{NAMESPACE}")
            found = namespace_rates(policies, "blue")
            assert found.ours.all()
            return found

        for rates in ([20.0, INF, 9.0, 90.0], [5.0] * 4, [INF] * 4):
            # The rates in force are known to be ours, and can be written again.
            for requests in (stopped_after, 10):
                left = requests
                with contextlib.suppress(ClusterError):
                    before = await read()
                    await write_namespace_rates(rest, NAMESPACE, "blue", before, np.array(rates))
            assert (await read()).in_force.tolist() == rates
    assert not cluster.properties[NAMESPACE]


async def test_a_rate_that_somebody_set_after_the_last_look_is_not_overwritten() -> None:
    layout, lines = layout_of({full("a"): "b"}, "g"), list[str]()
    default = np.array([[50.0, INF, INF, INF]])
    cluster = FakePulsar()
    cluster.namespace_rates[NAMESPACE, "publishRate"] = administrators(20)
    async with cluster.rest() as rest:
        defaults = NamespaceDefaults(rest, Bucket(100.0), Conditions(lines.append))
        defaults.read("blue", NAMESPACE, {"properties": {}}, "g", 1.0)
        assert defaults.begin(layout, default, 2.0) == 1
        await defaults.idle(5.0)
        assert defaults.begin(layout, default, 3.0) == 0
    assert (cluster.writes(), defaults.written, len(lines)) == ([], 0, 1)


@pytest.mark.nightly
@pytest.mark.parametrize("per_s", [2.0, 20.0, 100.0])
@pytest.mark.parametrize("tick_s", [0.02, 0.05, 0.2, 1.0])
async def test_namespaces_and_topics_have_half_of_the_write_budget_each(
    per_s: float, tick_s: float
) -> None:
    layout = layout_of({full("a"): "b"}, "g")
    default = np.array([[50.0, INF, INF, INF]])
    bucket, seconds, topics = Bucket(per_s), 30.0, 0
    silent = Mock(get=lambda _: asyncio.Event().wait())
    defaults = NamespaceDefaults(silent, bucket, Conditions(str))
    for number in range(2000):
        defaults.read("blue", f"acme/n{number}", {"properties": {}}, "g", 0.0)
    for tick in range(round(seconds / tick_s)):
        now_s = tick * tick_s
        defaults.begin(layout, default, now_s)
        # Topics want all that is left.
        room = bucket.room(now_s)
        bucket.take(room)
        topics += room
    begun = 2000 - defaults.waiting
    await defaults.idle(0.0)
    half = seconds * per_s / 2
    assert half - 3 <= 3 * begun <= half + per_s / 2 + 3
    assert half - 3 <= topics <= half + per_s + 3


@pytest.mark.parametrize("text", ["nonsense", "[]", '{"publish": 3}', '{"publish": [[20]]}'])
def test_a_record_that_somebody_else_wrote_says_nothing(text: str) -> None:
    policies = {
        "publishMaxMessageRate": {"blue": {"publishThrottlingRateInMsg": 20}},
        "properties": {"quotaplane.rates.blue": text},
    }
    assert namespace_rates(policies, "blue").ours.tolist() == [False, True]


def test_disabled_and_relative_rates() -> None:
    off = {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": 0}
    relative = {"dispatchThrottlingRateInMsg": 5, "relativeToPublishRate": True}
    found = namespace_rates(
        {
            "publishMaxMessageRate": {"blue": off, "green": {"publishThrottlingRateInMsg": 9}},
            "topicDispatchRate": {"blue": relative},
            "properties": {"quotaplane.rates.blue": '{"dispatch":[[5,-1]]}'},
        },
        "blue",
    )
    assert found.in_force.tolist() == [INF] * 4  # a relative one has no fixed amount
    assert found.ours.tolist() == [True, False]


def test_a_layout_has_its_topics_namespaces() -> None:
    layout = layout_of({full("a"): "b", full("x", "acme/other"): "b"}, "g")
    assert layout.namespaces[0] == ("acme/orders", "acme/other")
