"""The record of all nights, docs/measured/nightly.csv: a row for each item."""

from __future__ import annotations

import csv
import fcntl
import subprocess
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from benchmarks.tables import csv_of

_CODE: Final = ("pipelines", "tests", "schemas", "conf", "jobs", "deploy")
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
    """Commit of the last turn; with a + the files had other changes."""
    date: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Names the item."""
        return self.part, self.item


Rows = dict[tuple[str, str], Row]


class Record:
    """The record of a repository, which stands in its folder ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "docs/measured/nightly.csv"

    def read(self) -> Rows:
        """All rows."""
        if not self.file.exists():
            return {}
        with self.file.open(encoding="utf-8", newline="") as file:
            rows = TypeAdapter(list[Row]).validate_python(list(csv.DictReader(file)))
        return {row.key: row for row in rows}

    def change(self, part: str, item: str, change: Callable[[Row], Row]) -> Rows:
        """Replace a row, beside other nights that do the same; returns all."""
        with self._locked():
            rows = self.read()
            rows[part, item] = change(rows.get((part, item), Row(part, item)))
            self._write(rows)
        return rows

    def drop_all_but(self, keys: Collection[tuple[str, str]]) -> None:
        """Remove the rows of items that are gone."""
        with self._locked():
            self._write({key: row for key, row in self.read().items() if key in keys})

    @contextmanager
    def _locked(self) -> Iterator[None]:
        (self.root / "build").mkdir(exist_ok=True)
        with (self.root / "build/nightly.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _write(self, rows: Rows) -> None:
        if rows:
            self.file.write_text(csv_of(asdict(rows[key]) for key in sorted(rows)), "utf-8")

    def commit_now(self) -> str:
        """The commit of the code; with a + it has other changes."""
        commit = self._git("rev-parse", "--short=8", "HEAD").stdout.strip()
        return commit if self._unchanged_since(commit) else f"{commit}+"

    def passed_now(self) -> set[tuple[str, str]]:
        """The items whose last turn passed on the present code."""
        passed = [row for row in self.read().values() if row.passed]
        commits = {row.commit for row in passed if not row.commit.endswith("+")}
        present = {commit for commit in commits if self._unchanged_since(commit)}
        return {row.key for row in passed if row.commit in present}

    def _unchanged_since(self, commit: str) -> bool:
        return self._git("diff", "--quiet", commit, "--", *_CODE).returncode == 0

    def _git(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["git", *words]
        return subprocess.run(command, cwd=self.root, check=False, capture_output=True, text=True)
