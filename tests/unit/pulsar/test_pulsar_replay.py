"""Reading up to a known id: what is waited for, what is loss, and what is neither."""

from __future__ import annotations

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


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "RETRY_S", 0.0)


def between(monkeypatch: pytest.MonkeyPatch, cluster: Any, start: str = EARLIEST) -> list[bytes]:
    monkeypatch.setattr(replay, "open_client", lambda _: cluster)
    found = replay.read_between(OPTIONS, {TOPIC: start}, END)
    return [value for batch in found for value in batch["value"].to_pylist()]


def test_a_replay_waits_for_a_broker_as_a_query_does(monkeypatch: pytest.MonkeyPatch) -> None:
    # Opened anew, a reader begins some entries before its position.
    cluster = FakeCluster([0, 1, DISCONNECTED, DISCONNECTED, 0, 1, 2, 3, 4], is_there=True)
    assert between(monkeypatch, cluster) == [b"0", b"1", b"2", b"3"]


def test_a_replay_waits_for_what_is_delivered_late(monkeypatch: pytest.MonkeyPatch) -> None:
    late = [pulsar.Timeout, pulsar.Timeout]
    cluster = FakeCluster([0, 1, *late, *late, 0, 1, 2, 3], is_there=True)
    assert between(monkeypatch, cluster) == [b"0", b"1", b"2", b"3"]


def test_a_replay_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "unreachable", lambda _: "can't be reached")
    monkeypatch.setattr(replay, "open_client", lambda _: FakeCluster([DISCONNECTED] * 2))
    with pytest.raises(TransportError, match="can't be reached"):
        list(replay.read_between(OPTIONS, {TOPIC: EARLIEST}, END, patience_s=0.0))


def test_reports_are_not_read_again_at_the_expense_of_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver reads them between two rounds: limits wait meanwhile."""
    waits: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(waits), sleep=waits.append)
    monkeypatch.setattr(replay, "RETRY_S", 1.0)
    monkeypatch.setattr(replay, "time", clock)
    monkeypatch.setattr(replay, "unreachable", lambda _: "can't be reached")
    monkeypatch.setattr(replay, "open_client", lambda _: FakeCluster([DISCONNECTED] * 200))
    transport = PulsarTopics(
        PulsarTransport(kind="pulsar", service_url=OPTIONS.service_url, limits_topic=TOPIC)
    )
    with pytest.raises(TransportError, match="can't be reached"):
        list(transport.read_between({TOPIC: EARLIEST}, END))
    assert 1 <= sum(waits) <= 2


def test_a_reader_that_does_not_close_fails_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    class Open(FakeCluster):
        def close(self) -> None:
            raise pulsar.exceptions.AlreadyClosed

    assert len(between(monkeypatch, Open([0, 1, 2, 3]))) == 4


@pytest.mark.parametrize("start", [EARLIEST, "@2"])
def test_what_was_read_before_and_is_not_there_is_loss(
    monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    with pytest.raises(TransportError, match="may be gone"):
        between(monkeypatch, FakeCluster([]), start)


def test_a_batch_may_begin_after_the_last_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "open_client", lambda _: FakeCluster([]))
    assert list(replay.read_range(OPTIONS, TOPIC, "@17", Id(1, 3, -1))) == []
    # What came meanwhile is not the batch's.
    monkeypatch.setattr(replay, "open_client", lambda _: FakeCluster([20]))
    assert list(replay.read_range(OPTIONS, TOPIC, "@17", Id(1, 3, -1))) == []
    with pytest.raises(TransportError, match="may be gone"):
        list(replay.read_range(OPTIONS, TOPIC, EARLIEST, Id(1, 3, -1)))


class WithoutTopic(FakeCluster):
    """The topic of another broker was deleted."""

    def create_reader(self, topic: str, start: Any, **more: Any) -> FakeCluster:
        if topic == GONE:
            raise pulsar.exceptions.TopicNotFound
        return super().create_reader(topic, start, **more)


def test_a_deleted_topic_is_loss_and_the_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "open_client", lambda _: WithoutTopic([0, 1, 2, 3]))
    end = {GONE: "1:3:-1", **END}
    options = OPTIONS.model_copy(update={"fail_on_data_loss": False})
    found = replay.read_between(options, dict.fromkeys(end, EARLIEST), end)
    assert [batch["topic"][0].as_py() for batch in found] == [TOPIC]
    with pytest.raises(TransportError, match=r"may be gone .*was deleted"):
        list(replay.read_between(OPTIONS, dict.fromkeys(end, EARLIEST), end))
