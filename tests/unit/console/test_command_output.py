"""Output that can't be written or lacks characters, and unforeseen errors: one line at most.

Each has a documented exit code, and none prints a traceback.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from quotaplane.cli import agent_process
from quotaplane.cli.main import main
from quotaplane.console.command_output import command_output
from quotaplane.console.terminal import inform, warn
from quotaplane.errors import OutputError
from tests.job import environment
from tests.virtual_loop import run_virtually

FULL = "quotaplane: error: stdout can't be written: No space left on device\n"
CLOSED = "quotaplane: error: stdout is closed; nothing was done (> /dev/null discards the output)\n"


@pytest.fixture
def case(tmp_path: Path) -> str:
    """The file of a case whose answer is long."""
    file = tmp_path / "case.json"
    brokers = {f"b{i}": {"usage": i} for i in range(3000)}
    file.write_text(json.dumps({"quota": 1000, "brokers": brokers}))
    return str(file)


def ended(
    redirections: str, *argv: str, unbuffered: bool = False, stdout: int = subprocess.PIPE
) -> tuple[int, str]:
    """The command's exit code and stderr; its stdout is what ``redirections`` make of a pipe."""
    shell = ["sh", "-c", f'exec "$@" {redirections}', "sh"]
    done = subprocess.run(
        [*shell, sys.executable, "-m", "quotaplane", *argv],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        # The empty text is as none at all.
        env=environment(PYTHONUNBUFFERED="1" if unbuffered else ""),
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("unbuffered", [False, True])
def test_an_answer_that_fits_nowhere(case: str, unbuffered: bool) -> None:
    assert ended("> /dev/full", "allocate", case, unbuffered=unbuffered) == (9, FULL)


@pytest.mark.parametrize("unbuffered", [False, True])
def test_a_help_that_fits_nowhere(unbuffered: bool) -> None:
    """argparse itself ignores a stdout that can't be written."""
    assert ended("> /dev/full", "balance", "--help", unbuffered=unbuffered) == (9, FULL)


@pytest.mark.parametrize("argv", [["balance", "none.json"], ["--help"]])
def test_a_closed_stdout_is_refused_before_anything_is_done(argv: list[str]) -> None:
    assert ended(">&-", *argv) == (9, CLOSED)


def test_a_reader_that_left_ends_the_command_quietly(case: str) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        code, err = ended("", "allocate", case, stdout=write)
    finally:
        os.close(write)
    assert (code, err) == (141, "")


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
    asked: list[float] = []

    async def watch() -> None:
        now_s = asyncio.get_running_loop().time

        def status() -> dict[str, int]:
            asked.append(now_s())
            return {}

        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(agent_process.print_status(status), 35.0)

    with pytest.raises(OutputError), command_output():
        run_virtually(watch())
    assert asked == [10.0, 20.0, 30.0]


def test_a_broken_pipe_elsewhere_is_no_quiet_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr("quotaplane.cli.allocate.run", broken)
    assert main(["allocate", "-"]) == 70


def test_messages_for_a_stderr_that_is_full_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", _FullStream())
    inform("done")
    warn("late")


NAME = "caf\u00e9 \u65e5\u672c \U0001f600"

ENCODINGS = ["ascii", "latin-1", "cp1252", "shift_jis", "koi8-r", "utf-8", "utf-16", "cp037"]

FORMS = ["--json", "--csv", "--table"]


@pytest.fixture
def place(tmp_path: Path) -> str:
    place = str(tmp_path / "history")
    put = ["groups", "put", NAME, "--publish-messages-per-s", "5", "--init", "--history", place]
    assert main(put) == 0
    return place


def printed(encoding: str, *words: str) -> tuple[int, bytes, bytes]:
    """The exit code of a command, and the bytes of its stdout and stderr on such a terminal."""
    out, err = io.BytesIO(), io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        for name, stream, errors in (("out", out, "strict"), ("err", err, "backslashreplace")):
            text = io.TextIOWrapper(stream, encoding, errors, write_through=True)
            patch.setattr(f"sys.std{name}", text)
        code = main(words)
        return code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_terminal_that_lacks_characters(place: str, encoding: str) -> None:
    code, out, err = printed(encoding, "groups", "list", "--json", "--history", place)
    assert (code, err) == (0, b"")
    [group] = json.loads(out.decode(encoding))
    assert group["group"] == NAME


@pytest.mark.parametrize("form", FORMS)
def test_every_form(place: str, form: str) -> None:
    code, out, err = printed("ascii", "groups", "list", form, "--history", place)
    assert (code, err) == (0, b"")
    assert b"caf\\u00e9" in out


def test_an_error_names_what_the_terminal_lacks(place: str) -> None:
    code, _, err = printed("ascii", "groups", "get", "\u65e5", "--history", place)
    assert code == 2
    assert err.count(b"\n") == 1
    assert b"\\u65e5" in err


class Unforeseen(BaseException):
    """As a panic of deltalake, which is no ``Exception``."""


@pytest.mark.parametrize("error", [ZeroDivisionError("a\nb"), Unforeseen("x" * 5000)])
def test_an_unforeseen_error_is_one_line_and_a_file(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    error: BaseException,
) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("quotaplane.cli.allocate.run", fail)
    assert main(["allocate", "-"]) == 70
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert len(err) < 1000
    assert err.startswith(f"quotaplane: error: a bug: {type(error).__name__}: ")
    [file] = tmp_path.glob("quotaplane-*.traceback")
    assert re.search(rf"which is in {re.escape(str(file))}\n", err)
    assert "in fail" in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


def test_without_a_place_for_the_traceback_the_line_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    monkeypatch.setattr("quotaplane.cli.allocate.run", lambda _: 1 // 0)
    assert main(["allocate", "-"]) == 70
    assert "its traceback can't be written (No such file" in capsys.readouterr().err
