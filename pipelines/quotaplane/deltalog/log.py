"""The files of a Delta table's log: lists and parses them.

Only for tables in local folders. On an object store a file exists completely or not at all.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final, NamedTuple
from urllib.parse import unquote

from quotaplane.parsing.folders import local_folder as local_folder  # for all that use this module

LOG: Final = "_delta_log"
LAST_CHECKPOINT: Final = "_last_checkpoint"
_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")
MOST_BYTES: Final = 1 << 28
"""A larger commit is not read: nothing here makes one, and parsing takes ten times as much."""
_MOST_MISSING: Final = 10_000
"""A version that is further from the one before does not belong to the table."""
_NO_FILE: Final = "is no regular file"
_YEAR_10000_MS: Final = 253_402_300_800_000

UNEXPECTED: Final = (
    *(ValueError, KeyError, TypeError, AttributeError),
    *(OverflowError, RecursionError),  # of numbers beyond all bounds, and of deep JSON
)
"""Raised by values that no writer makes."""

_COUNTS: Final = (
    ("num_added_files", "num_removed_files"),
    ("num_target_files_added", "num_target_files_removed"),
    ("numFilesAdded", "numFilesRemoved"),
)
"""delta-rs' names for the numbers of files that a commit adds and removes: for WRITE and DELETE,
for MERGE, for OPTIMIZE. Change data counts as added."""


_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def inside(path: str) -> str:
    """A data file's path, if it is relative to the table and stays in its folder.

    The Delta protocol allows others. No writer of these tables makes them, and a reader that
    followed one would read, move or delete files that are not the table's.

    Raises:
        OSError: it is absolute, a URL, or has a part ``..``.

    >>> inside("date=2026-03-01/part-0.parquet")
    'date=2026-03-01/part-0.parquet'
    """
    if path.startswith("/") or _SCHEME.match(path) or ".." in path.split("/") or "\0" in path:
        raise OSError(f"names {path[:200]!r}, which is outside the table's folder")
    return path


class DataFile(NamedTuple):
    """A data file in a commit or checkpoint; ``path`` is relative to the table."""

    path: str
    size: int
    rows: int

    @classmethod
    def of(cls, action: Mapping[str, Any]) -> DataFile:
        """The file of an ``add`` or ``cdc`` action.

        Raises:
            OSError: it is outside the table's folder.
            UNEXPECTED: something of it is missing or damaged.
        """
        stats = json.loads(action.get("stats") or "{}")
        size, rows = _count(action["size"]), _count(stats.get("numRecords", 0))
        return cls(inside(unquote(action["path"])), size, rows)


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError("not a number of rows or bytes")
    return value


class Commit(NamedTuple):
    """The content of a commit."""

    added: tuple[DataFile, ...]
    removed: tuple[str, ...]
    change_data: tuple[DataFile, ...]
    info: dict[str, Any]

    @property
    def rows(self) -> int:
        """Number of rows in its files, from their statistics."""
        return sum(file.rows for file in self.added)


class Log(NamedTuple):
    """The files of a log."""

    folder: Path
    """The table's folder."""
    commits: dict[int, int]
    """Size in bytes of each commit, by version."""
    checkpoints: dict[int, int]
    """Size in bytes of each checkpoint, by version."""
    strangers: Mapping[str, str] = MappingProxyType({})
    """Entries that no writer makes, with the problem, by name; also commits and checkpoints."""

    def commit(self, version: int) -> Path:
        """The path of a commit."""
        return self.folder / LOG / f"{version:020d}.json"

    def checkpoint(self, version: int) -> Path:
        """The path of a checkpoint."""
        return self.folder / LOG / f"{version:020d}.checkpoint.parquet"

    @property
    def newest(self) -> int:
        """The newest version; -1 if there is none."""
        return max((*self.commits, *self.checkpoints), default=-1)

    @property
    def newest_checkpoint(self) -> int:
        """The version of the newest checkpoint; -1 if there is none."""
        return max(self.checkpoints, default=-1)


def list_log(folder: Path) -> Log:
    """The log of a table; empty if the folder has none."""
    log, strangers = Log(folder, {}, {}), dict[str, str]()
    try:
        entries = list(os.scandir(folder / LOG))
    except (FileNotFoundError, NotADirectoryError):
        return log
    for entry in entries:
        # A reader would wait for a FIFO, and read a device for ever; links are followed.
        if not (entry.is_file() or entry.is_dir()) and os.path.lexists(entry.path):
            strangers[entry.name] = _NO_FILE
        for pattern, sizes in ((_COMMIT, log.commits), (_CHECKPOINT, log.checkpoints)):
            match = pattern.fullmatch(entry.name)
            if match:
                try:
                    sizes[int(match[1])] = entry.stat().st_size
                except FileNotFoundError:  # cleaned up meanwhile
                    continue
    return log._replace(strangers=strangers | _without_far(log))


def _without_far(log: Log) -> dict[str, str]:
    """Take versions out of a log that do not belong to it; their names, with the problem.

    Loops over versions would not end. Versions behind a gap belong to the table if a checkpoint,
    and commits from there on, make those before superfluous.
    """
    for before, version in pairwise(sorted({*log.commits, *log.checkpoints})):
        base = min((at for at in log.checkpoints if at >= version), default=None)
        continued = base is not None and any(at >= base for at in log.commits)
        if version - before > _MOST_MISSING and not continued:
            problem = f"is {version - before} versions after the one before"
            far = [log.commit(at) for at in log.commits if at >= version]
            far += [log.checkpoint(at) for at in log.checkpoints if at >= version]
            for sizes in (log.commits, log.checkpoints):
                for at in [at for at in sizes if at >= version]:
                    del sizes[at]
            return {file.name: problem for file in far}
    return {}


def open_regular(path: Path) -> IO[bytes]:
    """Open a file to read, but no FIFO, device or folder, whose reader would wait or never end.

    Raises:
        FileNotFoundError: there is none.
        OSError: the disk does not let it be read.
        ValueError: it is no regular file; the message is to follow its name.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(_NO_FILE)
    return os.fdopen(descriptor, "rb")


def read_commit(path: Path) -> Commit:
    """Read a commit's file.

    Raises:
        FileNotFoundError: there is none.
        OSError: it can't be read, or is larger than any that is made.
        ValueError: as of ``parse_commit``, or it is no regular file.
    """
    with open_regular(path) as opened:
        size = os.fstat(opened.fileno()).st_size
        if size > MOST_BYTES:
            raise OSError(f"{path}: has {size} bytes; a commit of {MOST_BYTES} or fewer is read")
        return parse_commit(opened.read(MOST_BYTES))


def commit_time(info: Mapping[str, Any]) -> datetime:
    """When a commit was made, by its ``commitInfo`` or an entry of delta-rs' ``history``.

    Raises:
        ValueError: it does not say, or not a time of the years 1970 to 9999.

    >>> commit_time({"timestamp": 1_772_366_400_000}).isoformat()
    '2026-03-01T12:00:00+00:00'
    """
    made_ms = info.get("timestamp")
    if type(made_ms) is not int or not 0 <= made_ms < _YEAR_10000_MS:
        version = info.get("version")
        name = f"{version:020}.json" if isinstance(version, int) else "a commit"
        raise ValueError(f"{LOG}/{name} has the timestamp {made_ms!r:.40}, which is no time")
    return datetime.fromtimestamp(made_ms / 1000, tz=timezone.utc)


def parse_commit(raw: bytes) -> Commit:
    """Parse a commit.

    Raises:
        ValueError: it is incomplete, or names files outside the table's folder; the message is to
            follow the file's name.
    """
    if not raw.strip():
        raise ValueError("is empty")
    added, removed, change_data = [], [], []
    info: dict[str, Any] = {}
    for number, line in enumerate(raw.splitlines(), 1):
        try:
            if not line.strip():
                continue
            ((kind, action),) = json.loads(line).items()
            if kind == "add":
                added.append(DataFile.of(action))
            elif kind == "remove":
                removed.append(inside(unquote(action["path"])))
            elif kind == "cdc":
                change_data.append(DataFile.of(action))
            elif kind == "commitInfo":
                info = dict(action)
        except OSError as error:
            raise ValueError(f"{error} (line {number})") from None
        except UNEXPECTED:
            raise ValueError(f"is cut off or damaged in line {number}") from None
    commit = Commit(tuple(added), tuple(removed), tuple(change_data), info)
    _check_counts(commit)
    return commit


def _check_counts(commit: Commit) -> None:
    # A commit that was cut off at the end of a line parses without errors. delta-rs writes the
    # numbers of files into the first line, so compare these.
    metrics = commit.info.get("operationMetrics")
    if not str(commit.info.get("engineInfo", "")).startswith("delta-rs") or metrics is None:
        return
    if not isinstance(metrics, Mapping):
        raise ValueError("is damaged: operationMetrics are no numbers by name")
    added = len(commit.added) + len(commit.change_data)
    for adds, removes in _COUNTS:
        if (metrics.get(adds, added), metrics.get(removes, len(commit.removed))) != (
            added,
            len(commit.removed),
        ):
            raise ValueError("is cut off: it names fewer files than it says")


def stamp(folder: Path, version: int) -> tuple[int, int, int] | None:
    """Numbers that change with a table, if its newest version is this one; None if it is another.

    Needs two calls to the disk, however long the log is. ``doctor --mend`` replaces a commit and
    keeps the number of its version, so the commit itself counts, too.
    """
    log = Log(folder, {}, {})
    if log.commit(version + 1).exists():
        return None
    try:
        found = log.commit(version).stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
