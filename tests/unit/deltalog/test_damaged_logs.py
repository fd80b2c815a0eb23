"""Logs that nothing here wrote: one line with the file and exit code 4, no hang, bounded memory."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quotaplane.cli.main import main
from quotaplane.deltalog.checksums import CHECKSUMS
from quotaplane.deltalog.diagnose import diagnose
from quotaplane.deltalog.faults import find_fault
from quotaplane.deltalog.log import list_log, read_commit
from quotaplane.deltalog.mend import mend
from quotaplane.model import RATE_COLUMNS
from quotaplane.registry.table import list_groups, put_groups
from quotaplane.settings import History
from tests.unit.deltalog.broken_cases import LAST, added, checkpointed, commit, cut

Capture = pytest.CaptureFixture[str]
FAR = 10**15


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    history = History(path=str(tmp_path_factory.mktemp("changed")))
    for quota in range(1, LAST + 1):
        put_groups(history, ["g"], np.full((1, len(RATE_COLUMNS)), 10.0 * quota), "ann")
    return Path(history.path)


@pytest.fixture
def history(changed: Path, tmp_path: Path) -> History:
    copy = Path(shutil.copytree(changed, tmp_path / "history"))
    for file in copy.rglob(CHECKSUMS):
        file.unlink()
    return History(path=str(copy))


def edited(file: Path, kind: str, **values: Any) -> None:
    """Change values of a commit's actions of one kind."""
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    for line in lines:
        line.get(kind, {}).update(values)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def in_place_of(file: Path, what: Callable[[Path], Any]) -> None:
    file.unlink(missing_ok=True)
    what(file)


def zeros(file: Path) -> None:
    file.symlink_to("/dev/zero")


def log_file(table: Path, name: str) -> Path:
    return table / "_delta_log" / name


def rows(value: str) -> Callable[[Path], None]:
    return lambda table: edited(commit(table), "add", stats=f'{{"numRecords": {value}}}')


NO_FILE = "is no regular file"
DAMAGED = "is cut off or damaged in line "
LAST_NAME = f"{LAST:020}.json"
LOGS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "deep JSON": (lambda t: commit(t).write_text("[" * 200_000), f"{LAST_NAME} {DAMAGED}1"),
    "deep statistics": (
        lambda t: edited(commit(t), "add", stats="[" * 200_000),
        f"{LAST_NAME} {DAMAGED}",
    ),
    "1e30 rows": (rows("1e30"), f"{LAST_NAME} {DAMAGED}"),
    "infinite rows": (rows("Infinity"), f"{LAST_NAME} {DAMAGED}"),
    "rows of null": (rows("null"), f"{LAST_NAME} {DAMAGED}"),
    "more rows than 64 bits": (rows(str(2**70)), f"{LAST_NAME} {DAMAGED}"),
    "fewer rows than none": (rows("-1"), f"{LAST_NAME} {DAMAGED}"),
    "a size of 1e30": (lambda t: edited(commit(t), "add", size=1e30), f"{LAST_NAME} {DAMAGED}"),
    "counts that are text": (
        lambda t: edited(commit(t), "commitInfo", operationMetrics="many"),
        f"{LAST_NAME} is damaged: operationMetrics",
    ),
    "a FIFO for the last commit": (
        lambda t: in_place_of(commit(t), os.mkfifo),
        f"{LAST_NAME} {NO_FILE}",
    ),
    "a FIFO for an earlier commit": (
        lambda t: in_place_of(commit(t, 2), os.mkfifo),
        f"{2:020}.json {NO_FILE}",
    ),
    "zeros for the last commit": (
        lambda t: in_place_of(commit(t), zeros),
        f"{LAST_NAME} {NO_FILE}",
    ),
    "a FIFO for the checkpoint": (
        lambda t: in_place_of(checkpointed(t), os.mkfifo),
        f"{LAST:020}.checkpoint.parquet {NO_FILE}",
    ),
    "a FIFO for the note of the checkpoint": (
        lambda t: in_place_of(log_file(t, "_last_checkpoint"), os.mkfifo),
        f"_last_checkpoint {NO_FILE}",
    ),
    "zeros for the note of the checkpoint": (
        lambda t: in_place_of(log_file(t, "_last_checkpoint"), zeros),
        f"_last_checkpoint {NO_FILE}",
    ),
    "a FIFO that readers of other programs would open": (
        lambda t: os.mkfifo(log_file(t, f"{LAST:020}.crc")),
        f"{LAST:020}.crc {NO_FILE}",
    ),
    "a FIFO for the data": (lambda t: in_place_of(added(t), os.mkfifo), NO_FILE),
    "a far commit": (
        lambda t: shutil.copy(commit(t), log_file(t, f"{FAR:020}.json")),
        f"{FAR:020}.json is {FAR - LAST} versions after the one before",
    ),
    "a commit of 20 nines": (
        lambda t: shutil.copy(commit(t), log_file(t, f"{'9' * 20}.json")),
        f"{'9' * 20}.json is ",
    ),
    "a far checkpoint": (
        lambda t: shutil.copy(checkpointed(t), log_file(t, f"{FAR:020}.checkpoint.parquet")),
        f"{FAR:020}.checkpoint.parquet is {FAR - LAST} versions after the one before",
    ),
}


@pytest.mark.parametrize("kind", LOGS)
def test_a_damaged_log_is_one_line_with_the_file(
    history: History, capsys: Capture, tmp_path: Path, kind: str
) -> None:
    break_it, problem = LOGS[kind]
    table = Path(history.path) / "resource_groups"
    break_it(table)
    assert problem in str(find_fault(str(table)))
    for action in (["list"], ["put", "g", "--weight", "2"], ["history"]):
        assert main(["groups", *action, "--history", history.path]) == 4
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert problem in err
    found = diagnose(table, rewritten=True)
    assert any(problem in f"{finding.file} {finding.problem}" for finding in found.findings)
    mend(table, found.mending, tmp_path / "aside")
    assert find_fault(str(table)) is None
    assert list_groups(history)["publish_messages_per_s"][0].as_py() in (10.0, 40.0, 50.0)


@pytest.mark.parametrize("value", [None, 10**18, -(10**17), 1e30, "soon", True])
def test_a_commit_whose_time_is_none_is_one_line(
    history: History, capsys: Capture, value: object
) -> None:
    table = Path(history.path) / "resource_groups"
    edited(commit(table, 2), "commitInfo", timestamp=value)
    actions = (
        ["groups", "history"],
        ["groups", "restore", "--from-history", "--at", "2020-01-01T00:00:00Z"],
    )
    for action in actions:
        assert main([*action, "--history", history.path]) == 4
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert "resource_groups" in err
    # The rows are not lost: quotas are read, and a diagnosis is made.
    assert main(["groups", "list", "--history", history.path]) == 0
    cut(commit(table, 3))
    assert diagnose(table, rewritten=True).findings


def test_versions_behind_a_gap_belong_to_the_table_if_a_checkpoint_does(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    for name in (f"{0:020}.json", f"{FAR:020}.checkpoint.parquet", f"{FAR:020}.json"):
        (log / name).write_text("x")
    assert list_log(tmp_path).newest == FAR
    assert not list_log(tmp_path).strangers
    (log / f"{FAR:020}.json").unlink()
    assert list_log(tmp_path).newest == 0


def test_a_commit_that_is_larger_than_any_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "large.json"
    with file.open("wb") as opened:
        opened.truncate(1 << 40)
    with pytest.raises(OSError, match="has 1099511627776 bytes"):
        read_commit(file)
