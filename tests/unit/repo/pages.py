"""The pages of documentation, and what tests need of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
PAGES: Final = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])

_FENCED: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_INDENTED: Final = re.compile(r"(?:^|(?<=\n\n))(?: {4,}.*\n)+", re.MULTILINE)


def without_code_blocks(page: Path) -> str:
    """A page without its blocks of code; code within a line stays."""
    return _INDENTED.sub("\n", _FENCED.sub("", page.read_text("utf-8")))


def prose(page: Path) -> str:
    """A page without any code, and without quotations."""
    return re.sub(r"`[^`]*`|\"[^\"]*\"", "", without_code_blocks(page))
