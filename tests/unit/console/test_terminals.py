"""Terminals that lack characters, and errors that nobody foresaw: one line, and no traceback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from quotaplane.cli.main import main
from quotaplane.console.command_output import UNFORESEEN
from tests.unit.repo.pages import ROOT

NAME = "caf\u00e9 \u65e5\u672c \U0001f600"

ENCODINGS = ["ascii", "latin-1", "cp1252", "shift_jis", "koi8-r", "utf-8", "utf-16", "cp037"]

FORMS = ["--json", "--csv", "--table"]


@pytest.fixture
def history(tmp_path: Path) -> str:
    place = str(tmp_path / "history")
    put = ["groups", "put", NAME, "--publish-messages-per-s", "5", "--init", "--history", place]
    assert main(put) == 0
    return place


def printed(encoding: str, *words: str) -> tuple[int, bytes, bytes]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "pipelines"),
        "PYTHONIOENCODING": encoding,
    }
    done = subprocess.run(
        [sys.executable, "-m", "quotaplane", *words], capture_output=True, env=environment
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_terminal_that_lacks_characters(history: str, encoding: str) -> None:
    code, out, err = printed(encoding, "groups", "list", "--json", "--history", history)
    assert (code, err) == (0, b"")
    [group] = json.loads(out.decode(encoding))
    assert group["group"] == NAME


@pytest.mark.parametrize("form", FORMS)
def test_every_form(history: str, form: str) -> None:
    code, out, err = printed("ascii", "groups", "list", form, "--history", history)
    assert (code, err) == (0, b"")
    assert b"caf\\u00e9" in out


def test_an_error_names_what_the_terminal_lacks(history: str) -> None:
    code, _, err = printed("ascii", "groups", "get", "\u65e5", "--history", history)
    assert code == 2
    assert err.count(b"\n") == 1
    assert b"Traceback" not in err


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
    assert main(["allocate", "-"]) == UNFORESEEN
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
    assert main(["allocate", "-"]) == UNFORESEEN
    assert "its traceback can't be written (No such file" in capsys.readouterr().err
