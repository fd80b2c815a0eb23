"""A full disk: its reserve, who gives it up, and what a job and a command then do."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from datetime import datetime, timezone
from pathlib import Path

import pytest

from quotaplane.deltalog.durable import Synced
from quotaplane.deltalog.reserve import Reserve
from quotaplane.errors import HistoryError, QuotaplaneError
from quotaplane.history.commits import optimistically
from quotaplane.history.disk_reserve import (
    OF_COMMANDS,
    OF_JOBS,
    keep_reserves,
    release_reserve,
    with_reserve,
)
from quotaplane.history.maintenance import maintain
from quotaplane.history.tables import RESOURCE_GROUPS
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.settings import History
from quotaplane.streams.lifecycle import run_until_stopped
from quotaplane.streams.query_failures import known_failure
from tests.histories import make_history
from tests.unit.history.history_cases import NOON_MS, full_round
from tests.unit.streams.test_attempts import Folder, Job

MB = 1_000_000
Free = namedtuple("Free", "total used free")
FULL = HistoryError(f"history table usage: {os.strerror(errno.ENOSPC)} (os error 28)")


def free(monkeypatch: pytest.MonkeyPatch, size_bytes: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Free(1 << 40, 0, size_bytes))


def test_a_reserve_takes_up_space_and_gives_it_back(tmp_path: Path) -> None:
    reserve, file = Reserve(tmp_path, "reserve"), tmp_path / "reserve"
    assert reserve.release() == 0
    assert reserve.keep(MB)
    assert file.stat().st_blocks * 512 >= MB
    assert reserve.keep(2 * MB)
    assert file.stat().st_blocks * 512 >= 2 * MB
    assert reserve.release() == 2 * MB
    assert not file.exists()


def test_a_reserve_is_not_made_where_space_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 7 * MB)
    assert not Reserve(tmp_path, "reserve").keep(MB)
    free(monkeypatch, 8 * MB)
    assert Reserve(tmp_path, "reserve").keep(MB)
    # One that is there stays.
    free(monkeypatch, 0)
    assert Reserve(tmp_path, "reserve").keep(MB)
    assert not Reserve(tmp_path, "reserve").keep(0)
    assert list(tmp_path.iterdir()) == []


def test_jobs_and_commands_have_a_reserve_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = History(path=str(tmp_path), reserve_mb=2)
    keep_reserves(history)
    assert {file.name: file.stat().st_size for file in tmp_path.iterdir()} == {
        OF_JOBS: MB,
        OF_COMMANDS: MB,
    }
    assert not release_reserve(
        history, OF_JOBS, HistoryError("Read-only file system (os error 30)")
    )
    attempts = []

    def work() -> int:
        attempts.append(1)
        if (tmp_path / OF_COMMANDS).exists():
            raise FULL
        return 5

    assert with_reserve(history, work) == 5
    assert "its reserve of 1 MB was given up" in capsys.readouterr().err
    assert (tmp_path / OF_JOBS).exists()
    with pytest.raises(HistoryError, match="os error 28"):  # there is no second one
        with_reserve(history, lambda: (_ for _ in ()).throw(FULL))
    assert len(attempts) == 2
    keep_reserves(History(path="s3://bucket/history"))


def test_a_commit_that_the_disk_did_not_keep_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second attempt of a conditional change met its own first one: a conflict, yet written."""
    history = History(path=str(tmp_path), reserve_mb=2)
    make_history(history)
    keep_reserves(history)
    attempts = []

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Synced, "upto", full)
    with pytest.raises(HistoryError, match=r"is committed but the disk did not keep it"):
        optimistically(history, RESOURCE_GROUPS, attempts.append)
    assert len(attempts) == 1
    assert (tmp_path / OF_COMMANDS).exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("java.io.IOException: No space left on device\n\tat java.base", "the disk is full"),
        ("FileNotFoundException: /c/0.tmp (Read-only file system)", "the file system is read-only"),
        ("SparkException: lost\nCaused by: IOException: Input/output error", "the disk failed"),
    ],
)
def test_a_disk_that_fails_spark_is_told_in_one_line(text: str, problem: str) -> None:
    error = known_failure(text)
    assert isinstance(error, HistoryError)
    assert "Spark can't write its checkpoint or temporary files" in str(error)
    assert problem in str(error)


def test_a_job_goes_on_with_the_reserve_and_ends_when_that_is_used_up(tmp_path: Path) -> None:
    history = History(path=str(tmp_path), reserve_mb=2)
    keep_reserves(history)
    folder, started = Folder(), []

    def start(_: int | None) -> Job:
        started.append(1)
        job = Job(folder, None, FULL) if len(started) < 3 else Job(folder, None)
        job.reserve_of = history
        return job

    with pytest.raises(HistoryError, match="os error 28"):
        run_until_stopped(start)
    assert len(started) == 2
    assert (tmp_path / OF_COMMANDS).exists()
    # There is room again. A full disk is not the batch's fault, however often it is met.
    assert run_until_stopped(start) == "Spark ended the query"


class FillingUp(Folder):
    """A checkpoint on a disk that becomes full while a batch runs."""

    full = False

    def write(self, name: str, text: str) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(name, text)


def test_a_batch_is_not_given_up_because_of_a_full_disk() -> None:
    """A failure was counted and could not be taken back: three starts, and exit code 7."""
    folder = FillingUp()

    class FillsIt(Job):
        def wait(self, timeout_s: float | None = None) -> bool:
            try:
                return super().wait(timeout_s)
            finally:
                folder.full = True

    for _ in range(6):
        folder.full = False
        with pytest.raises(HistoryError, match="os error 28"):
            run_until_stopped(lambda _: FillsIt(folder, FULL))
    folder.full = False
    assert run_until_stopped(lambda _: Job(folder, None)) == "Spark ended the query"


def test_a_job_without_a_reserve_ends_at_once() -> None:
    with pytest.raises(QuotaplaneError, match="os error 28"):
        run_until_stopped(lambda _: Job(Folder(), FULL))


def _with_rounds(path: Path) -> History:
    history = History(path=str(path))
    make_history(history)
    with HistoryWriter(history, "checkpoint-1") as writer:
        for seq in range(3):
            writer.append_round(Round(1, seq, NOON_MS + seq), full_round())
    return history


NOW = datetime(2026, 3, 2, tzinfo=timezone.utc)


def test_maintenance_does_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    history = _with_rounds(tmp_path / "history")
    free(monkeypatch, 10)
    done = {kept.table: kept for kept in maintain(history, NOW)}
    assert done["usage"].files_compacted == 0
    assert "history table usage: not compacted, as less than its " in capsys.readouterr().err
    free(monkeypatch, MB)
    done = {kept.table: kept for kept in maintain(history, NOW)}
    assert done["usage"].files_compacted == 3


_LATE = """
import os, sys, threading, time
from quotaplane.console.command_output import exit_code_of, without_library_output
from quotaplane.errors import HistoryError
from quotaplane.console.terminal import print_to_stderr
def run():
    with without_library_output():
        raise HistoryError("the disk is full")
code = exit_code_of(run, print_to_stderr)
os.write(2, b"thread 'tokio-rt-worker' panicked: Already shut down")
sys.exit(code)
"""


def test_what_a_library_prints_after_an_error_is_dropped_too() -> None:
    """deltalake's threads may print their panics when the error was raised already."""
    done = subprocess.run([sys.executable, "-c", _LATE], check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (4, b"quotaplane: error: the disk is full\n")
