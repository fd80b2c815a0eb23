"""Commands that must be refused."""

from __future__ import annotations

import pytest

from quotaplane.cli.main import main


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a command that must end with 2 and print one line, on stderr; returns the line."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err[-1:]) == ("", 1, "\n")
    assert err.startswith("quotaplane: error: ")
    return err
