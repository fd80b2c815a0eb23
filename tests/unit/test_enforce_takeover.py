"""When a group's publish quota is taken off the cluster, and when that must not be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from quotaplane.cluster.pace import Pace
from quotaplane.cluster.rest import Rest
from quotaplane.enforce.takeover import TakeOver
from quotaplane.enforce.trouble import Trouble
from quotaplane.history.groups import put_groups
from quotaplane.model import FloatArray
from quotaplane.settings import History
from tests.unit.cluster_cases import Answer
from tests.unit.enforce_cluster import FakePulsar, Link, enforcing, settings_for

LATER_MS = 1e15
"""Of limits: told after anything was recorded."""


@pytest.fixture
def cluster() -> Iterator[FakePulsar]:
    with FakePulsar() as fake:
        yield fake


def record(history: History, *groups: str, messages: float, of_bytes: float = np.nan) -> None:
    quotas = np.full((len(groups), 7), np.nan)
    quotas[:, :2] = messages, of_bytes
    put_groups(history, list(groups), quotas, "test")


def take(
    cluster: FakePulsar, folder: Path, in_force: dict[str, FloatArray], *, times: int = 1
) -> list[str]:
    """Take over what may be; what was asked for, "method path"."""
    settings = settings_for(cluster, folder)

    async def scene() -> None:
        async with Rest(settings.transport) as rest:  # type: ignore[arg-type]
            take_over = TakeOver(rest, settings.history, Pace(1e6), Trouble(print), 3)
            for _ in range(times):
                await take_over.take(in_force)

    asyncio.run(scene())
    return [f"{asked.method} {asked.path}" for asked in cluster.asked]


def test_a_change_while_the_table_is_read_is_not_overwritten(
    cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = settings_for(cluster, tmp_path).history
    record(history, "g", "h", messages=300.0)
    cluster.put("g", publishRateInMsgs=300)
    cluster.put("h", publishRateInMsgs=300, dispatchRateInMsgs=40)
    from quotaplane.enforce import takeover

    def slow(history: History) -> object:
        rows = list_groups(history)
        cluster.put("g", publishRateInMsgs=50)
        return rows

    list_groups = takeover.list_groups
    monkeypatch.setattr(takeover, "list_groups", slow)
    told = np.array([LATER_MS, -np.inf])
    take(cluster, tmp_path, {"g": told, "h": told})
    assert cluster.groups["g"]["publishRateInMsgs"] == 50
    assert cluster.groups["h"]["publishRateInMsgs"] == -1
    # Nothing else is named, so nothing else can be overwritten.
    bodies = [json.loads(asked.body) for asked in cluster.asked if asked.method == "PUT"]
    assert bodies == [{"publishRateInMsgs": -1}]


def test_only_what_has_limits_in_force_in_each_dimension_is_taken(
    cluster: FakePulsar, tmp_path: Path
) -> None:
    history = settings_for(cluster, tmp_path).history
    record(history, "g", "h", messages=300.0, of_bytes=4000.0)
    cluster.put("g", publishRateInMsgs=300, publishRateInBytes=4000)
    cluster.put("h", publishRateInMsgs=300, publishRateInBytes=4000)
    take(
        cluster,
        tmp_path,
        {"g": np.array([LATER_MS, -np.inf]), "h": np.array([LATER_MS, LATER_MS])},
    )
    assert cluster.groups["g"]["publishRateInMsgs"] == 300
    assert cluster.groups["h"]["publishRateInMsgs"] == -1
    assert cluster.groups["h"]["publishRateInBytes"] == -1


def test_limits_told_before_the_quota_was_recorded_do_not_count(
    cluster: FakePulsar, tmp_path: Path
) -> None:
    record(settings_for(cluster, tmp_path).history, "g", messages=300.0)
    cluster.put("g", publishRateInMsgs=300)
    take(cluster, tmp_path, {"g": np.array([1e12, -np.inf])})
    assert cluster.groups["g"]["publishRateInMsgs"] == 300


def test_groups_are_looked_at_in_turn(cluster: FakePulsar, tmp_path: Path) -> None:
    groups = [f"g{i}" for i in range(6)]
    for group in groups:
        cluster.put(group)
    told = dict.fromkeys(groups, np.array([LATER_MS, LATER_MS]))
    asked = take(cluster, tmp_path, told, times=1)
    assert len(asked) == 3
    cluster.asked.clear()
    asked = take(cluster, tmp_path, told, times=2)
    assert sorted(asked) == [f"GET resourcegroups/{group}" for group in groups]


def test_an_enforcer_hides_a_new_quota_once_its_limits_were_told(
    cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for what in ("BROKERS", "TOPICS", "TAKE_OVER"):
        monkeypatch.setattr(f"quotaplane.enforce.pulsar._{what}_EVERY_S", 0.1)
    settings = settings_for(cluster, tmp_path, take_over=True)
    cluster.add("a", used=500.0)
    cluster.put("g", publishRateInMsgs=300)
    link = Link()
    link.tell("pulsar://b0", 200.0)
    record(settings.history, "g", messages=300.0)

    async def scene() -> None:
        async with enforcing(settings, link) as running:
            await running.until(lambda: cluster.published() == {"a": 200})
            before = cluster.paths().count("resourcegroups/g")
            await running.until(lambda: cluster.paths().count("resourcegroups/g") > before + 3)
            assert cluster.groups["g"]["publishRateInMsgs"] == 300
            # Told, and not in force.
            slow = Answer(500, {"reason": "upset"})
            cluster.answers["POST persistent/acme/orders/a/publishRate"] = slow
            link.tell("pulsar://b0", 100.0)
            await running.until(lambda: running.enforcer.status()["errors"] >= 3)
            assert cluster.groups["g"]["publishRateInMsgs"] == 300
            del cluster.answers["POST persistent/acme/orders/a/publishRate"]
            await running.until(lambda: cluster.groups["g"]["publishRateInMsgs"] == -1)
            assert cluster.published() == {"a": 100}

    asyncio.run(scene())
