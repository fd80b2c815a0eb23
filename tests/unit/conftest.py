"""What several unit tests ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from quotaplane.settings import History
from tests.unit.groups_cases import Command


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A history without tables yet."""
    return History(path=str(tmp_path / "history"))


@pytest.fixture
def groups(history: History, capsys: pytest.CaptureFixture[str]) -> Command:
    """`quotaplane groups` on that history."""
    return Command(history, capsys)
