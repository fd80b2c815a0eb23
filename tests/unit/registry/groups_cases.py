"""Helpers for tests of `quotaplane groups`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from quotaplane.cli.main import main
from quotaplane.history.store import open_table
from quotaplane.model import RATE_COLUMNS, FloatArray
from quotaplane.registry.table import list_groups
from quotaplane.settings import History
from tests.histories import make_history

NAN = float("nan")


class Command:
    """Runs `quotaplane groups ... --history`, as a user would."""

    def __init__(self, history: History, capsys: pytest.CaptureFixture[str]) -> None:
        self._history = history
        self._capsys = capsys

    def __call__(self, action: str, *words: str) -> Any:
        """Run a command that must succeed; returns its answer. A put creates the history.

        Of a put's answer only the group as it is now, or the number of groups in a file.
        """
        if action != "put":
            return self.answer(action, *words)
        make_history(self._history)
        answer = self.answer(action, *words)
        if "groups" in answer:
            return {"groups": answer["groups"]}
        return {key: value for key, value in answer.items() if key not in ("result", "changes")}

    def answer(self, action: str, *words: str) -> Any:
        """Run a command that must succeed; returns all of its answer."""
        return json.loads(self.text(action, *words))

    def text(self, action: str, *words: str, code: int = 0) -> str:
        """Run a command that must succeed; returns what it prints."""
        ended = main(["groups", action, *words, "--history", self._history.path])
        out, err = self._capsys.readouterr()
        assert (ended, err) == (code, "")
        return str(out)

    def refused(self, action: str, *words: str) -> str:
        """Run a command that must exit with 2; returns its one line on stderr."""
        code = main(["groups", action, *words, "--history", self._history.path])
        out, err = self._capsys.readouterr()
        assert (code, out, err.count("\n")) == (2, "", 1)
        return str(err.removeprefix("quotaplane: error: ").rstrip("\n"))


def warned(
    history: History, capsys: pytest.CaptureFixture[str], group: str, *words: str
) -> list[str]:
    """Run a put that must succeed; returns its warnings."""
    make_history(history)
    assert main(["groups", "put", group, *words, "--history", history.path]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["group"] == group
    return [line.removeprefix("quotaplane: warning: ") for line in err.splitlines()]


def rates(row: dict[str, Any]) -> list[float | None]:
    return [row[name] for name in RATE_COLUMNS]


def quota(*given: float) -> FloatArray:
    return np.array([[*given, *[NAN] * (len(RATE_COLUMNS) - len(given))]])


def names(history: History) -> list[str]:
    """The groups there are."""
    found: list[str] = list_groups(history)["group"].to_pylist()
    return found


def version(history: History) -> int:
    """The version of their table."""
    return int(open_table(history, "resource_groups").version())
