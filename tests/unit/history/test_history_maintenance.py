"""Maintenance makes the tables smaller, loses nothing it should keep, and disturbs nobody."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from deltalake import DeltaTable

from quotaplane.cli.main import main
from quotaplane.errors import HistoryError
from quotaplane.history import maintenance
from quotaplane.history.maintenance import CLAIM_MS, Maintained, maintain
from quotaplane.history.tables import TABLES
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import RATE_COLUMNS, Round
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.table import list_groups, put_groups
from quotaplane.settings import DeltaTransport, History
from quotaplane.transport import open_broker_link
from tests.histories import make_history
from tests.job import write_conf
from tests.unit.cli.refusals import refused
from tests.unit.history.history_cases import DAY_MS, NOON_MS, full_round, read

pytestmark = pytest.mark.slow

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Five days with two rounds each, the last one ending at noon of 1 March."""
    made = History(path=str(tmp_path_factory.mktemp("recorded") / "history"))
    make_history(made)
    with HistoryWriter(made, "checkpoint-1") as writer:
        for seq in range(10):
            now_ms = NOON_MS - (4 - seq // 2) * DAY_MS + seq % 2
            writer.append_round(Round(1, seq, now_ms), full_round())
    return made


@pytest.fixture
def history(recorded: History, tmp_path: Path) -> History:
    """A copy of it."""
    shutil.copytree(recorded.path, tmp_path, dirs_exist_ok=True)
    return History(path=str(tmp_path))


def test_it_compacts_once_and_keeps_every_row(history: History) -> None:
    before = {name: read(history, name).sort_by("seq") for name in full_round()}
    done = {kept.table: kept for kept in maintain(history, NOON)}
    assert done.keys() == TABLES.keys()
    assert {name: kept.rows_expired for name, kept in done.items()} == dict.fromkeys(TABLES, 0)
    assert (done["usage"].files_compacted, done["usage"].files) == (10, 5)  # one a day
    assert (done["rounds"].files_compacted, done["rounds"].files) == (10, 1)
    assert {name: read(history, name).sort_by("seq") for name in before} == before
    again = maintain(history, NOON)
    assert [(kept.rows_expired, kept.files_compacted) for kept in again] == [(0, 0)] * len(TABLES)


def test_it_expires_what_is_older(history: History) -> None:
    done = {kept.table: kept for kept in maintain(history, NOON, keep_days=3)}
    # usage and limits go by whole days: the 26th of February stays.
    left = {name: sorted(set(read(history, name)["seq"].to_pylist())) for name in full_round()}
    assert left["usage"] == left["limits"] == list(range(2, 10))
    assert left["rounds"] == left["brokers"] == left["rejected_reports"] == list(range(2, 10))
    assert done["usage"] == Maintained("usage", 4, 8, 0, 4)
    assert done["rounds"].rows_expired == 2


@pytest.fixture
def only_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maintain one table instead of all."""
    monkeypatch.setattr(maintenance, "TABLES", {"usage": TABLES["usage"]})


@pytest.mark.usefixtures("only_usage")
def test_replays_are_still_told_apart_afterwards(history: History) -> None:
    with HistoryWriter(history, "checkpoint-1") as running:
        maintain(history, NOON, keep_days=3)
        rows = read(history, "usage").num_rows
        running.append_round(Round(1, 9, NOON_MS), full_round())
        assert read(history, "usage").num_rows == rows
        running.append_round(Round(1, 10, NOON_MS), full_round())
    with HistoryWriter(history, "checkpoint-1") as restarted:
        restarted.append_round(Round(1, 10, NOON_MS), full_round())
    assert read(history, "usage").num_rows == rows + 2


def test_quotas_their_change_feed_and_the_newest_round_stay_however_old(history: History) -> None:
    for quota in (10.0, 20.0, 30.0):
        put_groups(history, ["a"], np.full((1, len(RATE_COLUMNS)), quota), "ann")
    put_groups(history, ["b"], np.full((1, len(RATE_COLUMNS)), 5.0), "bob")
    changes, groups = group_changes(history), list_groups(history)
    folder = Path(history.path, "resource_groups", "_change_data")
    feed = sorted(file.name for file in folder.iterdir())
    maintain(history, NOON + timedelta(days=400), keep_days=1)
    assert len(changes) == 4
    assert group_changes(history) == changes
    assert list_groups(history) == groups
    assert sorted(file.name for file in folder.iterdir()) == feed
    assert read(history, "rounds")["seq"].to_pylist() == [9]
    assert read(history, "usage").num_rows == 0


def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    flock_of_system = fcntl.flock

    def flock(file: int | IO[str], how: int) -> None:
        if not isinstance(file, int):  # the folder for what does not fit into memory is elsewhere
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        flock_of_system(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.mark.nightly
@pytest.mark.parametrize("locks", [True, False])
def test_of_two_runs_at_once_one_refuses_and_no_row_is_doubled(
    history: History, monkeypatch: pytest.MonkeyPatch, locks: bool
) -> None:
    if not locks:
        without_locks(monkeypatch)
    before = read(history, "usage").num_rows

    def run(_: int) -> str:
        try:
            maintain(history, NOON)
        except HistoryError as error:
            return str(error)
        return "done"

    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(run, range(3)))
    assert "done" in answers
    refused = [answer for answer in answers if answer != "done"]
    assert all("another `maintain` is working on it" in answer for answer in refused)
    assert read(history, "usage").num_rows == before
    assert read(history, "rounds").num_rows == 10
    maintain(history, NOON)  # every claim was given back


@pytest.mark.usefixtures("only_usage")
def test_the_claim_of_a_killed_run_ends(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> int:
        raise KeyboardInterrupt

    began = time.time()
    with monkeypatch.context() as patch:
        without_locks(patch)
        patch.setattr(maintenance, "_expire", killed)
        # nobody gives the claim back
        patch.setattr(maintenance, "RELEASED", int(began * 1000) + CLAIM_MS)
        with pytest.raises(KeyboardInterrupt):
            maintain(history, NOON)
        with pytest.raises(
            HistoryError, match=r"^history table usage: another `maintain` is working on it; if"
        ):
            maintain(history, NOON)
    # Where there are locks, it holds none, or the disk was too full to release the claim.
    assert maintain(history, NOON)[0].files_compacted == 10
    without_locks(monkeypatch)
    monkeypatch.setattr(time, "time", lambda: began + CLAIM_MS / 1000 + 60)
    assert maintain(history, NOON)[0].files_compacted == 0


def test_the_command_prints_an_object_per_table(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["maintain", "--history", history.path, "--keep-days", "36500"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["table"] for line in lines][-1] == "resource_groups"
    assert {line["table"] for line in lines} == TABLES.keys()
    (of_usage,) = (line for line in lines if line["table"] == "usage")
    assert of_usage == {
        "table": "usage",
        "rows_expired": 0,
        "files_compacted": 10,
        "files_deleted": 0,
        "files": 5,
    }


@pytest.mark.nightly
def test_with_the_settings_it_keeps_the_embedded_topics_small_too(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transport = {"kind": "delta", "path": str(tmp_path / "topics")}
    link = open_broker_link(DeltaTransport.model_validate(transport))
    link.send_reports([("b1", b"old", 1_000)])
    link.send_reports([("b1", b"new", int(time.time() * 1000))])
    conf = write_conf(tmp_path, transport, history={"path": history.path})
    assert main(["maintain", "--conf", str(conf), "--keep-days", "36500"]) == 0
    kept = DeltaTable(tmp_path / "topics" / "reports").to_pyarrow_table()
    assert kept["value"].to_pylist() == [b"new"]


@pytest.mark.parametrize(("unreadable", "code"), [("leases", 4), ("limits_topic", 3)])
def test_a_table_whose_folder_can_t_be_listed_is_one_line(
    history: History,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    unreadable: str,
    code: int,
) -> None:
    """Found by a fault at each system call."""
    transport = {"kind": "delta", "path": str(tmp_path / "topics")}
    conf = write_conf(tmp_path, transport, history={"path": history.path})
    monkeypatch.setattr(maintenance, "TABLES", {"leases": TABLES["leases"]})

    def is_deltatable(uri: str, *_: object) -> bool:
        if Path(uri).name == unreadable:
            raise OSError("Generic LocalFileSystem error: Unable to walk dir")
        return Path(uri).parent.name != "topics"

    monkeypatch.setattr(DeltaTable, "is_deltatable", is_deltatable)
    assert main(["maintain", "--conf", str(conf)]) == code
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "Unable to walk dir" in said[0]


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        ([], "--conf --history is required"),
        (["--history", "h", "--keep-days", "0"], "--keep-days must be more than 0"),
    ],
)
def test_wrong_options_are_one_clear_line(
    argv: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert problem in refused(capsys, "maintain", *argv)
