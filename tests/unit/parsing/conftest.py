"""Commands that refuse their words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quotaplane.cli.main import main
from quotaplane.settings import History
from tests.histories import make_history


@pytest.fixture
def refused(history: History, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command on an empty history, which it must refuse in one line; returns the line."""
    make_history(history)

    def run(*words: str, place: str | None = None) -> str:
        assert main([*words, "--history", place or history.path]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        return str(err)

    return run
