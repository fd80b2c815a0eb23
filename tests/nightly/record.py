"""What the nights have run: docs/measured/nightly.csv, a row for each item."""

from __future__ import annotations

import csv
import fcntl
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Final

from benchmarks.tables import csv_of
from tests.unit.repo.pages import ROOT

RECORD: Final = ROOT / "docs/measured/nightly.csv"
_CODE: Final = ("pipelines", "tests", "schemas", "conf", "jobs", "deploy/lock.txt")
"""A change of these makes results old."""


@dataclass(frozen=True)
class Row:
    """All turns of an item so far, and how the last one ended."""

    part: str
    item: str
    count: int = 0
    """Units."""
    minutes: float = 0.0
    failures: int = 0
    """Turns that failed."""
    next_seed: int = 0
    """The next turn begins with it."""
    passed: bool = False
    """The last turn."""
    commit: str = ""
    """Of the last turn; with a + the files had other changes."""
    date: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Names the item."""
        return self.part, self.item


Rows = dict[tuple[str, str], Row]


def read_rows() -> Rows:
    """All rows of the record."""
    if not RECORD.exists():
        return {}
    kinds: dict[str, Callable[[str], object]] = {
        "int": int,
        "float": float,
        "bool": "True".__eq__,
        "str": str,
    }
    read = {field.name: kinds[str(field.type)] for field in fields(Row)}
    with RECORD.open(encoding="utf-8", newline="") as file:
        rows = [Row(**{k: read[k](v) for k, v in row.items()}) for row in csv.DictReader(file)]  # type: ignore[arg-type]
    return {row.key: row for row in rows}


def change_row(part: str, item: str, change: Callable[[Row], Row]) -> Rows:
    """Replace a row, beside other nights that do the same; returns all."""
    with RECORD.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows = read_rows()
        rows[part, item] = change(rows.get((part, item), Row(part, item)))
        RECORD.write_text(csv_of(asdict(rows[key]) for key in sorted(rows)), encoding="utf-8")
    return rows


def commit_now() -> str:
    """The commit of the code; with a + it has other changes."""
    commit = _git("rev-parse", "--short=8", "HEAD").stdout.strip()
    return commit if _unchanged_since(commit) else f"{commit}+"


def passed_now(rows: Rows) -> set[tuple[str, str]]:
    """The items whose last turn passed on the present code."""
    commits = {row.commit for row in rows.values() if row.passed and not row.commit.endswith("+")}
    present = {commit for commit in commits if _unchanged_since(commit)}
    return {row.key for row in rows.values() if row.passed and row.commit in present}


def _unchanged_since(commit: str) -> bool:
    return _git("diff", "--quiet", commit, "--", *_CODE).returncode == 0


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=ROOT, check=False, capture_output=True, text=True)
