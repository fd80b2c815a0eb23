"""What our readers do when a cluster fails amid their work: a fake of pulsar-client, no server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pulsar
import pytest

from quotaplane.pulsar import reader as reading
from quotaplane.pulsar.options import parse_options
from quotaplane.pulsar.position import EARLIEST, Id
from quotaplane.pulsar.reader import LiveReader, TopicReader

OPTIONS = parse_options({"service_url": "pulsar://host:6650", "topic": "t"})
TOPIC = "persistent://public/default/t"
LIVE = "non-persistent://public/default/t"
DISCONNECTED = pulsar.exceptions.NotConnected


class FakeMessage:
    """A message that was published at ``entry`` milliseconds."""

    def __init__(self, entry: int) -> None:
        self._entry = entry

    def message_id(self) -> Any:
        return self

    def ledger_id(self) -> int:
        return 1

    def entry_id(self) -> int:
        return self._entry

    def batch_index(self) -> int:
        return -1

    def partition_key(self) -> str:
        return "k"

    def has_null_value(self) -> bool:
        return False

    def data(self) -> bytes:
        return b"%d" % self._entry

    def publish_timestamp(self) -> int:
        return self._entry

    def event_timestamp(self) -> int:
        return 0

    def properties(self) -> dict[str, str]:
        return {}


class FakeCluster:
    """One topic partition: ``script`` is what reads give in turn, entries, errors or nothing."""

    def __init__(self, script: Sequence[Any], is_there: bool = False) -> None:
        self.script = list(script)
        self.is_there = is_there
        self.asked = 0
        self.opened: list[Any] = []
        self._reader = self

    def create_reader(self, topic: str, start: Any, **_: Any) -> FakeCluster:
        self.opened.append(start)
        return self

    def seek(self, since_ms: int) -> None: ...

    def close(self) -> None: ...

    def is_connected(self) -> bool:
        return True

    def has_message_available(self) -> bool:
        return self.is_there

    def has_message_available_async(self, keep: Callable[[Any, bool], None]) -> None:
        self.asked += 1
        keep(pulsar.Result.Ok, self.is_there)

    def read_next(self, timeout_ms: int) -> FakeMessage:
        step = self.script.pop(0) if self.script else pulsar.Timeout
        if isinstance(step, int):
            return FakeMessage(step)
        raise step


def opened(cluster: Any, start: str = EARLIEST) -> TopicReader:
    return TopicReader(cluster, OPTIONS, TOPIC, start, lost)


def lost(topic: str, position: str) -> None:
    raise AssertionError(f"{topic}: lost after {position}")


def test_what_came_before_an_error_is_not_lost() -> None:
    reader = opened(FakeCluster([0, 1, 2, 3, 4, DISCONNECTED, DISCONNECTED, 5]))
    assert [row.value for row in reader.take(100, 1000)] == [b"0", b"1", b"2", b"3", b"4"]
    assert reader.position == "1:4:-1"
    with pytest.raises(DISCONNECTED):
        reader.take(100, 1000)
    assert [row.value for row in reader.take(100, 1000)] == [b"5"]


def test_what_came_live_before_an_error_is_not_lost() -> None:
    cluster: Any = FakeCluster([0, 1, DISCONNECTED, DISCONNECTED])
    reader = LiveReader(cluster, LIVE, "1790000000000#0")
    assert [row.value for row in reader.take(100, 1000)] == [b"0", b"1"]
    assert reader.position == "1790000000000#2"
    with pytest.raises(DISCONNECTED):
        reader.take(100, 1000)


def test_who_has_rows_does_not_wait_for_the_broker() -> None:
    reader = opened(Mute([0, 1]))
    assert len(reader.take(100, 1000)) == 2


def test_dead_brokers_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(reading.time, "monotonic", lambda: now_s)
    readers = [opened(Mute([])) for _ in range(20)]
    for reader in readers:
        reader.ask()
    now_s += 5.0  # what the first one took
    for reader in readers:
        with pytest.raises(pulsar.Timeout):
            reader.take(100, 1000)


class Mute(FakeCluster):
    """Its broker never answers."""

    def has_message_available_async(self, keep: Callable[[Any, bool], None]) -> None: ...


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
        assert reader.take(100, 1000) == []
    assert cluster.asked == 1
    cluster.script = [7]
    assert [row.value for row in reader.take(100, 1000)] == [b"7"]
    now_s += 31.0
    assert reader.take(100, 1000) == []
    assert cluster.asked == 2
    assert caplog.text.count("is there and is not delivered") == 1
