"""Which producers look muted after a take-over, and what the enforcer does about them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quotaplane.enforce.agent.enforcer import Enforcer
from quotaplane.enforce.muted_producers import (
    Producer,
    Publishing,
    may_be_muted,
    muted_connections,
)
from quotaplane.errors import TransportError
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.pulsar_admin.topic_publishers import throttled_in
from quotaplane.registry.table import put_groups
from tests.unit.cluster_cases import Answer
from tests.unit.enforce_cluster import FakePulsar, Link, full, hurry, settings_for

ADDRESS = "/10.0.0.1:4711"


def publishing(messages: int = 5, throttled: int = 1, **producers: str) -> Publishing:
    return Publishing(messages, throttled, producers or {ADDRESS: "p"})


def test_only_producers_that_were_throttled_may_be_muted() -> None:
    assert may_be_muted(publishing())
    assert not may_be_muted(publishing(throttled=0))
    assert not may_be_muted(Publishing(5, 1, {}))


def test_a_connection_is_muted_while_nothing_is_published() -> None:
    before = {"t": publishing(), "u": publishing(a="q"), "gone": publishing(b="r")}
    now = {"t": publishing(), "u": publishing(messages=6, a="q"), "new": publishing(c="s")}
    assert muted_connections(before, now) == {ADDRESS: Producer("t", "p")}


def test_a_connection_of_several_topics_is_checked_once_and_a_new_one_not_at_all() -> None:
    before = {"t": publishing(a="p"), "u": publishing(a="q")}
    now = {"t": publishing(a="p", b="r"), "u": publishing(a="q")}
    assert muted_connections(before, now) == {"a": Producer("t", "p")}


def test_metrics_name_throttled_topics_and_partitions() -> None:
    metrics = b"""# TYPE pulsar_publish_rate_limit_times gauge
pulsar_publish_rate_limit_times{cluster="c",topic="persistent://a/b/calm"} 0.0
pulsar_publish_rate_limit_times{cluster="c",topic="persistent://a/b/t",partition="-1"} 3.0
pulsar_publish_rate_limit_times{topic="persistent://a/b/many",partition="2"} 1
pulsar_publish_rate_limit_times{cluster="c"} 1
"""
    assert throttled_in(metrics) == {"persistent://a/b/t", "persistent://a/b/many-partition-2"}


class FakeProbe:
    """Records which producers were checked; ``answers`` says what each check gives."""

    def __init__(self, answers: Callable[[str], bool]) -> None:
        self.asked: list[str] = []
        self._answers = answers

    def closed(self, part: str, producer: str) -> bool:
        self.asked.append(producer)
        return self._answers(producer)

    def close(self) -> None:
        pass


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakePulsar]:
    """A group that is taken over, with a muted, an idle and an unthrottled topic."""
    hurry(monkeypatch, "BROKERS", "TOPICS", "TAKE_OVER")
    for name in ("SETTLES", "SILENT", "RETRY_AFTER"):
        monkeypatch.setattr(f"quotaplane.enforce.agent.muted_connections._{name}_S", 0.05)
    with FakePulsar() as fake:
        fake.add("muted", "idle", "calm")
        for port, (topic, throttled) in enumerate({"muted": 1, "idle": 2, "calm": 0}.items()):
            publishers = [{"address": f"/10.0.0.1:{port}", "producerName": topic}]
            stats = {
                "msgInCounter": 1,
                "publishRateLimitedTimes": throttled,
                "publishers": publishers,
            }
            path = full(topic).replace("://", "/") + "/stats"
            query = "getPreciseBacklog=false&subscriptionBacklogSize=false&excludeConsumers=true"
            fake.answers[f"GET {path}?{query}"] = Answer(200, stats)
            fake.answers[f"GET {path}"] = Answer(200, stats)
        fake.put("g", publishRateInMsgs=300)
        yield fake


def enforced(
    cluster: FakePulsar,
    folder: Path,
    open_probe: Callable[[], FakeProbe],
    done: Callable[[Enforcer], bool],
) -> tuple[list[str], dict[str, Any]]:
    """Run an enforcer until ``done``; returns its lines and its last status."""
    settings = settings_for(cluster, folder, take_over=True)
    quotas = np.full((1, 7), np.nan)
    quotas[0, 0] = 300.0
    put_groups(settings.history, ["g"], quotas, "test")
    link = Link()
    link.tell("pulsar://b0", 300.0)
    lines: list[str] = []

    async def scene() -> dict[str, Any]:
        async with Rest(settings.transport) as rest:  # type: ignore[arg-type]
            enforcer = Enforcer(settings, rest, link, lines.append, open_probe=open_probe)
            await enforcer.start()
            stop = asyncio.Event()
            running = asyncio.create_task(enforcer.run(stop))
            for _ in range(3000):
                if done(enforcer):
                    break
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
            stop.set()
            await running
            return enforcer.status()

    return lines, asyncio.run(scene())


def closed_one(enforcer: Enforcer) -> bool:
    return bool(enforcer.status()["closed_connections"])


def test_after_a_take_over_silent_throttled_producers_are_checked_once(
    cluster: FakePulsar, tmp_path: Path
) -> None:
    probe = FakeProbe(lambda producer: producer == "muted")
    lines, status = enforced(cluster, tmp_path, lambda: probe, closed_one)
    assert sorted(probe.asked) == ["idle", "muted"]
    assert status["closed_connections"] == 1
    assert [line for line in lines if "'g'" in line and "1 connection was still held back" in line]


def test_an_enforcer_that_starts_again_checks_what_an_earlier_one_took_over(
    cluster: FakePulsar, tmp_path: Path
) -> None:
    cluster.put("g", publishRateInMsgs=-1)
    probe = FakeProbe(lambda producer: producer == "muted")
    _, status = enforced(cluster, tmp_path, lambda: probe, closed_one)
    assert (status["taken_over"], status["closed_connections"]) == (0, 1)


def test_a_check_that_fails_is_printed_once_and_repeated(
    cluster: FakePulsar, tmp_path: Path
) -> None:
    tries: list[str] = []

    def answer(producer: str) -> bool:
        tries.append(producer)
        if tries.count("muted") < 3 and producer == "muted":
            raise TransportError("no answer in time")
        return producer == "muted"

    lines, status = enforced(cluster, tmp_path, lambda: FakeProbe(answer), closed_one)
    assert status["closed_connections"] == 1, (lines, tries)
    about = [line for line in lines if line.startswith("muted producers")]
    assert about == [
        f"muted producers: {full('muted')}: no answer in time; retrying",
        "muted producers: recovered after 2 failures",
    ]


def test_a_probe_that_can_not_be_made_is_made_later(cluster: FakePulsar, tmp_path: Path) -> None:
    errors = [TransportError("no token file")]

    def open_probe() -> FakeProbe:
        if errors:
            raise errors.pop()
        return FakeProbe(lambda producer: producer == "muted")

    lines, status = enforced(cluster, tmp_path, open_probe, closed_one)
    assert status["closed_connections"] == 1
    about = [line for line in lines if line.startswith("muted producers")]
    assert about == [
        "muted producers: no token file; retrying",
        "muted producers: recovered after 1 failure",
    ]
