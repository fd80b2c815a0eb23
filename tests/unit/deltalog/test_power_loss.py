"""Acknowledged writes outlast a power loss; other writes take nothing with them."""

from __future__ import annotations

import errno
import os
import shutil
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from deltalake import DeltaTable

from quotaplane.cli.main import main
from quotaplane.deltalog import durable
from quotaplane.deltalog.durable import Synced
from quotaplane.deltalog.faults import find_fault
from quotaplane.errors import HistoryError, TransportError
from quotaplane.files import fsync
from quotaplane.history import commits as history_groups
from quotaplane.history import writer as history_writer
from quotaplane.history.maintenance import maintain
from quotaplane.history.tables import TABLES
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.registry.table import delete_groups, list_groups
from quotaplane.settings import DeltaTransport, History
from quotaplane.transport import delta, delta_topic, open_broker_link, open_transport
from quotaplane.transport.base import Message
from tests.histories import make_history
from tests.job import write_conf
from tests.unit.deltalog.broken_cases import put
from tests.unit.deltalog.power_cases import Disk, PowerLossError, Unsynced
from tests.unit.history.history_cases import NOON_MS, limits, read, rounds, usage

pytestmark = pytest.mark.slow

ROUND = ("usage", "limits", "rounds")
NOON = datetime.fromtimestamp(NOON_MS / 1000, tz=timezone.utc)


class Place(NamedTuple):
    """Where a test's tables are, all in one folder."""

    root: Path

    @property
    def history(self) -> History:
        return History(path=str(self.root / "history"))

    @property
    def transport(self) -> DeltaTransport:
        return DeltaTransport(kind="delta", path=str(self.root / "topics"))


def quotas(place: Place) -> Any:
    return list_groups(place.history)["publish_messages_per_s"].to_pylist()


def write_round(place: Place, seq: int) -> None:
    with HistoryWriter(place.history, "checkpoint-1") as writer:
        tables = {
            "usage": usage([("b", "g", 1.0)]),
            "limits": limits([("b", "g", 1.0)]),
            "rounds": rounds(),
        }
        writer.append_round(Round(1, seq, NOON_MS), tables)


def seqs(place: Place) -> Any:
    """Rounds in the history; a round that is in ``rounds`` must be in the others."""
    found = {name: sorted(read(place.history, name)["seq"].to_pylist()) for name in ROUND}
    assert set(found["rounds"]) <= set(found["usage"]) & set(found["limits"])
    return found["rounds"]


def send(place: Place, number: int) -> None:
    open_broker_link(place.transport).send_reports([("b", b"%d" % number, number)])


def sent(place: Place) -> Any:
    table = DeltaTable(place.root / "topics" / "reports").to_pyarrow_table()
    return sorted(table["value"].to_pylist())


def publish(place: Place, number: int) -> None:
    open_transport(place.transport).publish([Message("b", b"%d" % number)])


def published(place: Place) -> Any:
    return open_broker_link(place.transport, limits_from="earliest").poll_limits()


def begun(place: Place) -> None:
    make_history(place.history)
    put(place.history, 1.0)
    write_round(place, 0)
    send(place, 0)
    publish(place, 0)


WRITES: dict[str, tuple[Callable[[Place], None], Callable[[Place], Any]]] = {
    "a put": (lambda place: put(place.history, 2.0), quotas),
    "a delete": (lambda place: delete_groups(place.history, ["g"], "ann"), quotas),
    "a round": (lambda place: write_round(place, 1), seqs),
    "reports": (lambda place: send(place, 1), sent),
    "limits": (lambda place: publish(place, 1), published),
    "maintenance": (lambda place: maintain_all(place), seqs),
}


def maintain_all(place: Place) -> None:
    maintain(place.history, NOON)
    delta.maintain(place.transport, keep_s=10.0 * NOON_MS)


@pytest.fixture(scope="module")
def beginning(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("beginning")
    begun(Place(root))
    return root


@pytest.fixture
def place(beginning: Path, tmp_path: Path) -> Place:
    return Place(Path(shutil.copytree(beginning, tmp_path / "disk")))


@pytest.mark.parametrize("unsynced", ["empty", "gone"])
@pytest.mark.parametrize("write", WRITES)
def test_what_is_acknowledged_is_there_after_a_power_loss(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str, unsynced: Unsynced
) -> None:
    disk = Disk(place.root, monkeypatch)
    do, found = WRITES[write]
    do(place)
    survivor = Place(disk.lose_power(tmp_path / "survivor", unsynced))
    for table in [*(survivor.root / "history").iterdir(), *(survivor.root / "topics").iterdir()]:
        if table.is_dir():
            assert find_fault(str(table)) is None
    assert found(survivor) == found(place)


def test_a_power_loss_within_a_write_takes_nothing_of_before(
    beginning: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage, if any, is reported; mended, all is as before the write, or as after it.

    ``python -m tests.faults power`` tries other writes.
    """
    do, found = WRITES["limits"]
    before = found(Place(beginning))
    syncs = 0
    told = 0
    while True:
        place = Place(Path(shutil.copytree(beginning, tmp_path / f"disk{syncs}")))
        with monkeypatch.context() as patch:
            disk = Disk(place.root, patch)
            disk.fails_after = syncs
            try:
                do(place)
            except PowerLossError:
                pass
            else:
                break
        for unsynced in ("empty", "gone"):
            survivor = Place(disk.lose_power(tmp_path / "survivor", unsynced))  # type: ignore[arg-type]
            conf = write_conf(survivor.root, survivor.transport.model_dump())
            code = main(["doctor", "--mend", "--conf", str(conf)])
            assert code in (0, 11)
            told += code == 11
            assert found(survivor) in (before, found(place)), (syncs, unsynced)
        syncs += 1
    assert syncs >= 4
    assert told > 0


def test_a_new_history_is_on_the_disk_with_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk").mkdir()
    disk = Disk(tmp_path / "disk", monkeypatch)
    place = Place(tmp_path / "disk" / "some" / "where")
    words = ["--publish-messages-per-s", "5", "--history", place.history.path]
    assert main(["groups", "put", "g", "--init", *words]) == 0
    disk.lose_power(tmp_path / "survivor", "gone")
    survivor = Place(tmp_path / "survivor" / "some" / "where")
    assert quotas(survivor) == [5.0]
    assert {folder.name for folder in Path(survivor.history.path).iterdir() if folder.is_dir()} == {
        *TABLES
    }


def test_another_writers_commit_before_ours_is_synced_too(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed before it could: without it, ours would be lost with it."""
    disk = Disk(place.root, monkeypatch)
    disk.ends_before_its_sync(lambda: put(place.history, 2.0))
    put(place.history, 3.0, "h", by="bob")
    assert sorted(quotas(Place(disk.lose_power(tmp_path / "survivor", "empty")))) == [2.0, 3.0]


def test_a_checkpoint_that_another_made_of_our_commit_does_not_stand_for_its_data(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"{place.history.path}/rounds"
    table = DeltaTable(uri)
    table.create_checkpoint()
    disk = Disk(place.root, monkeypatch)
    Synced(uri).upto(table.version(), before=table.version() - 1)
    assert f"{table.version():020d}.json" in {path.name for path in disk.order}
    assert any(path.name.startswith("part-") for path in disk.order)


def test_a_file_system_that_does_not_sync_folders_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()

    def refuse(_: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    fsync(tmp_path)
    with pytest.raises(OSError, match="Invalid argument"):
        fsync(tmp_path / "file")


def test_a_put_that_changes_nothing_vouches_for_what_is_there(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(place.root, monkeypatch)
    disk.ends_before_its_sync(lambda: put(place.history, 2.0))
    put(place.history, 2.0)
    assert quotas(Place(disk.lose_power(tmp_path / "survivor", "empty"))) == [2.0]


def test_a_replayed_round_vouches_for_what_was_written_before(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(place.root, monkeypatch)
    with HistoryWriter(place.history, "checkpoint-1") as writer:
        disk.ends_before_its_sync(lambda: writer.append("rounds", rounds(), Round(1, 1, NOON_MS)))
    write_round(place, 1)
    assert seqs(Place(disk.lose_power(tmp_path / "survivor", "empty"))) == [0, 1]


@pytest.mark.parametrize("write", ["a put", "a delete", "a round", "reports", "limits"])
def test_what_the_disk_does_not_take_is_not_acknowledged(
    place: Place, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    disk = Disk(place.root, monkeypatch)
    disk.broken = True
    kind = HistoryError if write in ("a put", "a delete", "a round") else TransportError
    with pytest.raises(kind, match=r"is committed but the disk did not keep it .*Input/output"):
        WRITES[write][0](place)


def test_a_disk_that_failed_once_is_not_believed_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked again, Linux says that all is well, having dropped what it could not write."""
    disk = Disk(place.root, monkeypatch)
    link = open_broker_link(place.transport)
    disk.broken = True
    with pytest.raises(TransportError, match="did not keep it"):
        link.send_reports([("b", b"1", 1)])
    disk.broken = False
    with pytest.raises(TransportError, match="did not keep it"):
        link.send_reports([("b", b"2", 2)])


@pytest.mark.parametrize("write", ["a round", "a put", "reports"])
def test_commits_are_deleted_only_behind_a_checkpoint_that_is_on_the_disk(
    place: Place, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    """Until then they are all there is of the table."""
    order: dict[Path, list[str]] = defaultdict(list)  # by log
    cleanup, fsync = DeltaTable.cleanup_metadata, Disk._synced

    def noted_cleanup(self: DeltaTable) -> None:
        order[Path(self.table_uri.removeprefix("file://"), "_delta_log")].append("cleanup")
        cleanup(self)

    def noted_fsync(self: Disk, path: Path) -> None:
        fsync(self, path)
        log = path if path.name == "_delta_log" else path.parent
        order[log].append("checkpoint" if "checkpoint.parquet" in path.name else path.name)

    monkeypatch.setattr(DeltaTable, "cleanup_metadata", noted_cleanup)
    monkeypatch.setattr(Disk, "_synced", noted_fsync)
    monkeypatch.setattr(history_writer, "CHECKPOINT_INTERVAL", 2)
    monkeypatch.setattr(history_groups, "CHECKPOINT_INTERVAL", 2)
    monkeypatch.setattr(delta_topic, "COMPACT_EVERY", 1)
    Disk(place.root, monkeypatch)
    WRITES[write][0](place)
    steps = [steps for steps in order.values() if "cleanup" in steps]
    assert len(steps) == (3 if write == "a round" else 1)
    for one in steps:
        at = one.index("cleanup")
        assert one[at - 3 : at] == ["checkpoint", "_last_checkpoint", "_delta_log"]


def test_a_checkpoint_is_written_when_its_commit_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nothing could be added to the table after a power loss; found by its states."""
    place = Place(tmp_path)
    make_history(place.history)
    table = DeltaTable(place.root / "history" / "usage")
    done: list[str] = []
    write, sync = DeltaTable.create_checkpoint, durable.fsync

    def create_checkpoint(opened: DeltaTable) -> None:
        done.append("checkpoint")
        write(opened)

    def fsync_(path: Path) -> None:
        done.append(path.name)
        sync(path)

    monkeypatch.setattr(DeltaTable, "create_checkpoint", create_checkpoint)
    monkeypatch.setattr(durable, "fsync", fsync_)
    durable.checkpoint(table, str(place.root / "history" / "usage"))
    assert done[:3] == [f"{table.version():020}.json", "_delta_log", "checkpoint"]
