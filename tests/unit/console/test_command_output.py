"""Commands whose stdout or stderr can't be written: one line at most, and a documented code."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quotaplane.cli import agent_process
from quotaplane.cli.main import main
from quotaplane.console.command_output import UNFORESEEN, command_output
from quotaplane.console.terminal import inform, warn
from quotaplane.errors import OutputError
from tests.unit.repo.pages import ROOT

FULL = "quotaplane: error: stdout can't be written: No space left on device\n"
CLOSED = "quotaplane: error: stdout is closed; nothing was done (> /dev/null discards the output)\n"

CASES: dict[str, object] = {
    "allocate": {"quota": 1000, "brokers": {f"b{i}": {"usage": i} for i in range(3000)}},
    "balance": {"rounds": [{}]},
}


@pytest.fixture
def case(tmp_path: Path) -> dict[str, str]:
    """A case's file by subcommand."""
    for command, case in CASES.items():
        (tmp_path / f"{command}.json").write_text(json.dumps(case))
    return {command: str(tmp_path / f"{command}.json") for command in CASES}


def ended(redirections: str, *argv: str, unbuffered: bool = False) -> tuple[int, str]:
    """The command's exit code and stderr; its stdout is what ``redirections`` make of a pipe."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "pipelines")}
    environment.pop("PYTHONUNBUFFERED", None)
    if unbuffered:
        environment["PYTHONUNBUFFERED"] = "1"
    shell = ["sh", "-c", f'exec "$@" {redirections}', "sh"]
    done = subprocess.run(
        [*shell, sys.executable, "-m", "quotaplane", *argv],
        capture_output=True,
        text=True,
        env=environment,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize("command", CASES)
def test_an_answer_that_fits_nowhere(case: dict[str, str], command: str, unbuffered: bool) -> None:
    assert ended("> /dev/full", command, case[command], unbuffered=unbuffered) == (9, FULL)


@pytest.mark.parametrize("unbuffered", [False, True])
def test_a_help_that_fits_nowhere(unbuffered: bool) -> None:
    """argparse itself ignores a stdout that can't be written."""
    assert ended("> /dev/full", "balance", "--help", unbuffered=unbuffered) == (9, FULL)


@pytest.mark.parametrize("argv", [["balance", "none.json"], ["--help"]])
def test_a_closed_stdout_is_refused_before_anything_is_done(argv: list[str]) -> None:
    assert ended(">&-", *argv) == (9, CLOSED)


@pytest.mark.parametrize("command", CASES)
def test_a_reader_that_left_ends_the_command_quietly(case: dict[str, str], command: str) -> None:
    read, write = os.pipe()
    os.close(read)
    os.set_inheritable(write, True)
    try:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "pipelines")}
        done = subprocess.run(
            [sys.executable, "-m", "quotaplane", command, case[command]],
            stdout=write,
            stderr=subprocess.PIPE,
            env=environment,
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("redirections", "code"), [("2> /dev/full", 2), ("2>&-", 2), ("> /dev/full 2>&1", 9)]
)
def test_without_stderr_the_exit_code_is_that_of_the_error(redirections: str, code: int) -> None:
    argv = ["balance", "none.json"] if code == 2 else ["--version"]
    assert ended(redirections, *argv) == (code, "")


class _FullStream(io.StringIO):
    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fileno(self) -> int:
        return os.open(os.devnull, os.O_WRONLY)


def caught_failure() -> None:
    with contextlib.suppress(OutputError):
        print("a")


def test_a_failure_that_a_command_catches_is_its_end_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdout", _FullStream())
    with pytest.raises(OutputError), command_output():
        caught_failure()


def test_status_lines_that_can_not_be_written_do_not_end_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdout", _FullStream())
    monkeypatch.setattr(agent_process, "_STATUS_EVERY_S", 0.0)
    asked = 0

    def status() -> dict[str, int]:
        nonlocal asked
        asked += 1
        return {}

    async def watch() -> None:
        lines = asyncio.create_task(agent_process.print_status(status))
        while asked < 3:
            await asyncio.sleep(0)
            assert not lines.done()
        lines.cancel()

    with pytest.raises(OutputError), command_output():
        asyncio.run(watch())


def test_a_broken_pipe_elsewhere_is_no_quiet_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr("quotaplane.cli.allocate.run", broken)
    assert main(["allocate", "-"]) == UNFORESEEN


def test_messages_for_a_stderr_that_is_full_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", _FullStream())
    inform("done")
    warn("late")
