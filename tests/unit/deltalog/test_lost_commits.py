"""Commits that are lost, beside a checkpoint or all of them, are said; no empty table is made."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from quotaplane.cli.main import main
from quotaplane.deltalog.checksums import CHECKSUMS
from quotaplane.deltalog.durable import checkpoint
from quotaplane.deltalog.faults import find_fault
from quotaplane.deltalog.log import LOG
from quotaplane.errors import HistoryError, TransportError
from quotaplane.history.store import ensure_tables, has_table
from quotaplane.registry.table import list_groups
from quotaplane.settings import DeltaTransport, History
from quotaplane.transport import open_broker_link
from tests.unit.deltalog.broken_cases import commit, put
from tests.unit.deltalog.damage_cases import (
    BASE,
    NEWEST,
    Capture,
    doctor,
)


def only_the_newest(table: Path) -> None:
    commit(table, NEWEST).unlink()


def all_after_the_checkpoint(table: Path) -> None:
    for version in range(BASE + 1, NEWEST + 1):
        commit(table, version).unlink()


def newest_of_the_checkpoint(table: Path) -> None:
    checkpoint(DeltaTable(table), str(table))
    commit(table, NEWEST).unlink()


def all_but_checkpoints(table: Path) -> None:
    checkpoint(DeltaTable(table), str(table))
    for file in (table / LOG).glob("*.json"):
        file.unlink()


def all_but_checkpoints_unknown(table: Path) -> None:
    all_but_checkpoints(table)
    (table / LOG / CHECKSUMS).unlink()


LOST: dict[str, tuple[Callable[[Path], None], list[float]]] = {
    "only the newest": (only_the_newest, [10.0 * n for n in range(1, NEWEST)]),
    "all after the checkpoint": (all_after_the_checkpoint, [10.0 * n for n in range(1, BASE + 1)]),
    "the one of the newest checkpoint": (newest_of_the_checkpoint, []),
    "all but checkpoints": (all_but_checkpoints, []),
    "all, and the checksums": (all_but_checkpoints_unknown, []),
}
"""The loss, and the quotas after mending; none: all are there."""


@pytest.mark.parametrize("kind", LOST)
def test_lost_commits_are_said_and_mended(
    history: History, table: Path, capsys: Capture, kind: str
) -> None:
    lose, quotas = LOST[kind]
    lose(table)
    for action in (["list"], ["put", "g1", "--weight", "2", "--init"], ["history"]):
        assert main(["groups", *action, "--history", history.path]) == 4
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert ".json is missing; run `quotaplane doctor`" in err
    code, found = doctor(history, capsys)
    assert code == 10
    assert all(problem["problem"] == "is missing" for problem in found["problems"])
    assert doctor(history, capsys, "--mend")[0] == 11
    assert find_fault(str(table)) is None
    left = sorted(list_groups(history)["publish_messages_per_s"].to_pylist())
    assert left == (quotas or [10.0 * n for n in range(1, NEWEST + 1)])
    version = DeltaTable(table).version()
    assert version == NEWEST  # no number is used twice
    put(history, 1.0, "new")
    assert DeltaTable(table).version() == version + 1
    assert len(list_groups(history)) == len(left) + 1


@pytest.mark.parametrize("whole_folder", [True, False])
def test_a_table_that_has_lost_its_log_is_not_made_anew(
    history: History, table: Path, capsys: Capture, whole_folder: bool
) -> None:
    """``whole_folder``: of the log; else its checksums are left."""
    if whole_folder:
        shutil.rmtree(table / LOG)
    else:
        for file in (table / LOG).iterdir():
            if file.name != CHECKSUMS:
                file.unlink()
    problem = f"{LOG} has no commit, although the table's files are there; run `quotaplane doctor`"
    for action in (["list"], ["put", "g1", "--weight", "2", "--init"], ["history"]):
        assert main(["groups", *action, "--history", history.path]) == 4
        assert problem in capsys.readouterr().err
    for use in (lambda: ensure_tables(history), lambda: has_table(history, "resource_groups")):
        with pytest.raises(HistoryError, match="has no commit"):
            use()
    assert not list((table / LOG).glob("*.json"))
    code, found = doctor(history, capsys)
    assert code == 10
    (problem_,) = found["problems"]
    assert problem_["problem"] == "has no commit"
    assert "restore the table from a copy" in problem_["mending_loses"]


def test_a_topic_that_has_lost_its_log_is_not_made_anew(tmp_path: Path) -> None:
    settings = DeltaTransport(kind="delta", path=str(tmp_path))
    open_broker_link(settings).send_reports([("b", b"1", 1)])
    shutil.rmtree(tmp_path / "reports" / LOG)
    with pytest.raises(TransportError, match="has no commit, although"):
        open_broker_link(settings).send_reports([("b", b"2", 2)])
