"""Reading up to a known id: what is waited for, what is loss, and what is neither."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pulsar
import pytest

from quotaplane.errors import TransportError
from quotaplane.pulsar import replay
from quotaplane.pulsar.position import EARLIEST, Id
from quotaplane.settings import PulsarTransport
from quotaplane.transport.pulsar import PulsarTopics
from tests.unit.pulsar.pulsar_cases import DISCONNECTED, OPTIONS, TOPIC, FakeCluster

END = {TOPIC: "1:3:-1"}
GONE = "persistent://public/default/a"


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Let a fake cluster be what a replay connects to."""
    return lambda cluster: monkeypatch.setattr(replay, "open_client", lambda _: cluster)


@pytest.fixture
def between(connect: Callable[[Any], None]) -> Callable[..., list[bytes]]:
    def read(cluster: Any, start: str = EARLIEST, **more: Any) -> list[bytes]:
        connect(cluster)
        found = replay.read_between(OPTIONS, {TOPIC: start}, END, retry_s=0.0, **more)
        return [value for batch in found for value in batch["value"].to_pylist()]

    return read


Between = Callable[..., list[bytes]]


@pytest.mark.parametrize(
    "script",
    [
        # Opened anew, a reader begins some entries before its position.
        [0, 1, DISCONNECTED, DISCONNECTED, 0, 1, 2, 3, 4],
        [0, 1, *[pulsar.Timeout] * 4, 0, 1, 2, 3],
    ],
    ids=["for a broker", "for what is delivered late"],
)
def test_a_replay_waits_as_a_query_does(between: Between, script: list[Any]) -> None:
    assert between(FakeCluster(script, is_there=True)) == [b"0", b"1", b"2", b"3"]


def test_a_replay_does_not_wait_for_ever(between: Between, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "unreachable", lambda _: "can't be reached")
    with pytest.raises(TransportError, match="can't be reached"):
        between(FakeCluster([DISCONNECTED] * 2), patience_s=0.0)


def test_reports_are_not_read_again_at_the_expense_of_rounds(
    connect: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver reads them between two rounds: limits wait meanwhile."""
    waits: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(waits), sleep=waits.append)
    monkeypatch.setattr(replay, "time", clock)
    monkeypatch.setattr(replay, "unreachable", lambda _: "can't be reached")
    connect(FakeCluster([DISCONNECTED] * 200))
    url = OPTIONS.service_url
    transport = PulsarTopics(PulsarTransport(kind="pulsar", service_url=url, limits_topic=TOPIC))
    with pytest.raises(TransportError, match="can't be reached"):
        list(transport.read_between({TOPIC: EARLIEST}, END))
    assert 1 <= sum(waits) <= 2


def test_a_reader_that_does_not_close_fails_no_task(between: Between) -> None:
    class Open(FakeCluster):
        def close(self) -> None:
            raise pulsar.exceptions.AlreadyClosed

    assert len(between(Open([0, 1, 2, 3]))) == 4


@pytest.mark.parametrize("start", [EARLIEST, "@2"])
def test_what_was_read_before_and_is_not_there_is_loss(between: Between, start: str) -> None:
    with pytest.raises(TransportError, match="may be gone"):
        between(FakeCluster([]), start)


def test_a_batch_may_begin_after_the_last_message(connect: Callable[[Any], None]) -> None:
    connect(FakeCluster([]))
    assert list(replay.read_range(OPTIONS, TOPIC, "@17", Id(1, 3, -1))) == []
    connect(FakeCluster([20]))  # what came meanwhile is not the batch's
    assert list(replay.read_range(OPTIONS, TOPIC, "@17", Id(1, 3, -1))) == []
    connect(FakeCluster([20]))
    with pytest.raises(TransportError, match="may be gone"):
        list(replay.read_range(OPTIONS, TOPIC, EARLIEST, Id(1, 3, -1)))


class WithoutTopic(FakeCluster):
    """The topic of another broker was deleted."""

    def create_reader(self, topic: str, start: Any, **more: Any) -> FakeCluster:
        if topic == GONE:
            raise pulsar.exceptions.TopicNotFound
        return super().create_reader(topic, start, **more)


def test_a_deleted_topic_is_loss_and_the_others_are_read(connect: Callable[[Any], None]) -> None:
    connect(WithoutTopic([0, 1, 2, 3]))
    end = {GONE: "1:3:-1", **END}
    options = OPTIONS.model_copy(update={"fail_on_data_loss": False})
    found = replay.read_between(options, dict.fromkeys(end, EARLIEST), end)
    assert [batch["topic"][0].as_py() for batch in found] == [TOPIC]
    with pytest.raises(TransportError, match=r"may be gone .*was deleted"):
        list(replay.read_between(OPTIONS, dict.fromkeys(end, EARLIEST), end))
