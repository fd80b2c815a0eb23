"""Fixtures that the tests of the history share."""

from __future__ import annotations

from pathlib import Path

import pytest

from quotaplane.history.store import ensure_tables
from quotaplane.settings import History


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A history whose tables are there and empty."""
    made = History(path=str(tmp_path / "history"))
    ensure_tables(made)
    return made
