"""Checks whether a streaming query can continue from its checkpoint folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from quotaplane.deltalog.diagnose import Finding

_LOSS: Final = "can't be mended: start the job with a new checkpoint folder (docs/runbook.md)"
_NOTE: Final = "quotaplane.json"
_VERSION: Final = "v1"
"""The first line of each file in Spark's logs of a query."""


def checkpoint_findings(folder: Path, tables: Sequence[Path]) -> list[Finding]:
    """The problems of a checkpoint folder; ``tables`` are those that its query may read.

    Spark does not wait for the disk, so after a power loss the newest files may be empty, or the
    checkpoint and the tables may not match.

    Raises:
        OSError: a file can't be read.
    """
    problems = dict(_problems(folder, tables))
    return [Finding(file, problem, _LOSS) for file, problem in problems.items()]


def _problems(folder: Path, tables: Sequence[Path]) -> Iterator[tuple[str, str]]:
    for name in (_NOTE, "metadata"):
        try:
            json.loads((folder / name).read_bytes())
        except FileNotFoundError:
            yield name, "is missing"
        except ValueError:
            yield name, "is empty or cut off"
    for log in ("offsets", "commits"):
        for file in _newest(folder / log):
            lines = file.read_text("utf-8", "replace").splitlines()
            if not lines or lines[0] != _VERSION:
                yield f"{log}/{file.name}", "is empty or cut off"
    for file in _newest(folder / "offsets")[:1]:
        yield from _ahead(file, tables)


def _newest(folder: Path) -> list[Path]:
    """The two newest files of one of Spark's logs, the newest first."""
    files = [file for file in folder.glob("*") if file.name.isdigit()]
    return sorted(files, key=lambda file: int(file.name), reverse=True)[:2]


def _ahead(offsets: Path, tables: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Tables that end before what the query has read: it would skip their next rows."""
    read: dict[str, int] = {}
    for line in offsets.read_text("utf-8", "replace").splitlines():
        try:
            source: Any = json.loads(line)
            read[source["reservoirId"]] = int(source["reservoirVersion"])
        except (ValueError, KeyError, TypeError):
            continue
    for folder in tables:
        try:
            table = DeltaTable(folder)
            version, identity = table.version(), str(table.metadata().id)
        except (DeltaError, OSError):
            continue
        # Offsets name the next version to read, so one version more is correct.
        if read.get(identity, 0) > version + 1:
            yield (
                f"offsets/{offsets.name}",
                f"says that {folder.name} was read up to version {read[identity]}, but its newest "
                f"version is {version}",
            )
