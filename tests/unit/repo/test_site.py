"""The documentation builds as a site: each link and anchor leads somewhere, each page is in it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.repo.pages import ROOT

CONFIG = ROOT / "mkdocs.yml"
DOCS = ROOT / "docs"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="zensical needs 3.11")
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    shutil.copy(CONFIG, tmp_path)
    shutil.copytree(DOCS, tmp_path / "docs")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = [*(tmp_path / "build/site").rglob("*.html")]
    assert len(pages) > 50
    assert not [page for page in pages if 'src="http' in page.read_text("utf-8")]


def test_each_page_is_in_the_navigation() -> None:
    """The builder does not look for that."""
    text = CONFIG.read_text("utf-8")
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    assert not sorted(page for page in pages if f" {page}\n" not in text)
