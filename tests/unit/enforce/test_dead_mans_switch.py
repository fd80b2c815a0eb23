"""When the enforcer or the job has been gone for too long, or rates can't limit a group."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quotaplane.agents.conditions import Conditions
from quotaplane.enforce.agent.job_watch import JobWatch
from quotaplane.enforce.crowded_groups import LASTS_S, CrowdedGroups
from quotaplane.errors import ClusterError
from quotaplane.group_sync.enforcer_watch import EnforcerWatch
from quotaplane.group_sync.sync import GroupSync
from quotaplane.settings import Enforce, History
from tests.unit.enforce.enforce_cases import layout_of, only_messages
from tests.unit.enforce.enforce_cluster import NAMESPACE, FakePulsar
from tests.unit.enforce.test_enforce_takeover import record
from tests.unit.group_sync.follower_cases import BY, Rig
from tests.unit.pulsar_admin.cluster_cases import Answer
from tests.virtual_loop import run_virtually

TOPIC = "persistent://public/default/enforcer-leader"
STATS = "GET persistent/public/default/enforcer-leader/stats"


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


# The enforcer is gone: the job gives the quotas back.


async def test_enforcers_without_a_beat_for_long_are_gone(cluster: FakePulsar) -> None:
    clock, beats = Clock(), 0
    watch = EnforcerWatch(TOPIC, 900.0, clock)

    async def gone() -> bool:
        async with cluster.rest() as rest:
            return await watch.gone(rest)

    async def look(passed_s: float, more_beats: int = 0) -> bool:
        nonlocal beats
        beats += more_beats
        clock.now_s += passed_s
        cluster.answers[STATS] = Answer(200, {"msgInCounter": beats})
        return await gone()

    for _ in range(3):  # there was never an enforcer with this topic
        clock.now_s += 5000
        assert not await gone()
    assert not await look(2, 2)
    assert not await look(899)
    assert await look(2)
    assert await look(5000)
    assert not await look(2, 1)  # one leads again
    assert not await look(890)
    # A topic that can't be looked at is no sign of anything.
    cluster.answers[STATS] = Answer(500, {"reason": "upset"})
    clock.now_s += 5000
    with pytest.raises(ClusterError):
        await gone()
    assert not await look(899)
    assert await look(2)


def test_the_job_gives_back_what_enforcers_took_over(cluster: FakePulsar, tmp_path: Path) -> None:
    rig = Rig(cluster, History(path=str(tmp_path / "history")))
    clock = Clock()
    cluster.answers[STATS] = Answer(200, {"msgInCounter": 7})
    for group in ("g", "h"):
        cluster.put(group, publishRateInMsgs=300, publishRateInBytes=4000, dispatchRateInMsgs=9)
    settings = rig.settings
    assert settings.cluster is not None
    sync = GroupSync(settings.cluster, settings, BY, rig.conditions())
    sync._watch = EnforcerWatch(TOPIC, 900.0, clock)

    def poll(passed_s: float) -> None:
        async def once() -> None:
            async with cluster.rest() as rest:
                assert await sync.sync(rest) == []

        clock.now_s += passed_s
        run_virtually(once())

    def publish(group: str) -> int:
        return cluster.groups[group]["publishRateInMsgs"]

    poll(1)
    cluster.put("g", publishRateInMsgs=-1, publishRateInBytes=-1)  # taken over
    cluster.put("g.taken-over", publishRateInMsgs=300, publishRateInBytes=4000)
    poll(1)
    poll(800)
    assert publish("g") == -1
    poll(200)
    assert (publish("g"), publish("h")) == (300, 300)
    assert cluster.groups["g"]["publishRateInBytes"] == 4000
    assert "g.taken-over" not in cluster.groups
    (line,) = rig.told
    assert line.startswith("no enforcer: none has led ")
    # One leads again and takes over: that is left to it.
    cluster.answers[STATS] = Answer(200, {"msgInCounter": 8})
    cluster.put("g", publishRateInMsgs=-1, publishRateInBytes=-1)
    poll(1)
    poll(1)
    assert publish("g") == -1
    assert rig.table()["g"] == [300, 4000, 9, None]


# The job is gone: the enforcer gives the quotas back, if the settings want that.


async def test_when_limits_stay_away_the_cluster_gets_its_quotas_back(cluster: FakePulsar) -> None:
    record(cluster.history, "g", messages=300.0)
    cluster.put("g")  # taken over by an earlier run
    cluster.add("a", used=500.0)
    writes = f"POST persistent/{NAMESPACE}/a/publishRate"

    async with cluster.enforcing(
        take_over=True, without_limits="give_back", give_back_after_s=300
    ) as running:
        cluster.limit(300.0, safe=60.0)
        await running.until(lambda: cluster.published() == {"a": 300})
        running.now_ms += 200_000  # after the lease, before the time is over
        await running.until(lambda: cluster.published() == {"a": 60})
        # A quota that can't be given back keeps its rates.
        cluster.answers["PUT resourcegroups/g"] = Answer(500, {"reason": "upset"})
        running.now_ms += 200_000
        await running.until(lambda: "the rates of their topics stay" in "".join(running.lines))
        await running.ticks(10)
        assert set(cluster.published()) == {"a"}
        cluster.answers.clear()
        await running.until(lambda: cluster.groups["g"]["publishRateInMsgs"] == 300)
        await running.until(lambda: not cluster.rates and cluster.default() is None)
        # The job is back: the cluster limits the group until the new limits are in force.
        cluster.answers[writes] = Answer(500, {"reason": "upset"})
        cluster.limit(250.0, safe=60.0)
        running.now_ms = time.time() * 1000
        await running.until(lambda: "quota job: over after" in "".join(running.lines))
        await running.ticks(10)
        assert cluster.groups["g"]["publishRateInMsgs"] == 300
        cluster.answers.clear()
        await running.until(lambda: cluster.published() == {"a": 250})
        await running.until(lambda: cluster.groups["g"]["publishRateInMsgs"] == -1)
    (gone, back) = (line for line in running.lines if line.startswith("quota job"))
    assert "no limits arrived for 400 s" in gone
    assert "over after" in back


@pytest.mark.parametrize(
    ("settings", "gone"),
    [
        ({"without_limits": "give_back", "give_back_after_s": 100.0}, [False, False, True]),
        ({"without_limits": "give_back", "give_back_after_s": None}, [False] * 3),
        ({}, [False] * 3),
    ],
)
def test_a_start_without_limits_waits_as_long(settings: dict[str, Any], gone: list[bool]) -> None:
    watch = JobWatch(Enforce(**settings), Conditions(print))
    for now_s, is_gone in zip((5000.0, 5099.0, 5101.0), gone, strict=True):
        watch.look(0.0, now_s)
        assert watch.gone is is_gone


# Rates can't limit a group with more topics than units.


def test_a_group_with_more_topics_than_units_is_crowded_after_a_while() -> None:
    layout = layout_of({f"t{i}": "b0" for i in range(20)}, "g")
    crowded = CrowdedGroups()
    for after_s, units, groups in (
        (0, 15, set()),
        (LASTS_S, 15, {"g"}),
        (LASTS_S + 1, 22, {"g"}),  # it is near: not to and fro
        (LASTS_S + 2, 30, set()),
    ):
        limits = np.array([[units, np.inf, np.inf, np.nan]])
        crowded = crowded.after(layout, limits, now_s=after_s)
        assert crowded.groups == groups


def test_a_broker_with_a_small_limit_makes_no_group_crowded() -> None:
    """An idle broker has next to nothing; once its topics are used it gets more."""
    topics = {f"s{i}": "b0" for i in range(20)} | {f"t{i}": "b1" for i in range(20)}
    layout = layout_of(topics, "g")
    crowded = CrowdedGroups()
    for now_s in (0.0, 2 * LASTS_S):
        crowded = crowded.after(layout, only_messages([95.0, 5.0]), now_s)
    assert not crowded.groups


async def test_a_crowded_group_has_its_quota_in_the_cluster(cluster: FakePulsar) -> None:
    record(cluster.history, "g", messages=30.0)
    cluster.put("g")  # taken over by an earlier run
    cluster.add(*(f"t{i:02}" for i in range(50)), used=1.0)
    async with cluster.enforcing(take_over=True) as running:
        cluster.limit(30.0)
        await running.until(lambda: cluster.groups["g"]["publishRateInMsgs"] == 30)
        assert running.enforcer.status().crowded_groups == 1
        await running.ticks(10)
        assert cluster.groups["g"]["publishRateInMsgs"] == 30, "it is not taken over again"
        assert len([line for line in running.lines if "more topics" in line]) == 1
