"""The collector and the executor on a fake cluster with the extensible load manager."""

from __future__ import annotations

import itertools
import time

import pytest

from quotabalance.agent.collector import Collector
from quotabalance.planning.decisions import Decisions, Split
from quotabalance.settings import Collect
from quotaplane.pulsar_admin.rest import Rest
from tests.unit.balance.agent_cases import A, B, executed, with_cluster
from tests.unit.balance.balance_cluster import FakeBundles
from tests.unit.balance.test_balance_agent import Outbox

NAMESPACE = "acme/orders"
EIGHTHS = tuple(place << 29 for place in range(1, 4))


def managed(owned: dict[str, str], manager: str = "extensible") -> FakeBundles:
    cluster = FakeBundles(owned)
    cluster.extensible = manager == "extensible"
    return cluster


def collected(cluster: FakeBundles, said: list[str]) -> Outbox:
    outbox = Outbox()

    async def work(rest: Rest) -> None:
        collector = Collector(Collect(), rest, outbox)
        await collector.start()
        await collector.collect()

    with_cluster(cluster, work, said.append)
    return outbox


def test_loads_are_added_up_by_bundle_without_the_leaders_own_topics() -> None:
    cluster, said = managed({A: "h:0", B: "h:1"}), list[str]()
    cluster.rates = {A: 3e6}
    outbox = collected(cluster, said)
    assert said == []
    # The leader, h:0, has topics of the load manager whose bundle is at h:1.
    system = "pulsar/system/0x40000000_0x50000000"
    assert [list(load.bundles) for load in outbox.loads] == [[A], [B, system], []]
    assert outbox.loads[0].rates[0].tolist() == [3e6, 0.0, 0.0, 0.0]
    assert outbox.loads[0].sessions.tolist() == [1]
    assert [outbox.loads[0].usage[0], outbox.loads[0].limit[0]] == [10.0, 100.0]  # per cent
    # Each load report that is asked for in vain is a stack trace in the broker's log.
    assert not [path for path in cluster.paths() if "load-report" in path]


@pytest.mark.parametrize(
    ("manager", "reported", "why"),
    [
        ("modular", ["h:0"], ""),
        # h:1 has a topic of the load manager
        ("extensible", ["h:0", "h:1"], "h:2: it started 0 s ago and "),
    ],
)
def test_a_broker_that_has_not_measured_yet_is_not_reported_as_empty(
    manager: str, reported: list[str], why: str
) -> None:
    cluster, said = managed({A: "h:0"}, manager), list[str]()
    cluster.started_at_ms = int(time.time() * 1000) - 5_000
    assert [load.broker for load in collected(cluster, said).loads] == reported
    assert f"{why}has not measured its bundles yet" in said[0]


@pytest.mark.parametrize("manager", ["extensible", "modular"])
def test_a_bundle_is_split_into_four(manager: str) -> None:
    cluster = managed({A: "h:0", B: "h:1"}, manager)
    plan = Decisions([], [Split(A, "h:0", EIGHTHS, "TooBig", "")])
    assert executed(cluster, plan) == {"split done": 1}
    bounds = [0, *EIGHTHS, 0x80000000]
    parts = {f"{NAMESPACE}/0x{low:08x}_0x{high:08x}" for low, high in itertools.pairwise(bounds)}
    assert {name for name, owner in cluster.owned.items() if owner == "h:0"} == parts
    # The extensible manager refuses to make more than two bundles at once.
    assert len(cluster.paths("PUT")) == (3 if cluster.extensible else 1)


@pytest.mark.parametrize(
    ("hashes", "made"),
    [([1, EIGHTHS[1], EIGHTHS[2]], 3), ([1, 2, EIGHTHS[1]], 1), ([EIGHTHS[0], EIGHTHS[2]], 2)],
)
def test_a_split_in_steps_ends_when_the_topics_are_apart(hashes: list[int], made: int) -> None:
    cluster = managed({A: "h:0", B: "h:1"})
    cluster.topic_hashes = hashes
    plan = Decisions([], [Split(A, "h:0", EIGHTHS, "TooBig", "")])
    assert executed(cluster, plan) == {"split done": 1}
    assert len(cluster.owned) == 2 + made
    assert f"{NAMESPACE}/0x{EIGHTHS[made - 1]:08x}_0x80000000" in cluster.owned


def test_a_bundle_with_one_topic_is_not_split() -> None:
    cluster, said = managed({A: "h:0", B: "h:0"}), list[str]()
    cluster.topic_hashes = [1]
    plan = Decisions([], [Split(A, "h:0", EIGHTHS, "TooBig", "")])
    assert executed(cluster, plan, say=said.append) == {"split failed": 1}
    assert "fewer than two topics" in said[0]


def test_a_split_that_ends_half_way_says_how_far_it_came() -> None:
    cluster, said = managed({A: "h:0", B: "h:0"}), list[str]()
    cluster.refuse_splits_after = 1
    plan = Decisions([], [Split(A, "h:0", EIGHTHS, "TooBig", "")])
    assert executed(cluster, plan, say=said.append) == {"split failed": 1}
    assert "1 of 3 boundaries made" in said[0]
