"""The package as pip gets it: sdist and wheel of the files that git knows."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.unit.repo.pages import ROOT


def listed_files(*below: str) -> list[str]:
    """The files that git knows, in these folders or all, from the repository's on."""
    command = ["git", "ls-files", "-z", *below]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    names = listed.stdout.decode().rstrip("\0").split("\0")
    return [name for name in names if (ROOT / name).exists()]


def copy_repository(folder: Path) -> None:
    """Copy the files that git knows; what a build leaves is then not in the repository."""
    for name in listed_files():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)


def build(what: str, source: Path, target: Path) -> Path:
    """Run setuptools in a source tree, as pip does: ``wheel`` or ``sdist``; returns the file."""
    code = f"import setuptools.build_meta as b; print(b.build_{what}({str(target)!r}))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
    return target / done.stdout.splitlines()[-1]
