"""`quotaplane doctor`: finds what is broken, says what mending loses, deletes nothing."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from deltalake import DeltaTable
from deltalake.schema import Field, PrimitiveType
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
from quotaplane.history.store import ensure_tables, open_table
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import RATE_COLUMNS, Round
from quotaplane.registry.table import delete_groups, list_groups, put_groups
from quotaplane.settings import History
from quotaplane.transport import open_broker_link, open_transport
from quotaplane.transport.base import Message
from tests.examples import examples
from tests.histories import make_history
from tests.unit.deltalog.broken_cases import BREAKS, LAST, Doctor, added, commit, cut, harmless, put
from tests.unit.deltalog.power_cases import Disk, PowerLossError
from tests.unit.history.history_cases import NOON_MS, read, rounds

pytestmark = pytest.mark.slow


def test_what_is_whole_is_exit_code_0(doctor: Doctor) -> None:
    before = doctor.contents()
    for words in ((), ("--mend",)):
        code, said_ = doctor(*words)
        assert code == 0
        assert "broken" not in said_
        for name in ("resource_groups", "rounds", "topic reports", "topic limits_topic"):
            assert f"\n{name}" in said_
    harmless(doctor.quotas)
    assert doctor()[0] == 0
    assert list_groups(doctor.history)["publish_messages_per_s"].to_pylist() == [50.0]
    assert not before - doctor.contents()


@pytest.mark.parametrize("kind", BREAKS)
def test_a_broken_table_is_refused_in_one_line_then_found_and_mended(
    doctor: Doctor, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    broken, table = BREAKS[kind], doctor.quotas
    if not broken.checksums:
        (table / "_delta_log" / CHECKSUMS).unlink()
    broken.do(table)
    assert broken.expected in str(find_fault(str(table)))
    for action in (["list"], ["put", "g", "--init"]):
        assert main(["groups", *action, "--history", doctor.history.path]) == 4
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert broken.expected in err
        assert err.endswith(
            "; run `quotaplane doctor`, which says what is lost and how to mend it\n"
        )
    with pytest.raises(HistoryError):
        ensure_tables(doctor.history)

    before = doctor.contents()
    code, told = doctor("--mend")
    assert not before - doctor.contents()
    assert broken.expected.split()[-1] in told
    if broken.quota is None:
        assert code == 10
        assert "can't be mended: restore the table from a copy" in told
        return
    assert code == 11
    assert f"mended resource_groups; the broken files are in {table.parent}/doctor-" in told
    assert find_fault(str(table)) is None
    assert list_groups(doctor.history)["publish_messages_per_s"].to_pylist() == [broken.quota]
    # Versions are not used again: a stream that had read the last one sees what comes now.
    assert DeltaTable(table).version() == LAST
    put(doctor.history, 60.0, by="bob")
    assert DeltaTable(table).version() == LAST + 1


@pytest.mark.parametrize("action", ["history", "delete"])
def test_other_commands_refuse_a_broken_table_too(
    doctor: Doctor, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    cut(commit(doctor.quotas))
    assert main(["groups", action, "g", "--history", doctor.history.path]) == 4
    assert capsys.readouterr().err.count("\n") == 1


def test_it_says_what_is_broken_and_changes_nothing(doctor: Doctor) -> None:
    cut(commit(doctor.quotas))
    cut(added(doctor.rounds, 3))
    before = doctor.contents()
    assert doctor()[0] == 10
    assert doctor.contents() == before
    assert doctor("--mend")[0] == 11
    assert doctor()[0] == 0


def test_it_says_whose_changes_would_be_lost(doctor: Doctor) -> None:
    cut(commit(doctor.quotas, 3))
    code, told = doctor()
    assert code == 10
    assert "commit 3, which can't be read; commit 4 by ann at 20" in told
    assert "; commit 5 by ann at 20" in told


def test_a_lost_file_of_a_table_that_grows_is_taken_out_and_the_rest_stays(doctor: Doctor) -> None:
    table = doctor.rounds
    cut(added(table, 3))
    code, told = doctor("--mend")
    assert code == 11
    assert "its 1 rows" in told
    assert sorted(read(doctor.history, "rounds")["seq"].to_pylist()) == [0, 1, 3, 4]


def test_a_lost_file_of_quotas_gives_the_quota_of_before_and_not_none(doctor: Doctor) -> None:
    """Taken out, the group would be gone, and its brokers unlimited."""
    put(doctor.history, 1.0, "h", by="bob")
    table = doctor.quotas
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
    cut(added(doctor.rounds, LAST))
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
    table = doctor.quotas
    change_data = parse_commit(commit(table, 2).read_bytes()).change_data[0]
    (table / change_data.path).unlink()
    code, told = doctor("--mend")
    assert code == 10
    assert "the change feed can't be read past version 2" in told
    assert list_groups(doctor.history)["publish_messages_per_s"].to_pylist() == [50.0]


def test_change_data_that_a_vacuum_deleted_is_no_fault(doctor: Doctor) -> None:
    """As Spark's VACUUM does a week after the newest commit."""
    table = doctor.quotas
    assert main(["groups", "delete", "g", "--history", str(table.parent)]) == 0
    DeltaTable(table).create_checkpoint()
    [change_data] = parse_commit(commit(table, LAST + 1).read_bytes()).change_data
    (table / change_data.path).unlink()
    assert find_fault(str(table)) is None
    assert doctor()[0] == 0


def test_it_does_not_mend_beside_a_running_job(doctor: Doctor) -> None:
    table = doctor.quotas
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
    cut(commit(doctor.rounds))
    doctor("--mend")
    assert len(refused) == 2


def test_missing_quotas_beside_other_tables_are_told(doctor: Doctor) -> None:
    shutil.rmtree(doctor.quotas)
    for words in ((), ("--mend",)):
        code, told = doctor(*words)
        assert code == 10
        assert "the job would create it without rows" in told


def test_a_table_of_another_version_is_told(doctor: Doctor) -> None:
    table = DeltaTable(doctor.rounds)
    table.alter.add_columns([Field("height", PrimitiveType("double"), True)])
    code, told = doctor()
    assert code == 10
    assert "column height is not one that this version writes" in told


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


def mended_after_a_power_loss(
    table: Path, aside: Path, monkeypatch: pytest.MonkeyPatch, *, rewritten: bool, syncs: int
) -> bool:
    """Mend with a power loss after so many syncs, then again; False: there are fewer syncs."""
    with monkeypatch.context() as patch:
        disk = Disk(table, patch)
        patch.setattr("quotaplane.deltalog.mend.fsync", disk._synced)
        disk.fails_after = syncs
        try:
            mend(table, diagnose(table, rewritten=rewritten).mending, aside)
        except PowerLossError:
            disk.fails_after = None
            mend(table, diagnose(table, rewritten=rewritten).mending, aside)
            return True
    return False


def test_a_mending_that_is_cut_off_does_not_leave_half_of_what_came_later(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delete comes after the broken commit, so mending takes it back, too."""
    DeltaTable(doctor.rounds).delete("seq = 0")
    cut(commit(doctor.rounds, 3))
    for syncs in count():
        table = Path(shutil.copytree(doctor.rounds, tmp_path / f"{syncs}"))
        aside = tmp_path / f"aside{syncs}"
        lost = mended_after_a_power_loss(table, aside, monkeypatch, rewritten=False, syncs=syncs)
        assert sorted(DeltaTable(table).to_pyarrow_table()["seq"].to_pylist()) == [0, 1]
        if not lost:
            break
    assert syncs > 5


def test_a_mending_that_is_cut_off_is_finished_by_the_next(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {file.name for file in doctor.quotas.rglob("*.parquet")}
    cut(commit(doctor.quotas, 3))
    for syncs in count():
        table = Path(shutil.copytree(doctor.quotas, tmp_path / f"{syncs}"))
        aside = tmp_path / f"aside{syncs}"
        lost = mended_after_a_power_loss(table, aside, monkeypatch, rewritten=True, syncs=syncs)
        assert find_fault(str(table)) is None
        assert DeltaTable(table).to_pyarrow_table()["publish_bytes_per_s"].to_pylist() == [20.0]
        # The data of the commits 4 and 5 is set aside: a vacuum would delete it here.
        kept = {file.name for file in table.rglob("*.parquet")}
        assert len(kept) == 4
        assert kept | {file.name for file in aside.rglob("*.parquet")} == names
        if not lost:
            break
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
    put(doctor.history, 1.0, "h", by="ann")
    delete_groups(doctor.history, ["g"], "ann")
    table = doctor.quotas
    newest = list_log(table).newest
    put(doctor.history, 1.0, "i", by="ann")
    cut(commit(table, newest + 1))
    assert doctor("--mend")[0] == 11
    assert list_groups(doctor.history)["group"].to_pylist() == ["h"]


def test_a_long_loss_is_told_in_short(doctor: Doctor) -> None:
    with HistoryWriter(doctor.history, "x") as writer:
        for seq in range(LAST, LAST + 10):
            writer.append("rounds", rounds(), Round(1, seq, NOON_MS))
    cut(commit(doctor.rounds, 3))
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
    cut(commit(doctor.quotas))
    assert "client-id" not in doctor()[1]


def test_a_script_gets_json(doctor: Doctor, capsys: pytest.CaptureFixture[str]) -> None:
    table = doctor.quotas
    cut(commit(table, LAST))
    assert main(["doctor", "--conf", str(doctor.conf), "--mend"]) == 11
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
