"""Bound of a non-persistent topic's messages that wait for a micro-batch; drops are reported."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest

from quotaplane.pulsar import live_reader
from quotaplane.pulsar.live_reader import LiveBuffer, LiveReader
from tests.unit.pulsar.pulsar_cases import DISCONNECTED, LIVE, FakeCluster
from tests.unit.pulsar.spool_cases import row


class Pushing(FakeCluster):
    """A topic whose broker pushes messages; a read without any waits a little."""

    idle = False

    def read_next(self, timeout_ms: int) -> Any:
        if not self.script:
            self.idle = True
            time.sleep(0.001)
        return super().read_next(timeout_ms)


@pytest.fixture
def opened() -> Iterator[Any]:
    readers: list[LiveReader] = []

    def open_reader(cluster: Any) -> LiveReader:
        readers.append(LiveReader(cluster, LIVE, "1790000000000#0"))
        deadline = time.monotonic() + 10
        while readers[-1]._thread.is_alive() and not cluster.idle:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        return readers[-1]

    yield open_reader
    for reader in readers:
        reader.close()


def test_what_waits_is_bounded_in_number_and_bytes() -> None:
    buffer = LiveBuffer(most=3, most_bytes=10_000)
    for number in range(5):
        buffer.add(row(number))
    assert len(buffer) == 3
    assert buffer.take_dropped() == 2
    assert buffer.take_dropped() == 0
    # The newest stay: a report replaces the ones before it.
    assert [each.value for each in buffer.take(10, 10_000)] == [b"report %d" % n for n in (2, 3, 4)]
    for number in range(100):
        buffer.add(row(number, value=b"x" * 3000))
        assert sum(each.size_bytes for each in buffer._rows) <= 10_000
    assert buffer.take_dropped() == 97
    # One message may be larger than all that may wait.
    buffer.add(row(7, value=b"x" * 20_000))
    assert [each.message_id for each in buffer.take(10, 1)] == [row(7).message_id]
    assert len(buffer) == 0


def test_a_micro_batch_takes_what_fits(opened: Any) -> None:
    reader = opened(Pushing(range(5)))
    assert [each.value for each in reader.take(2, 100_000)] == [b"0", b"1"]
    assert len(reader.take(10, 600)) == 2
    assert reader.position == "1790000000000#4"
    (last,) = reader.take(10, 100_000)
    assert last.message_id == "1790000000000#5"
    assert reader.take(10, 100_000) == []


def test_what_came_live_before_an_error_is_not_lost(opened: Any) -> None:
    reader = opened(Pushing([0, 1, DISCONNECTED]))
    assert [each.value for each in reader.take(100, 100_000)] == [b"0", b"1"]
    assert reader.position == "1790000000000#2"
    with pytest.raises(DISCONNECTED):
        reader.take(100, 100_000)


def test_a_lost_connection_is_told_once_nothing_waits(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Pushing([0])
    reader = opened(cluster)
    monkeypatch.setattr(cluster, "is_connected", lambda: False)
    assert len(reader.take(100, 100_000)) == 1
    with pytest.raises(pulsar.exceptions.NotConnected):
        reader.take(100, 100_000)


def test_dropped_messages_are_told_and_not_counted_as_received(
    opened: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(live_reader, "LiveBuffer", lambda: LiveBuffer(most=3))
    reader = opened(Pushing(range(10)))
    assert [each.value for each in reader.take(100, 100_000)] == [b"7", b"8", b"9"]
    assert reader.position == "1790000000000#3"
    (line,) = caplog.messages
    assert line.startswith(f"topic '{LIVE}': 7 messages were dropped: at most ")
    assert reader.take(100, 100_000) == []
    assert len(caplog.messages) == 1


def test_a_closed_reader_leaves_no_thread(opened: Any) -> None:
    reader = opened(Pushing([]))
    assert reader._thread.is_alive()
    reader.close()
    assert not reader._thread.is_alive()


def test_a_bug_in_the_thread_ends_the_query(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(live_reader, "row_of", broken)
    reader = opened(Pushing([0]))
    reader._thread.join(10)
    with pytest.raises(ZeroDivisionError):
        reader.take(100, 100_000)
