"""Readers while a cluster fails amid their work: a fake of pulsar-client, no server."""

from __future__ import annotations

from typing import Any

import pulsar
import pytest

from quotaplane.pulsar import reader as reading
from quotaplane.pulsar.message import Row, batches
from quotaplane.pulsar.position import EARLIEST, Id
from quotaplane.pulsar.reader import TopicReader
from tests.unit.pulsar.pulsar_cases import (
    DISCONNECTED,
    OPTIONS,
    TOPIC,
    FakeCluster,
    FakeMessage,
    Mute,
)


def opened(cluster: Any, start: str = EARLIEST) -> TopicReader:
    return TopicReader(cluster, OPTIONS, TOPIC, start, lost)


def lost(topic: str, position: str) -> None:
    raise AssertionError(f"{topic}: lost after {position}")


def test_what_came_before_an_error_is_not_lost() -> None:
    reader = opened(FakeCluster([0, 1, 2, 3, 4, DISCONNECTED, DISCONNECTED, 5]))
    assert [row.value for row in reader.take(100, 100_000)] == [b"0", b"1", b"2", b"3", b"4"]
    assert reader.position == "1:4:-1"
    with pytest.raises(DISCONNECTED):
        reader.take(100, 100_000)
    assert [row.value for row in reader.take(100, 100_000)] == [b"5"]


def test_who_has_rows_does_not_wait_for_the_broker() -> None:
    reader = opened(Mute([0, 1]))
    assert len(reader.take(100, 100_000)) == 2


def test_dead_brokers_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(reading.time, "monotonic", lambda: now_s)
    readers = [opened(Mute([])) for _ in range(20)]
    for reader in readers:
        reader.ask()
    now_s += 5.0  # what the first one took
    for reader in readers:
        with pytest.raises(pulsar.Timeout):
            reader.take(100, 100_000)


def test_what_is_there_and_late_is_no_loss_where_it_must_come() -> None:
    reader = opened(FakeCluster([], is_there=True))
    with pytest.raises(pulsar.Timeout):
        reader.take(100, 1000, until=Id(1, 4, -1))


def test_a_message_that_never_comes_is_not_waited_for_each_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(reading.time, "monotonic", lambda: now_s)
    cluster = FakeCluster([], is_there=True)
    reader = opened(cluster)
    for _ in range(10):
        reader.ask()
        assert reader.take(100, 100_000) == []
    assert cluster.asked == 1
    cluster.script = [7]
    assert [row.value for row in reader.take(100, 100_000)] == [b"7"]
    now_s += 31.0
    assert reader.take(100, 100_000) == []
    assert cluster.asked == 2
    assert caplog.text.count("exists but is not delivered") == 1


class Odd(FakeMessage):
    """A message that other clients may send, with values that Spark does not have."""

    def partition_key(self) -> str:
        return b"\xff".decode()

    def properties(self) -> dict[str, str]:
        return {"a": b"\xff".decode()}

    def publish_timestamp(self) -> int:
        return 2**64 - 1


@pytest.mark.parametrize(
    "event_time_ms", [1_790_000_000_000_000_000, 2**64 - 1, 253_402_300_800_000]
)
def test_one_odd_message_does_not_stop_a_query(event_time_ms: int) -> None:
    message = Odd(0)
    message.event_timestamp = lambda: event_time_ms  # type: ignore[method-assign]
    cluster = FakeCluster([message])
    (row,) = opened(cluster).take(100, 100_000)
    assert (row.key, row.event_time_ms, row.properties, row.value) == (None, None, {}, b"0")
    (batch,) = batches([row])
    (found,) = batch.to_pylist()
    assert found["publish_time"].year == 9999


def test_keys_and_properties_count_too() -> None:
    row = Row("k" * 10, None, TOPIC, "1:2:3", 1, None, {"name": "value"})
    assert row.size_bytes == row._replace(key=None, properties={}).size_bytes + 10 + 9
    reader = opened(FakeCluster(range(100)))
    assert 1 < len(reader.take(100, 3000)) <= 10
