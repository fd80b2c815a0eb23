"""Messages of non-persistent topics on the driver's disk, until their batch is committed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quotaplane.errors import ConfigError, TransportError
from quotaplane.pulsar import source
from quotaplane.pulsar.message import SCHEMA
from quotaplane.pulsar.options import parse_options
from quotaplane.pulsar.position import Offset
from quotaplane.pulsar.source import PulsarStreamReader
from quotaplane.pulsar.spool import Spool
from quotaplane.transport.pulsar import PulsarTopics
from tests.unit.pulsar.pulsar_cases import LIVE, TOPIC, URL, FakeSession
from tests.unit.pulsar.spool_cases import BEGAN_MS, found, live_values, offset, row, rows, values
from tests.unit.pulsar.test_pulsar_source import pulsar_settings


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    before = os.umask(0)  # the modes are not the environment's
    yield tmp_path / "checkpoint" / "spool"
    os.umask(before)


def test_a_batch_that_runs_again_reads_the_same_live_messages(folder: Path) -> None:
    Spool(str(folder)).keep(rows(1, 5), offset(0), offset(5))
    again = Spool(str(folder)).read(offset(0), offset(5))
    assert [batch.schema.names for batch in again] == [SCHEMA.names]
    (batch,) = again
    assert batch["value"].to_pylist() == live_values(1, 5)
    assert batch.to_pylist()[0]["properties"] == [("a", "b")]
    assert set(batch["topic"].to_pylist()) == {LIVE}


def test_nothing_is_stored_or_missed_where_nothing_was_received(folder: Path) -> None:
    Spool(str(folder)).keep([row(1, TOPIC)], offset(0), {**offset(0), TOPIC: "1:9:-1"})
    assert not folder.exists()
    assert values(Spool(str(folder)), offset(7), {**offset(7), TOPIC: "1:9:-1"}) == []


def test_the_first_batch_has_another_start_when_it_runs_again(folder: Path) -> None:
    Spool(str(folder)).keep(rows(1, 3), offset(0), offset(3))
    later = offset(0, since_ms=BEGAN_MS + 60_000)
    assert values(Spool(str(folder)), later, offset(3)) == live_values(1, 3)
    new_topic: Offset = {TOPIC: "1:0:-1"}
    assert values(Spool(str(folder)), new_topic, offset(3)) == live_values(1, 3)


def test_two_batches_are_kept_and_no_more(folder: Path) -> None:
    spool = Spool(str(folder))
    for last in range(3, 30, 3):
        spool.keep(rows(last - 2, last), offset(last - 3), offset(last))
        assert len(list(folder.iterdir())) <= 2
    # The one before is still needed if a power loss takes Spark's note of the newest.
    assert values(spool, offset(24), offset(27)) == live_values(25, 27)
    assert values(spool, offset(21), offset(24)) == live_values(22, 24)
    assert "can't be read: No such file" in found(folder, offset(18), offset(21))


def test_batches_that_spark_never_knew_leave_no_files(folder: Path) -> None:
    """A process that is killed before Spark logs its batch, again and again."""
    Spool(str(folder)).keep(rows(1, 3), offset(0), offset(3))
    for more in range(1, 9):
        Spool(str(folder)).keep(rows(4, 3 + more), offset(3), offset(3 + more))
        (folder / f"{more:032x}.new").write_bytes(b"torn")
    (folder / "of somebody else").touch()
    Spool(str(folder)).keep(rows(4, 5), offset(3), offset(5))
    assert len(list(folder.glob("*.spool"))) == 2
    assert list(folder.glob("*.new")) == []
    assert (folder / "of somebody else").exists()
    assert values(Spool(str(folder)), offset(3), offset(5)) == live_values(4, 5)


def test_a_batch_planned_again_replaces_the_one_that_never_ran(folder: Path) -> None:
    Spool(str(folder)).keep([row(n, value=b"old") for n in (1, 2)], offset(0), offset(2))
    Spool(str(folder)).keep(rows(1, 2), offset(0), offset(2))
    assert values(Spool(str(folder)), offset(0), offset(2)) == live_values(1, 2)


@pytest.mark.parametrize("end", [5, 6], ids=["the same end", "another end"])
def test_a_process_that_was_replaced_leaves_the_files_of_the_one_that_goes_on(
    folder: Path, end: int
) -> None:
    """It was frozen between two batches, say: it learns only later that it does not lead."""
    Spool(str(folder)).keep(rows(1, 3), offset(0), offset(3))
    replaced, leading = Spool(str(folder)), Spool(str(folder))
    leading.keep(rows(4, 5), offset(3), offset(5))
    with pytest.raises(TransportError, match="another process stores reports there"):
        replaced.keep([row(n, value=b"other") for n in range(4, end + 1)], offset(3), offset(end))
    assert values(Spool(str(folder)), offset(3), offset(5)) == live_values(4, 5)
    leading.keep(rows(6, 7), offset(5), offset(7))
    assert values(Spool(str(folder)), offset(5), offset(7)) == live_values(6, 7)


def test_only_the_user_may_read_reports(folder: Path) -> None:
    folder.parent.mkdir()
    Spool(str(folder)).keep(rows(1, 3), offset(0), offset(3))
    (file,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_never_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    Spool(str(folder)).keep(rows(1, 3), offset(0), offset(3))
    (file,) = folder.iterdir()
    content = bytearray(file.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        file.write_bytes(content[:at])
    else:
        content[at] ^= data.draw(st.integers(1, 255))
        file.write_bytes(content)
    with pytest.raises(TransportError, match="is damaged: its checksum does not match") as caught:
        Spool(str(folder)).read(offset(0), offset(3))
    assert "\n" not in str(caught.value)
    assert "--skip-batch" in str(caught.value)


def test_a_file_of_another_batch_is_refused(folder: Path) -> None:
    spool = Spool(str(folder))
    spool.keep(rows(1, 3), offset(0), offset(3))
    (first,) = folder.iterdir()
    content = first.read_bytes()
    spool.keep(rows(4, 6), offset(3), offset(6))
    (second,) = set(folder.iterdir()) - {first}
    second.write_bytes(content)
    assert "is damaged" in found(folder, offset(3), offset(6))
    # All messages of the range are needed, not only those that are there.
    spool.keep(rows(5, 6), offset(3), offset(6))
    assert "has 2 messages, not 3" in found(folder, offset(3), offset(6))


FULL = Mock(side_effect=OSError(28, "No space left on device"))


def test_a_full_disk_stops_the_query_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Spool(str(folder)).keep(rows(1, 3), offset(0), offset(3))
    monkeypatch.setattr(os, "fsync", FULL)
    with pytest.raises(TransportError) as caught:
        Spool(str(folder)).keep(rows(4, 6), offset(3), offset(6))
    said = str(caught.value)
    assert f"can't be stored in {folder}: No space" in said
    assert "make room" in said
    assert "\n" not in said
    assert values(Spool(str(folder)), offset(0), offset(3)) == live_values(1, 3)


class Received:
    """In place of the readers: each read returns the next messages that came."""

    def __init__(self, *numbers: int) -> None:
        self._ends = list(numbers)

    def begin(self) -> Offset:
        return offset(0)

    def read(self, start: Offset) -> tuple[list[Any], Offset]:
        first = int(start[LIVE].partition("#")[2]) + 1
        last = self._ends.pop(0)
        return rows(first, last), offset(last)


def test_spark_knows_no_batch_that_is_not_on_the_disk(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**URL, "topics": f"{LIVE},{TOPIC}", "spool_folder": str(folder)}
    monkeypatch.setattr(source, "TopicPool", lambda _: Received(4, 9))
    reader = PulsarStreamReader(parse_options(options))
    start = reader.initialOffset()
    _, end = reader.read(start)
    # Killed: another process has nothing but the offsets. (The persistent topic is empty here.)
    other = PulsarStreamReader(parse_options(options))
    live_only = [{LIVE: each[LIVE]} for each in (start, end)]
    (batch,) = other.readBetweenOffsets(*live_only)
    assert batch["value"].to_pylist() == live_values(1, 4)
    monkeypatch.setattr(os, "fsync", FULL)
    with pytest.raises(TransportError, match="No space left"):
        reader.read(end)


def test_without_a_spool_a_batch_that_runs_again_lacks_them() -> None:
    reader = PulsarStreamReader(parse_options({**URL, "topics": LIVE}))
    assert list(reader.readBetweenOffsets({LIVE: "1#0"}, {LIVE: "1#4"})) == []


@pytest.mark.parametrize(
    ("master", "accepted"),
    [
        *((name, False) for name in ("spark://host:7077", "yarn", "k8s://https://host")),
        *((name, True) for name in ("local[*]", "local", "local-cluster[2,1,1024]")),
    ],
)
def test_executors_must_be_on_this_machine(master: str, accepted: bool) -> None:
    transport: Any = pulsar_settings().transport
    session: Any = FakeSession(master=master)
    PulsarTopics(transport).read_reports(session)
    spooled = PulsarTopics(transport, "checkpoint/spool")
    if accepted:
        spooled.read_reports(session)
        return
    with pytest.raises(ConfigError, match="executors on other machines") as caught:
        spooled.read_reports(session)
    assert f"the master is {master}: " in str(caught.value)
