"""tests/unit mirrors the packages: a folder per room, one for quotabalance, and ``repo``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.unit.repo.pages import ROOT

UNIT: Final = ROOT / "tests/unit"
ROOMS: Final = sorted(
    path for path in UNIT.iterdir() if path.is_dir() and path.name not in ("repo", "__pycache__")
)
"""``repo`` is about files."""


def _package(folder: Path) -> str:
    return "quotabalance" if folder.name == "balance" else f"quotaplane.{folder.name}"


def test_only_what_all_rooms_share_is_outside_of_them() -> None:
    assert [path.name for path in UNIT.glob("*.py")] == ["conftest.py"]


@pytest.mark.parametrize("folder", ROOMS, ids=lambda folder: folder.name)
def test_a_folder_is_a_room_and_its_tests_are_of_that_room(folder: Path) -> None:
    """A test imports from its room, or from a helper beside it."""
    package = _package(folder)
    assert (ROOT / "pipelines" / package.replace(".", "/")).is_dir()
    of_room = re.compile(
        rf"{re.escape(package)}\b|tests\.unit\.{folder.name}\."
        rf"|from quotaplane import (?:.*, )?{folder.name}\b"
    )
    assert not [
        test.name for test in folder.glob("test_*.py") if not of_room.search(test.read_text())
    ]
