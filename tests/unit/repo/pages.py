"""The pages of documentation, and what tests need of them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Final

ROOT: Final = Path(__file__).parents[3]
REFERENCE: Final = ROOT / "docs/reference"
MARK: Final = "<!-- generated: python -m tests.unit.repo.generated -->\n"
PAGES: Final = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])

_FENCED: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_INDENTED: Final = re.compile(r"(?:^|(?<=\n\n))(?: {4,}.*\n)+", re.MULTILINE)


def without_code_blocks(page: Path) -> str:
    """A page without its blocks of code; code within a line stays."""
    return _INDENTED.sub("\n", _FENCED.sub("", page.read_text("utf-8")))


def prose(page: Path) -> str:
    """A page without any code, and without quotations."""
    return re.sub(r"`[^`]*`|\"[^\"]*\"", "", without_code_blocks(page))


def section(page: str, heading: str) -> str:
    """A section of a page of reference."""
    text = (REFERENCE / f"{page}.md").read_text("utf-8")
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def documented_codes() -> set[int]:
    """All exit codes that docs/reference/cli.md lists."""
    rows = re.findall(r"^\| (\d+)\b", section("cli", "Exit codes"), re.MULTILINE)
    return {int(code) for code in rows}


def load_script(path: Path) -> ModuleType:
    """A script that is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
