"""Which producers look muted after a take-over, and what the enforcer does about them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quotaplane.enforce.agent.enforcer import Enforcer
from quotaplane.enforce.agent.enforcer_status import EnforcerStatus
from quotaplane.enforce.agent.muted_connections import Producer, connections_of, silent_parts
from quotaplane.errors import TransportError
from quotaplane.pulsar_admin.topic_publishers import published_in
from tests.unit.enforce.enforce_cluster import NAMESPACE, FakePulsar, full
from tests.unit.enforce.test_enforce_takeover import record
from tests.unit.pulsar_admin.cluster_cases import Answer


def test_parts_are_silent_while_nothing_is_published() -> None:
    before = {"t": 5, "busy": 5, "gone": 5, "never": 0}
    now = {"t": 5, "busy": 6, "new": 5, "never": 0}
    assert silent_parts(before, now, set()) == ["t"]


def test_parts_that_were_used_lately_come_before_idle_ones() -> None:
    counts = {"idle": 9, "t": 5, "idle too": 7, "u": 1}
    assert silent_parts(counts, counts, {"u", "t"}) == ["t", "u", "idle", "idle too"]


def test_a_connection_of_several_topics_is_checked_once() -> None:
    producers = {"t": {"a": "p"}, "u": {"a": "q", "b": "r"}}
    assert connections_of(producers) == {"a": Producer("t", "p"), "b": Producer("u", "r")}


def metrics_of(part: str, **values: float) -> bytes:
    namespace = 'cluster="c",namespace="a/b"'
    return "".join(
        f'pulsar_{name}{{{namespace},topic="persistent://a/b/{part}"}} {value}\n'
        for name, value in values.items()
    ).encode()


def test_metrics_tell_how_much_was_published_to_topics_with_producers() -> None:
    metrics = b"# TYPE pulsar_in_messages_total gauge\n" + b"".join(
        [
            metrics_of("t", producers_count=2, rate_in=0.0, in_messages_total=7.0),
            metrics_of("throttled", in_messages_total=1, publish_rate_limit_times=1)
            + metrics_of("throttled", producers_count=1),
            metrics_of('many",partition="2', in_messages_total=3, producers_count=1, rate_in=0.1),
            metrics_of("left", producers_count=0, in_messages_total=9, rate_in=5),
            metrics_of("unused", producers_count=1, in_messages_total=0),
            b'pulsar_in_messages_total{cluster="c"} 1\n',
        ]
    )
    many, throttled = "persistent://a/b/many-partition-2", "persistent://a/b/throttled"
    messages, lately = published_in(metrics)
    assert messages == {"persistent://a/b/t": 7, throttled: 1, many: 3}
    assert lately == {throttled, many}


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


THROTTLED = {"muted": 1, "forgotten": 0, "idle": 0}
"""By topic: how often its broker counted a throttled producer since it updated its statistics."""


def stats_of(topic: str, port: int) -> dict[str, Any]:
    return {
        "msgInCounter": 0 if topic == "unused" else 1,
        "msgRateIn": 0.0,
        "publishRateLimitedTimes": THROTTLED.get(topic, 0),
        "publishers": [{"address": f"/10.0.0.1:{port}", "producerName": topic}],
    }


class Publishers(FakePulsar):
    """A group with a muted, an idle and other topics, each with a producer; one topic is busy."""

    def __init__(self, folder: Path, *, live: bool) -> None:
        super().__init__(folder=folder)
        self.runtime["exposeTopicLevelMetricsInPrometheus"] = str(live).lower()
        self.read: list[str] = []
        """Topics of which the producers were read."""
        self._busy = 0
        self.add(*THROTTLED, "unused", "busy")
        self.put("g", publishRateInMsgs=300)
        for port, topic in enumerate([*THROTTLED, "unused", "busy"]):
            path = full(topic).replace("://", "/") + "/stats"
            self.answers[f"GET {path}"] = Answer(200, stats_of(topic, port))

    def find(self, method: str, path: str) -> Any:
        path = path.partition("?")[0]
        if path.endswith("metrics/"):
            return Answer(200, self._metrics())
        answer = super().find(method, path)
        if path.endswith("/stats"):
            topic = path.split("/")[-2]
            self.read.append(topic)
            if topic == "busy":
                return Answer(200, answer.body | {"msgInCounter": self._count()})
        return answer

    def _count(self) -> int:
        self._busy += 1
        return self._busy

    def _metrics(self) -> str:
        counts = {**dict.fromkeys(THROTTLED, 1), "unused": 0, "busy": self._count()}
        return "".join(
            f'pulsar_{name}{{namespace="{NAMESPACE}",topic="{full(topic)}"}} {value}\n'
            for topic, count in counts.items()
            for name, value in {
                "in_messages_total": count,
                "producers_count": 1,
                "publish_rate_limit_times": THROTTLED.get(topic, 0),
            }.items()
        )


@pytest.fixture(params=[False, True], ids=["statistics", "live"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Publishers:
    """A group that will be taken over; its broker has live metrics, or only statistics."""
    return Publishers(tmp_path, live=request.param)


async def enforced(
    cluster: Publishers, open_probe: Callable[[], FakeProbe], done: Callable[[Enforcer], bool]
) -> tuple[list[str], EnforcerStatus]:
    """Run an enforcer until ``done``; returns its lines and its last status."""
    record(cluster.history, "g", messages=300.0)
    cluster.limit(300.0)
    async with cluster.enforcing(open_probe=open_probe, take_over=True) as running:
        await running.until(lambda: done(running.enforcer), within_s=600.0)
        await asyncio.sleep(10.0)  # it would do the same again
    return running.lines, running.enforcer.status()


def muted(producer: str) -> bool:
    return producer == "muted"


def closed_one(enforcer: Enforcer) -> bool:
    return bool(enforcer.status().closed_connections)


@pytest.mark.parametrize("found", ["muted", "forgotten"])
async def test_silent_producers_are_checked_once(cluster: Publishers, found: str) -> None:
    """Brokers forget that they throttled a producer whenever they update their statistics."""
    probe = FakeProbe(found.__eq__)
    lines, status = await enforced(cluster, lambda: probe, closed_one)
    assert sorted(probe.asked) == ["forgotten", "idle", "muted"]
    assert status.closed_connections == 1
    assert [line for line in lines if "'g'" in line and "1 connection was still held back" in line]
    if cluster.runtime["exposeTopicLevelMetricsInPrometheus"] == "true":
        assert sorted(cluster.read) == ["forgotten", "idle", "muted"], "only silent topics"


async def test_what_an_earlier_run_took_over_is_checked(cluster: Publishers) -> None:
    cluster.put("g", publishRateInMsgs=-1)
    probe = FakeProbe(muted)
    _, status = await enforced(cluster, lambda: probe, closed_one)
    assert (status.taken_over, status.closed_connections) == (0, 1)


async def test_a_check_that_fails_is_printed_once_and_repeated(cluster: Publishers) -> None:
    tries: list[str] = []
    errors = [TransportError("no token file")]

    def open_probe() -> FakeProbe:
        if errors:
            raise errors.pop()
        return FakeProbe(answer)

    def answer(producer: str) -> bool:
        tries.append(producer)
        if tries.count("muted") < 3 and producer == "muted":
            raise TransportError("no answer in time")
        return producer == "muted"

    lines, status = await enforced(cluster, open_probe, closed_one)
    assert status.closed_connections == 1, (lines, tries)
    begun, over = (line for line in lines if line.startswith("muted producers"))
    assert begun == "muted producers: no token file; retrying"
    assert tries.count("muted") == 3
    assert "over after" in over


@pytest.mark.nightly
async def test_a_check_that_never_succeeds_is_not_tried_for_ever(cluster: Publishers) -> None:
    def refuse(producer: str) -> bool:
        raise TransportError("refused")

    probe = FakeProbe(refuse)
    last_s: list[float] = []

    def long_ago(_: Enforcer) -> bool:
        now_s = asyncio.get_running_loop().time()
        if probe.asked.count("muted") == 6:
            last_s.append(now_s)
        return bool(last_s) and now_s > last_s[0] + 60.0

    await enforced(cluster, lambda: probe, long_ago)
    assert probe.asked.count("muted") == 6
