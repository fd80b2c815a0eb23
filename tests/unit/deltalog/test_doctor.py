"""`quotaplane doctor`: finds what is broken, says what mending loses, deletes nothing."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.cli.main import main
from quotaplane.deltalog import diagnose as diagnosing
from quotaplane.deltalog.checksums import CHECKSUMS
from quotaplane.deltalog.diagnose import diagnose
from quotaplane.deltalog.faults import find_fault
from quotaplane.deltalog.log import list_log, parse_commit
from quotaplane.deltalog.mend import mend
from quotaplane.errors import HistoryError
from quotaplane.history.store import open_table
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import RATE_COLUMNS, Round
from quotaplane.registry.table import delete_groups, list_groups, put_groups
from quotaplane.settings import DeltaTransport, History
from quotaplane.transport import open_broker_link, open_transport
from quotaplane.transport.base import Message
from tests.examples import examples
from tests.histories import make_history
from tests.unit.deltalog.broken_cases import BREAKS, LAST, added, commit, cut, expected, harmless
from tests.unit.deltalog.power_cases import Disk, PowerLossError
from tests.unit.history.history_cases import NOON_MS, read, rounds

QUOTA_AFTER = {
    "an earlier commit is empty": 20.0,
    "an earlier commit is missing": 20.0,
    "the checkpoint is empty": 50.0,
    "the checkpoint is cut off": 50.0,
    "the checkpoint is missing": 50.0,
    "the first commit is empty": None,  # nothing whole is left
}
"""Quotas were 10, 20, ... 50; in all other cases the last of these is lost."""


class Doctor:
    """Runs the command on a folder with a history, topics and a checkpoint."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.history = History(path=str(root / "history"))
        self.transport = DeltaTransport(kind="delta", path=str(root / "topics"))
        self._capsys = capsys
        self._conf = root / "conf.yaml"
        self._conf.write_text(
            f"transport: {{kind: delta, path: {root / 'topics'}}}\n"
            f"history: {{path: {root / 'history'}}}\n"
            f"checkpoint: {root / 'checkpoint'}\n"
        )

    def __call__(self, *words: str) -> tuple[int, str]:
        code = main(["doctor", "--conf", str(self._conf), "--table", *words])
        out, err = self._capsys.readouterr()
        return code, out + err

    def contents(self) -> Counter[bytes]:
        """What all files hold, wherever they are, but for locks and checksums."""
        files = [path for path in self.root.rglob("*") if path.is_file() and path.suffix != ".lock"]
        files = [file for file in files if file.name != CHECKSUMS]
        return Counter(file.read_bytes() for file in files)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("begun")
    history = History(path=str(root / "history"))
    for number in range(1, LAST + 1):
        put_groups(history, ["g"], np.full((1, len(RATE_COLUMNS)), 10.0 * number), "ann")
    with HistoryWriter(history, "x") as writer:
        for seq in range(LAST):
            writer.append("rounds", rounds(), Round(1, seq, NOON_MS))
    transport = DeltaTransport(kind="delta", path=str(root / "topics"))
    link, topics = open_broker_link(transport), open_transport(transport)
    for number in range(LAST):
        link.send_reports([("b", b"%d" % number, 1)])
        topics.publish([Message("b", b"%d" % number)])
    return root


@pytest.fixture
def doctor(begun: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(Path(shutil.copytree(begun, tmp_path / "root")), capsys)


def test_what_is_whole_is_exit_code_0(doctor: Doctor) -> None:
    before = doctor.contents()
    for words in ((), ("--mend",)):
        code, said_ = doctor(*words)
        assert code == 0
        assert "broken" not in said_
        for name in ("resource_groups", "rounds", "topic reports", "topic limits_topic"):
            assert f"\n{name}" in said_
    harmless(doctor.root / "history" / "resource_groups")
    assert doctor()[0] == 0
    assert not before - doctor.contents()


@pytest.mark.parametrize("kind", BREAKS)
def test_each_break_is_found_and_mended(doctor: Doctor, kind: str) -> None:
    break_it, problem = BREAKS[kind]
    table = doctor.root / "history" / "resource_groups"
    break_it(table)
    before = doctor.contents()
    code, told = doctor()
    assert code == 10
    assert doctor.contents() == before
    assert expected(problem).rpartition(" ")[2] in told

    quota = QUOTA_AFTER.get(kind, 40.0)
    code, told = doctor("--mend")
    assert not before - doctor.contents()
    if quota is None:
        assert code == 10
        assert "can't be mended: restore the table from a copy" in told
        return
    assert code == 11
    assert (
        f"mended resource_groups; the broken files are in {doctor.root / 'history'}/doctor-" in told
    )
    assert doctor()[0] == 0
    assert find_fault(str(table)) is None
    assert list_groups(doctor.history)["publish_messages_per_s"].to_pylist() == [quota]
    # Versions are not used again: a stream that had read the last one sees what comes now.
    assert DeltaTable(table).version() == LAST
    put_groups(doctor.history, ["g"], np.full((1, len(RATE_COLUMNS)), 60.0), "bob")
    assert DeltaTable(table).version() == LAST + 1


def test_it_says_whose_changes_would_be_lost(doctor: Doctor) -> None:
    cut(commit(doctor.root / "history" / "resource_groups", 3))
    code, told = doctor()
    assert code == 10
    assert "commit 3, which can't be read; commit 4 by ann at 20" in told
    assert "; commit 5 by ann at 20" in told


def test_a_lost_file_of_a_table_that_grows_is_taken_out_and_the_rest_stays(doctor: Doctor) -> None:
    table = doctor.root / "history" / "rounds"
    cut(added(table, 3))
    code, told = doctor("--mend")
    assert code == 11
    assert "its 1 rows" in told
    assert sorted(read(doctor.history, "rounds")["seq"].to_pylist()) == [0, 1, 3, 4]


def test_a_lost_file_of_quotas_gives_the_quota_of_before_and_not_none(doctor: Doctor) -> None:
    """Taken out, the group would be gone, and its brokers unlimited."""
    put_groups(doctor.history, ["h"], np.full((1, len(RATE_COLUMNS)), 1.0), "bob")
    table = doctor.root / "history" / "resource_groups"
    assert not parse_commit(commit(table, LAST + 1).read_bytes()).removed
    cut(added(table, LAST))
    code, told = doctor("--mend")
    assert code == 11
    assert "commit 5 by ann at 20" in told
    assert "; commit 6 by bob at 20" in told
    left = list_groups(doctor.history)
    assert left["group"].to_pylist() == ["g"]
    assert left["publish_messages_per_s"].to_pylist() == [40.0]


def test_a_round_whose_data_was_lost_at_the_end_is_written_again_by_its_replay(
    doctor: Doctor,
) -> None:
    """It was not acknowledged, so Spark runs it again: its commit must not say that it is there."""
    cut(added(doctor.root / "history" / "rounds", LAST))
    assert doctor("--mend")[0] == 11
    assert sorted(read(doctor.history, "rounds")["seq"].to_pylist()) == [0, 1, 2, 3]
    with HistoryWriter(doctor.history, "x") as writer:
        assert writer.append("rounds", rounds(), Round(1, LAST - 1, NOON_MS)) is True


def test_topics_are_mended_and_their_readers_go_on(doctor: Doctor) -> None:
    listener = open_broker_link(doctor.transport)
    for topic in ("reports", "limits_topic"):
        cut(commit(doctor.root / "topics" / topic))
    code, told = doctor("--mend")
    assert code == 11
    assert "mended topic reports" in told
    open_transport(doctor.transport).publish([Message("b", b"new")])
    assert [message.value for message in listener.poll_limits().messages] == [b"new"]
    open_broker_link(doctor.transport).send_reports([("b", b"new", 1)])
    reports = DeltaTable(doctor.root / "topics" / "reports").to_pyarrow_table()
    assert sorted(reports["value"].to_pylist()) == [b"0", b"1", b"2", b"3", b"new"]


def test_a_table_whose_creation_was_cut_off_is_made_anew(doctor: Doctor) -> None:
    table = doctor.root / "history" / "usage"
    cut(commit(table, 0))
    (table / "date=2026-03-01").mkdir()
    (table / "date=2026-03-01" / "part-0.parquet").write_bytes(b"of a writer that was killed")
    assert doctor("--mend")[0] == 10  # it is missing now, which the next command mends
    make_history(doctor.history)
    assert doctor()[0] == 0


def test_lost_change_data_of_long_ago_is_told_and_stays(doctor: Doctor) -> None:
    table = doctor.root / "history" / "resource_groups"
    change_data = parse_commit(commit(table, 2).read_bytes()).change_data[0]
    (table / change_data.path).unlink()
    code, told = doctor("--mend")
    assert code == 10
    assert "the change feed can't be read past version 2" in told
    assert list_groups(doctor.history)["publish_messages_per_s"].to_pylist() == [50.0]


def test_change_data_that_a_vacuum_deleted_is_no_fault(doctor: Doctor) -> None:
    """As Spark's VACUUM does a week after the newest commit."""
    table = doctor.root / "history" / "resource_groups"
    assert main(["groups", "delete", "g", "--history", str(table.parent)]) == 0
    DeltaTable(table).create_checkpoint()
    [change_data] = parse_commit(commit(table, LAST + 1).read_bytes()).change_data
    (table / change_data.path).unlink()
    assert find_fault(str(table)) is None
    assert doctor()[0] == 0


def test_it_does_not_mend_beside_a_running_job(doctor: Doctor) -> None:
    table = doctor.root / "history" / "resource_groups"
    with HistoryWriter(doctor.history, "x"):
        cut(commit(table))
        assert doctor()[0] == 10
        code, told = doctor("--mend")
        assert code == 4
        assert "something is writing to the history at" in told
    assert doctor("--mend")[0] == 11


def test_it_does_not_mend_a_topic_that_is_being_written(doctor: Doctor) -> None:
    cut(commit(doctor.root / "topics" / "reports"))
    with (doctor.root / "topics" / ".reports.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, told = doctor("--mend")
        assert code == 3
        assert "topics/reports: something is writing to it" in told
    assert doctor("--mend")[0] == 11


def test_writers_refuse_while_it_mends(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = []

    def try_to_write(*_: object) -> None:
        for write in (
            lambda: delete_groups(doctor.history, ["g"], "ann"),
            lambda: HistoryWriter(doctor.history, "x"),
        ):
            with pytest.raises(HistoryError, match="`quotaplane doctor --mend` is running"):
                write()
            refused.append(True)

    monkeypatch.setattr("quotaplane.cli.doctor.mend", try_to_write)
    cut(commit(doctor.root / "history" / "rounds"))
    doctor("--mend")
    assert len(refused) == 2


def test_without_a_history_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--history", str(tmp_path / "nowhere")]) == 2
    assert f"there is no history at {tmp_path}/nowhere" in capsys.readouterr().err


def test_missing_quotas_beside_other_tables_are_told(doctor: Doctor) -> None:
    shutil.rmtree(doctor.root / "history" / "resource_groups")
    for words in ((), ("--mend",)):
        code, told = doctor(*words)
        assert code == 10
        assert "the job would create it without rows" in told


def test_an_object_store_is_not_looked_into(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--history", "s3://bucket/history"]) == 0
    out, err = capsys.readouterr()
    assert "not checked" in err
    assert json.loads(out) == {"tables": [], "problems": [], "doubts": []}


def test_a_table_of_another_version_is_told(doctor: Doctor) -> None:
    table = DeltaTable(doctor.root / "history" / "rounds")
    table.alter.add_columns([_field("height")])
    code, told = doctor()
    assert code == 10
    assert "column height is not one that this version writes" in told


def _field(name: str) -> object:
    from deltalake.schema import Field, PrimitiveType

    return Field(name, PrimitiveType("double"), True)


def _checkpoint(root: Path, version: int = LAST) -> Path:
    folder = root / "checkpoint"
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    (folder / "quotaplane.json").write_text('{"id": "x"}')
    (folder / "metadata").write_text('{"id": "y"}')
    identity = DeltaTable(root / "topics" / "reports").metadata().id
    source = json.dumps({"reservoirId": identity, "reservoirVersion": version, "index": -1})
    for number in range(3):
        (folder / "offsets" / f"{number}").write_text(f"v1\n{{}}\n{source}\n-")
        (folder / "commits" / f"{number}").write_text("v1\n{}")
        (folder / "commits" / f".{number}.crc").touch()
    return folder


@pytest.mark.parametrize(
    ("break_it", "problem"),
    [
        (lambda folder: cut(folder / "quotaplane.json"), "quotaplane.json"),
        (lambda folder: (folder / "quotaplane.json").unlink(), "quotaplane.json"),
        (lambda folder: cut(folder / "metadata"), "metadata"),
        (lambda folder: cut(folder / "offsets" / "2"), "offsets/2"),
        (lambda folder: cut(folder / "commits" / "2"), "commits/2"),
    ],
)
def test_a_broken_checkpoint_folder_is_told(
    doctor: Doctor, break_it: Callable[[Path], None], problem: str
) -> None:
    """Spark does not wait for the disk."""
    folder = _checkpoint(doctor.root)
    assert doctor()[0] == 0
    break_it(folder)
    for words in ((), ("--mend",)):
        code, told = doctor(*words)
        assert code == 10
        assert f"checkpoint  {problem}" in told
        assert "start the job with a new checkpoint folder" in told


def test_a_checkpoint_that_is_ahead_of_a_table_is_told(doctor: Doctor) -> None:
    _checkpoint(doctor.root, LAST + 2)
    code, told = doctor()
    assert code == 10
    assert (
        f"says that reports was read up to version {LAST + 2}, but its newest version is {LAST}"
        in told
    )


def test_a_mending_that_is_cut_off_does_not_leave_half_of_what_came_later(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delete comes after the broken commit, so mending takes it back, too."""
    begun = Path(shutil.copytree(begun / "history" / "rounds", tmp_path / "rounds"))
    DeltaTable(begun).delete("seq = 0")
    cut(commit(begun, 3))
    for syncs in range(40):
        table = Path(shutil.copytree(begun, tmp_path / f"{syncs}"))
        with monkeypatch.context() as patch:
            disk = Disk(table, patch)
            patch.setattr("quotaplane.deltalog.mend.fsync", disk._synced)
            disk.fails_after = syncs
            try:
                mend(table, diagnose(table, rewritten=False).mending, tmp_path / f"aside{syncs}")
            except PowerLossError:
                disk.fails_after = None
                mend(table, diagnose(table, rewritten=False).mending, tmp_path / f"aside{syncs}")
        assert sorted(DeltaTable(table).to_pyarrow_table()["seq"].to_pylist()) == [0, 1]
        if disk.order and disk.fails_after is not None:
            break
    assert 5 < syncs < 39


def test_a_mending_that_is_cut_off_is_finished_by_the_next(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = 0
    ended = False
    while not ended:
        root = tmp_path / f"{syncs}"
        table = Path(shutil.copytree(begun / "history" / "resource_groups", root / "table"))
        names = {file.name for file in table.rglob("*.parquet")}
        cut(commit(table, 3))
        with monkeypatch.context() as patch:
            disk = Disk(table, patch)
            patch.setattr("quotaplane.deltalog.mend.fsync", disk._synced)
            disk.fails_after = syncs
            try:
                mend(table, diagnose(table, rewritten=True).mending, root / "aside")
                ended = True
            except PowerLossError:
                disk.fails_after = None
                mend(table, diagnose(table, rewritten=True).mending, root / "aside")
        assert find_fault(str(table)) is None
        assert DeltaTable(table).to_pyarrow_table()["publish_bytes_per_s"].to_pylist() == [20.0]
        # The data of the commits 4 and 5 is set aside: a vacuum would delete it here.
        kept = {file.name for file in table.rglob("*.parquet")}
        assert len(kept) == 4
        assert kept | {file.name for file in (root / "aside").rglob("*.parquet")} == names
        syncs += 1
    assert syncs > 5


_DAMAGE = st.lists(
    st.tuples(st.sampled_from(["commit", "data"]), st.integers(1, 9), st.booleans()), max_size=4
)


@pytest.fixture(scope="module")
def nine_rounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    history = History(path=str(tmp_path_factory.mktemp("nine")))
    make_history(history)
    with HistoryWriter(history, "x") as writer:
        for seq in range(1, 10):
            writer.append("rounds", rounds(), Round(1, seq, NOON_MS))
    return Path(history.path)


@examples(0.25)
@given(damage=_DAMAGE, base=st.integers(-1, 9))
def test_whatever_is_damaged_mending_leaves_a_whole_table_with_whole_rows_of_before(
    tmp_path_factory: pytest.TempPathFactory,
    nine_rounds: Path,
    damage: list[tuple[str, int, bool]],
    base: int,
) -> None:
    """``base``: of a checkpoint; damage: an empty or a missing file of a version."""
    root = tmp_path_factory.mktemp("damaged") / "history"
    history = History(path=str(shutil.copytree(nine_rounds, root)))
    table = root / "rounds"
    if base >= 0:
        DeltaTable(table, version=base).create_checkpoint()
    files = {version: (commit(table, version), added(table, version)) for version in range(1, 10)}
    for kind, version, empty in damage:
        file = files[version][kind == "data"]
        if empty or file == files[9][0]:  # without the last commit there is nothing to be seen
            file.write_bytes(b"")
        else:
            file.unlink(missing_ok=True)

    lost_data = {version for kind, version, _ in damage if kind == "data"}
    lost_commits = {version for kind, version, _ in damage if kind == "commit"}
    first_lost = min((version for version in lost_commits if version > base), default=10)
    mend(table, diagnose(table, rewritten=False).mending, root / "aside")
    again = diagnose(table, rewritten=False)
    assert (again.findings, bool(again.mending)) == ([], False)
    assert find_fault(str(table)) is None
    open_table(history, "rounds")
    assert set(read(history, "rounds")["seq"].to_pylist()) == set(range(1, first_lost)) - lost_data
    assert DeltaTable(table).version() >= 9
    with HistoryWriter(history, "y") as writer:
        assert writer.append("rounds", rounds(), Round(2, 0, NOON_MS)) is True


def test_what_was_deleted_stays_deleted(doctor: Doctor) -> None:
    put_groups(doctor.history, ["h"], np.full((1, len(RATE_COLUMNS)), 1.0), "ann")
    delete_groups(doctor.history, ["g"], "ann")
    table = doctor.root / "history" / "resource_groups"
    newest = list_log(table).newest
    put_groups(doctor.history, ["i"], np.full((1, len(RATE_COLUMNS)), 1.0), "ann")
    cut(commit(table, newest + 1))
    assert doctor("--mend")[0] == 11
    assert list_groups(doctor.history)["group"].to_pylist() == ["h"]


def test_a_long_loss_is_told_in_short(doctor: Doctor) -> None:
    with HistoryWriter(doctor.history, "x") as writer:
        for seq in range(LAST, LAST + 10):
            writer.append("rounds", rounds(), Round(1, seq, NOON_MS))
    cut(commit(doctor.root / "history" / "rounds", 3))
    told = doctor()[1]
    assert f"; {13 - diagnosing._SHOWN} more up to 15; 12 rows in all that can be read" in told
    assert os.linesep.join(told.splitlines()).count("more up to") == 1


def test_names_that_no_report_will_have_are_listed_and_are_no_damage(doctor: Doctor) -> None:
    assert "client-id" not in doctor()[1]
    names = ["client-id=app", "G", "acme "]
    put_groups(doctor.history, names, np.full((3, len(RATE_COLUMNS)), 1.0), "ann")
    code, told = doctor()
    assert code == 0
    states, _, doubts = told.partition("\n\n")
    assert "broken" not in states
    assert [line.partition(": ")[0] for line in doubts.splitlines()] == [
        "group 'acme '",
        "group 'client-id=app'",
        "group 'G'",
        "group 'g'",
    ]
    cut(commit(doctor.root / "history" / "resource_groups"))
    assert "client-id" not in doctor()[1]


def test_a_script_gets_json(doctor: Doctor, capsys: pytest.CaptureFixture[str]) -> None:
    table = doctor.root / "history" / "resource_groups"
    conf = str(doctor.root / "conf.yaml")
    cut(commit(table, LAST))
    assert main(["doctor", "--conf", conf, "--mend"]) == 11
    out, err = capsys.readouterr()
    answer = json.loads(out)
    [problem] = answer["problems"]
    assert problem["table"] == "resource_groups"
    assert problem["mending_loses"]
    aside = answer["mended"]["resource_groups"]
    assert Path(aside).is_dir()
    assert err == f"quotaplane: mended resource_groups; the broken files are in {aside}\n"
    assert answer["afterwards"]["problems"] == []
    states = {row["table"]: row["state"] for row in answer["tables"]}
    assert (states["resource_groups"], states["rounds"]) == ("broken", "whole")
