"""When a group's publish quota is taken off the cluster, and when that must not be."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.pace import Pace
from quotaplane.enforce.agent.custodian import Custodian
from quotaplane.enforce.agent.quota_table import QuotaTable
from quotaplane.enforce.groups_in_force import GroupsInForce
from quotaplane.enforce.rate_writes import Moves
from quotaplane.model import DIMENSIONS, FloatArray
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.registry.table import delete_groups, list_groups, put_groups
from quotaplane.settings import History
from tests.unit.enforce.enforce_cases import layout_of
from tests.unit.enforce.enforce_cluster import FakePulsar
from tests.unit.enforce.test_topic_division import rates_of
from tests.unit.pulsar_admin.cluster_cases import Answer

pytestmark = pytest.mark.slow

INF, NAN = np.inf, np.nan
LATER_MS = 1e15
"""Time of limits that were decided after anything was recorded."""
LATER = np.array([LATER_MS, LATER_MS])


def record(history: History, *groups: str, messages: float, of_bytes: float = np.nan) -> None:
    quotas = np.full((len(groups), len(DIMENSIONS)), np.nan)
    quotas[:, :2] = messages, of_bytes
    put_groups(history, list(groups), quotas, "test")


def custodian_of(rest: Rest, history: History, most: int = 3) -> Custodian:
    log = Conditions(print)
    return Custodian(rest, QuotaTable(history, log), Pace(1e6), log, most)


async def take(
    cluster: FakePulsar, *groups: str, times: int = 1, most: int = 3, **in_force: FloatArray
) -> int:
    """Take over what may be, of ``groups`` and of those with these times of their limits; how many
    were taken over.
    """
    in_force |= dict.fromkeys(groups, LATER)
    async with cluster.rest() as rest:
        custodian = custodian_of(rest, cluster.history, most)
        for _ in range(times):
            await custodian.tend(list(in_force), (), in_force)
        return custodian.taken


async def test_changes_meanwhile_stay(cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch) -> None:
    record(cluster.history, "g", "h", messages=300.0)
    cluster.put("g", publishRateInMsgs=300)
    others = {"dispatchRateInMsgs": 40, "replicationDispatchRateInMsgs": 400}
    cluster.put("h", publishRateInMsgs=300, **others)

    def slow(history: History) -> object:
        rows = list_groups(history)
        cluster.put("g", publishRateInMsgs=50)
        return rows

    monkeypatch.setattr("quotaplane.enforce.agent.quota_table.list_groups", slow)
    await take(cluster, g=np.array([LATER_MS, -INF]), h=np.array([LATER_MS, -INF]))
    assert cluster.groups["g"]["publishRateInMsgs"] == 50
    assert cluster.groups["h"]["publishRateInMsgs"] == -1
    assert others.items() <= cluster.groups["h"].items()
    # Nothing else is named, so nothing else can be overwritten.
    bodies = [json.loads(asked.body) for asked in cluster.asked if asked.method == "PUT"]
    assert bodies == [
        {"publishRateInMsgs": 300, "publishRateInBytes": -1},  # the copy
        {"publishRateInMsgs": -1},
    ]


@pytest.mark.parametrize("lost", ["the rows", "the table"])
async def test_what_the_table_loses_meanwhile_has_its_copy(cluster: FakePulsar, lost: str) -> None:
    """From the copies the sync makes the rows again."""
    groups = [f"g{i}" for i in range(9)]
    record(cluster.history, *groups, messages=300.0)
    for group in groups:
        cluster.put(group, publishRateInMsgs=300)
    real = cluster.find
    deleted: list[str] = []

    def find(method: str, path: str) -> Answer:
        if method == "PUT" and not deleted:
            deleted.extend(groups)
            if lost == "the rows":
                delete_groups(cluster.history, groups, "ann")
            else:
                shutil.rmtree(cluster.history.path)
        return real(method, path)

    cluster.find = find  # type: ignore[method-assign]
    assert await take(cluster, *groups, most=100, times=2) == 9
    for group in groups:
        assert cluster.groups[f"{group}.taken-over"]["publishRateInMsgs"] == 300


async def test_a_quota_that_the_cluster_still_has_was_not_taken_over(cluster: FakePulsar) -> None:
    record(cluster.history, "g", messages=300.0)
    cluster.put("g", publishRateInMsgs=300)
    cluster.answers["PUT resourcegroups/g"] = Answer(204)
    assert await take(cluster, "g", times=2) == 0
    # Looked at, looked at with the copy, copied, taken over, read back: each time.
    copy, look = "resourcegroups/g.taken-over", "GET resourcegroups/g"
    first = [look, f"GET {copy}", look, f"PUT {copy}", f"GET {copy}", look]
    take_it = ["PUT resourcegroups/g", look]
    assert cluster.requests() == [*first, *take_it, look, f"GET {copy}", look, *take_it]
    cluster.answers.clear()
    assert await take(cluster, "g", times=2) == 1
    assert cluster.groups["g"]["publishRateInMsgs"] == -1


async def test_a_rounded_quota_is_recorded_one_of_zero_is_none(cluster: FakePulsar) -> None:
    record(cluster.history, "g", "h", messages=99.5, of_bytes=0.4)
    record(cluster.history, "zero", messages=0.0)
    cluster.put("g", publishRateInMsgs=100, publishRateInBytes=1)
    cluster.put("h", publishRateInMsgs=99, publishRateInBytes=1)
    cluster.put("zero", publishRateInMsgs=0)
    assert await take(cluster, "g", "h", "zero") == 1
    found = {group: cluster.groups[group]["publishRateInMsgs"] for group in ("g", "h", "zero")}
    assert found == {"g": -1, "h": 99, "zero": 0}


@pytest.mark.parametrize(
    ("limits", "b1_is_owned", "in_force"),
    [
        ([100, 100], True, True),
        # Rolled out on one broker only: the other would have no limit at all.
        ([100, INF], True, False),
        # Not told yet: likewise.
        ([100, NAN], True, False),
        ([100, NAN], False, True),
    ],
)
def test_limits_are_in_force_only_if_every_broker_is_limited(
    limits: list[float], b1_is_owned: bool, in_force: bool
) -> None:
    layout = layout_of({"s": "b0", "t": "b1" if b1_is_owned else ""}, "g")
    rates = rates_of(limits)
    rates.in_force[np.isnan(limits)] = NAN
    none = np.zeros(0, np.int64)
    moves = Moves(none, none, np.zeros((0, 2)), np.zeros((2, 2), np.bool_))
    noted = GroupsInForce().after(layout, rates.in_force, rates, moves, np.array([7.0]))
    assert list(noted.since_ms) == (["g"] if in_force else [])


@pytest.mark.parametrize("take_over", [True, False])
async def test_rates_of_a_group_the_table_lost_stay(cluster: FakePulsar, take_over: bool) -> None:
    cluster.add("a", used=500.0)
    cluster.put("g")
    record(cluster.history, "g", messages=200.0)
    cluster.limit(200.0, dispatch=70.0)

    def lose() -> None:
        delete_groups(cluster.history, ["g"], "test")
        cluster.link.remove("pulsar://b0")

    def reads_of_g() -> int:
        return cluster.requests().count("GET resourcegroups/g")

    async with cluster.enforcing(take_over=take_over) as running:
        await running.until(lambda: len(cluster.rates) == 2)
        lose()
        if not take_over:
            await running.until(lambda: not cluster.rates)
            return
        await running.until(lambda: bool(running.lines))
        # No limit that is received counts any more: no quota says how much is right.
        cluster.limit(1e9)
        await running.ticks(10)
        assert cluster.published() == {"a": 200}
        assert len(cluster.rates) == 2
        (line,) = running.lines
        assert line.startswith("missing groups: resource groups 'g': not in the table any more, wh")
        # It is back, and lost again.
        record(cluster.history, "g", messages=100.0)
        cluster.limit(100.0)
        await running.until(lambda: cluster.published() == {"a": 100})
        # The next look at lost groups ends with a read of the group, so two reads show a look.
        read_before = reads_of_g()
        await running.until(lambda: reads_of_g() >= read_before + 2)
        lose()
        await running.until(lambda: "missing groups" in running.enforcer.status().conditions)
        # Detached it has no limits any more.
        cluster.namespaces["acme/orders"] = None
        await running.until(lambda: not cluster.rates)


async def test_groups_are_looked_at_in_turn(cluster: FakePulsar) -> None:
    groups = [f"g{i}" for i in range(6)]
    for group in groups:
        cluster.put(group)
    await take(cluster, *groups)
    assert len(cluster.asked) == 3
    cluster.asked.clear()
    await take(cluster, *groups, times=2)
    assert sorted(cluster.requests()) == [f"GET resourcegroups/{group}" for group in groups]


async def test_a_group_without_namespaces_gets_its_copy_at_the_end(cluster: FakePulsar) -> None:
    record(cluster.history, "gone", "left", messages=300.0)
    for group in ("gone", "left"):
        cluster.put(group, publishRateInMsgs=300)
    async with cluster.rest() as rest:
        custodian = custodian_of(rest, cluster.history)
        await custodian.tend(["gone", "left"], (), {"gone": LATER, "left": LATER})
        assert custodian.hidden == {"gone", "left"}
        # No namespace is attached to either any more; one is deleted, here and there.
        delete_groups(cluster.history, ["gone", "left"], by="test")
        del cluster.groups["gone"]
        await custodian.tend([], (), {})
        assert custodian.hidden == set()
        assert await custodian.give_all_back([], 20.0) == set()
    assert cluster.groups["left"]["publishRateInMsgs"] == 300
    assert "gone" not in cluster.groups
