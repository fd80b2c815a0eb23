"""Ways in which a Delta table in a folder can be broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from deltalake import DeltaTable

from quotaplane.deltalog.log import list_log, parse_commit

Break = Callable[[Path], None]
"""Breaks the table in a folder that has the commits 0 to ``LAST``, each of which adds a file."""

LAST = 5


def commit(table: Path, version: int = LAST) -> Path:
    return list_log(table).commit(version)


def cut(file: Path, size: int = 0) -> None:
    file.write_bytes(file.read_bytes()[:size])


def added(table: Path, version: int = LAST) -> Path:
    return table / parse_commit(commit(table, version).read_bytes()).added[0].path


def checkpointed(table: Path) -> Path:
    DeltaTable(table).create_checkpoint()
    return list_log(table).checkpoint(DeltaTable(table).version())


def first_line_only(table: Path) -> None:
    file = commit(table)
    file.write_text(file.read_text("utf-8").splitlines()[0], "utf-8")


def zeros(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def hint_at_nothing(table: Path) -> None:
    checkpointed(table).unlink()


def renamed(table: Path, path: str) -> None:
    """The last commit adds its file from another place."""
    file = commit(table)
    text = file.read_text("utf-8")
    before = json.dumps(parse_commit(text.encode()).added[0].path)
    assert before in text
    file.write_text(text.replace(before, json.dumps(path)), "utf-8")


def outside(path: str) -> tuple[Break, str]:
    problem = f"{{5}}.json names {unquote(path)!r}, which is outside the table's folder"
    return (lambda t: renamed(t, path)), problem


BREAKS: dict[str, tuple[Break, str]] = {
    "the last commit is empty": (lambda t: cut(commit(t)), "{5}.json is empty"),
    "the last commit is cut off": (
        lambda t: cut(commit(t), 100),
        "{5}.json is cut off or damaged in line 1",
    ),
    "the last commit is cut off behind a line": (
        first_line_only,
        "{5}.json is cut off: it names fewer files than it says",
    ),
    "the last commit is zeros": (
        lambda t: zeros(commit(t)),
        "{5}.json is cut off or damaged in line 1",
    ),
    "the last commit leads out of the folder": outside("../other/part-0.parquet"),
    "the last commit leads out of the folder, encoded": outside("date=1/%2e%2e/%2E%2E/x.parquet"),
    "the last commit names an absolute path": outside("/etc/passwd"),
    "the last commit names a URL": outside("file:///etc/passwd"),
    "an earlier commit is empty": (lambda t: cut(commit(t, 3)), "{3}.json is empty"),
    "an earlier commit is missing": (lambda t: commit(t, 3).unlink(), "{3}.json is missing"),
    "the first commit is empty": (lambda t: cut(commit(t, 0)), "{0}.json is empty"),
    "the last data file is empty": (
        lambda t: cut(added(t)),
        "which _delta_log/{5}.json adds, has 0 bytes, the log says",
    ),
    "the last data file is missing": (
        lambda t: added(t).unlink(),
        "which _delta_log/{5}.json adds, is missing",
    ),
    "the last data file is zeros": (
        lambda t: zeros(added(t)),
        "which _delta_log/{5}.json adds, does not end as a Parquet file does",
    ),
    "the checkpoint is empty": (
        lambda t: cut(checkpointed(t)),
        "{5}.checkpoint.parquet is empty",
    ),
    "the checkpoint is cut off": (
        lambda t: cut(checkpointed(t), 500),
        "{5}.checkpoint.parquet does not end as a Parquet file does",
    ),
    "the checkpoint is missing": (
        hint_at_nothing,
        "{5}.checkpoint.parquet, which _delta_log/_last_checkpoint names, is missing",
    ),
}
"""By name: how to break the table, and the expected problem; {5} is the commit's full number."""


def expected(problem: str) -> str:
    """The problem with full numbers of commits."""
    for version in range(LAST + 1):
        problem = problem.replace(f"{{{version}}}", f"{version:020d}")
    return problem


def harmless(table: Path) -> None:
    """Leave files that a power loss may leave, and that readers can bear."""
    checkpointed(table)
    hint = table / "_delta_log" / "_last_checkpoint"
    cut(hint)
    (table / "part-00000-of-a-writer-that-was-killed.parquet").touch()
    (table / "_delta_log" / f"{LAST + 1:020d}.json.tmp").touch()
