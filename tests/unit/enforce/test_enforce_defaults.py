"""Rates of namespaces: what a topic has that the enforcer has not seen yet."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.unit.enforce.enforce_cluster import NAMESPACE, FakePulsar, administrators
from tests.unit.pulsar_admin.cluster_cases import Answer

pytestmark = pytest.mark.slow

INF = np.inf


@pytest.fixture
def cluster(cluster: FakePulsar) -> FakePulsar:
    """One broker with a limit, three topics."""
    cluster.add("a", "b", "c")
    cluster.limit(300.0, safe=100.0)
    return cluster


def record(cluster: FakePulsar, namespace: str = NAMESPACE) -> dict[str, Any] | None:
    text = cluster.properties.get(namespace, {}).get("quotaplane.rates.blue")
    found: dict[str, Any] | None = text and json.loads(text)
    return found


async def test_a_namespace_has_a_share_of_the_safe_limit_as_a_default(cluster: FakePulsar) -> None:
    cluster.properties[NAMESPACE] = {"owner": "orders team"}
    async with cluster.enforcing() as running:
        await running.until(lambda: cluster.default() == 25)
        assert record(cluster) == {"publish": [[25, -1]]}
        # Nothing is written again for a few topics more or less, as a write costs a burst of all.
        cluster.add("d", "e")
        await running.until(lambda: len(cluster.published()) == 5)
        assert cluster.default() == 25
        cluster.add(*(f"t{i}" for i in range(5)))
        await running.until(lambda: cluster.default() == 9)
        assert record(cluster) == {"publish": [[25, -1], [9, -1]]}
        # Dispatch has one when it is limited.
        cluster.limit(300.0, safe=100.0, dispatch=40.0, safe_dispatch=30.0)
        await running.until(lambda: (NAMESPACE, "dispatchRate") in cluster.namespace_rates)
        assert cluster.namespace_rates[NAMESPACE, "dispatchRate"] == {
            "dispatchThrottlingRateInMsg": 2,
            "dispatchThrottlingRateInByte": -1,
            "relativeToPublishRate": False,
            "ratePeriodInSecond": 1,
        }
    assert running.lines == []
    assert cluster.default() == 9  # on_exit: keep
    assert cluster.properties[NAMESPACE]["owner"] == "orders team"


async def test_namespaces_without_topics_have_one_too(cluster: FakePulsar) -> None:
    cluster.topics.clear()
    cluster.namespaces["acme/new"] = "g"
    async with cluster.enforcing() as running:
        await running.until(lambda: cluster.default("acme/new") == 100)
        await running.until(lambda: cluster.default(NAMESPACE) == 100)
        # One that was deleted is no trouble.
        del cluster.namespaces["acme/new"]
        cluster.limit(300.0, safe=10.0)
        await running.until(lambda: cluster.default() == 10)
        await running.ticks(5)
    assert running.lines == []


async def test_a_namespace_with_unread_topics_keeps_its_rate(cluster: FakePulsar) -> None:
    async with cluster.enforcing() as running:
        await running.until(lambda: cluster.default() == 25)
    cluster.answers[f"GET persistent/{NAMESPACE}"] = Answer(500, {"reason": "upset"})
    for on_exit in ("keep", "remove"):
        async with cluster.enforcing(on_exit=on_exit) as running:
            await running.until(lambda: running.enforcer.parts.observer.ready)
            await running.ticks(10)
            assert cluster.default() == 25
            assert record(cluster) is not None
        # A stop that takes rates off takes this one off, too.
        assert cluster.default() == (25 if on_exit == "keep" else None)
    assert record(cluster) is None


async def test_a_namespaces_own_rates_are_never_overwritten(cluster: FakePulsar) -> None:
    cluster.namespace_rates[NAMESPACE, "publishRate"] = administrators(25)
    cluster.namespaces["acme/other"] = "g"
    async with cluster.enforcing(on_exit="remove") as running:
        await running.until(lambda: cluster.default("acme/other") is not None)
        await running.until(lambda: len(cluster.published()) == 3)
        # Somebody gives the other one a rate of his own while we run: it is his from now on.
        cluster.namespace_rates["acme/other", "publishRate"] = administrators(7)
        status = running.enforcer.status
        await running.until(lambda: len(status().conditions["rates of namespaces"]) == 2)
        await running.ticks(10)
    assert running.lines[0].startswith(f"rates of namespaces: namespaces {NAMESPACE} have rates")
    assert cluster.default() == 25
    assert cluster.default("acme/other") == 7
    assert not cluster.published()
    assert not [write for write in cluster.writes() if f"{NAMESPACE}/prop" in write]


async def test_rates_of_an_earlier_run_are_known_until_changed(cluster: FakePulsar) -> None:
    async with cluster.enforcing() as running:
        await running.until(lambda: cluster.default() == 25)
    cluster.add(*(f"t{i}" for i in range(7)))
    async with cluster.enforcing() as running:
        await running.until(lambda: cluster.default() == 9)
    assert running.lines == []
    cluster.namespace_rates[NAMESPACE, "publishRate"]["publishThrottlingRateInMsg"] = 8000
    async with cluster.enforcing() as running:
        await running.until(lambda: len(running.lines) == 1)
    assert cluster.default() == 8000


async def test_what_cant_be_taken_off_is_told(cluster: FakePulsar) -> None:
    failing = Answer(500, {"reason": "upset"})
    cluster.answers[f"DELETE namespaces/{NAMESPACE}/publishRate"] = failing
    async with cluster.enforcing(on_exit="remove") as running:
        await running.until(lambda: cluster.default() == 25 and len(cluster.published()) == 3)
    assert "on_exit: remove: the rates of 1 namespaces were not removed in time" in running.lines
    assert not cluster.published()


async def test_namespaces_that_leave_or_left_the_group_lose_it(cluster: FakePulsar) -> None:
    cluster.namespaces["acme/earlier"] = None
    cluster.properties["acme/earlier"] = {"quotaplane.rates.blue": '{"publish":[[3,-1]]}'}
    cluster.namespace_rates["acme/earlier", "publishRate"] = {"publishThrottlingRateInMsg": 3}
    cluster.namespaces["acme/free"] = None
    cluster.namespace_rates["acme/free", "publishRate"] = {"publishThrottlingRateInMsg": 3}
    async with cluster.enforcing() as running:
        await running.until(lambda: cluster.default() == 25)
        await running.until(lambda: cluster.default("acme/earlier") is None)
        cluster.namespaces[NAMESPACE] = None
        await running.until(lambda: cluster.default() is None)
        await running.until(lambda: record(cluster) is None)
    assert running.lines == []
    assert record(cluster, "acme/earlier") is None
    assert cluster.default("acme/free") == 3


async def test_a_free_group_loses_rates_of_namespaces_first(cluster: FakePulsar) -> None:
    async with cluster.enforcing() as running:
        await running.until(lambda: cluster.default() == 25 and len(cluster.published()) == 3)
        cluster.limit(INF, safe=INF)
        await running.until(lambda: not cluster.published())
    assert running.lines == []
    writes = cluster.writes()
    off = writes.index(f"DELETE namespaces/{NAMESPACE}/publishRate")
    assert off < min(at for at, write in enumerate(writes) if write.startswith("DELETE persist"))


async def test_a_write_that_failed_is_made_again(cluster: FakePulsar) -> None:
    path = f"POST namespaces/{NAMESPACE}/publishRate"
    cluster.answers[path] = Answer(500, {"reason": "upset"})
    async with cluster.enforcing() as running:
        await running.until(lambda: any("writing rates of name" in line for line in running.lines))
        del cluster.answers[path]
        await running.until(lambda: cluster.default() == 25)
        await running.until(lambda: ": over after" in running.lines[-1])
    assert len(running.lines) == 2


async def test_a_cluster_that_keeps_no_record_is_told_and_gets_no_rate(cluster: FakePulsar) -> None:
    path = f"PUT namespaces/{NAMESPACE}/properties"
    cluster.answers[path] = Answer(404, {"reason": "HTTP 404 Not Found"})
    async with cluster.enforcing() as running:
        await running.until(lambda: len(running.lines) == 1)
        await running.until(lambda: len(cluster.published()) == 3)
    assert running.lines[0].startswith(f"writing rates of namespaces: {NAMESPACE}: Pulsar's REST")
    assert cluster.default() is None


async def test_what_a_topic_is_held_to_counts_as_its_rate(cluster: FakePulsar) -> None:
    """Otherwise who uses all of it would seem to want no more."""
    async with cluster.enforcing() as running:
        await running.until(lambda: running.enforcer.status().namespaces == 1)
        defaults = running.enforcer.parts.defaults
        layout = running.enforcer.parts.topic_rates.layout
        rates = np.array([[INF] * 4, [INF, 900.0, INF, INF], [np.nan] * 4])
        held = defaults.effective_rates(layout, rates)
        expected = [[25.0, INF, INF, INF], [INF, 900.0, INF, INF], [np.nan] * 4]
        np.testing.assert_array_equal(held, expected)
        assert defaults.has_default(layout).tolist() == [[True, False]] * 3


async def test_the_topics_go_on_while_many_namespaces_wait(cluster: FakePulsar) -> None:
    """In half of the budget, 31 namespaces take 9 s; topics don't wait for that."""
    for number in range(30):
        cluster.namespaces[f"acme/n{number}"] = "g"
    async with cluster.enforcing(max_writes_per_s=20) as running:
        await running.until(lambda: len(cluster.published()) == 3)
        # By the order of writes: this test may be late to see that all topics are written.
        last = max(cluster.writes().index(write) for write in cluster.topic_writes())
        assert last < 2 * 25
