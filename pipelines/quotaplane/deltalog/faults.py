"""Finds what is broken in a Delta table, as far as a quick look shows it (``diagnose``: all of it).

Only in tables in local folders: on an object store a file exists completely or not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from quotaplane.deltalog.checksums import Checksums
from quotaplane.deltalog.log import (
    LAST_CHECKPOINT,
    LOG,
    MOST_BYTES,
    UNEXPECTED,
    DataFile,
    Log,
    list_log,
    local_folder,
    open_regular,
    read_commit,
)

_MAGIC: Final = b"PAR1"
"""The last four bytes of a Parquet file."""
NO_COMMIT: Final = "has no commit"


def file_fault(folder: Path, file: DataFile) -> str | None:
    """The fault of a data file, as text to follow its name; None if there is none.

    Its checksum is not compared.

    Raises:
        OSError: the disk does not let it be read, so it is not known.
    """
    try:
        with open_regular(folder / file.path) as opened:
            size = os.fstat(opened.fileno()).st_size
            if size != file.size:
                return f"has {size} bytes, the log says {file.size}"
            if size == 0:
                return "is empty"
            opened.seek(-len(_MAGIC), os.SEEK_END)
            return None if opened.read() == _MAGIC else "does not end as a Parquet file does"
    except FileNotFoundError:
        return "is missing"
    except ValueError as error:
        return str(error)


def find_fault(uri: str) -> str | None:
    """A fault in a table's log: the file, and what is wrong; None if none is found.

    Looks for what delta-rs and Spark don't report clearly, and would read as another table: empty
    commits, a gap, lost commits, a last commit or checkpoint that is cut off, or whose data is, and
    damaged bytes in the log. Lists the log and reads only a few files.

    Raises:
        OSError: a file can't be read.
    """
    folder = local_folder(uri)
    if folder is None:
        return None
    fault = None
    # While writers add commits, a listing may have a later commit but not an earlier one.
    for _ in range(3):
        checksums = Checksums(folder)  # before the listing: it has all commits of these then
        fault = _find_fault(list_log(folder), checksums)
        if fault is None:
            return None
    return fault


def _find_fault(log: Log, checksums: Checksums) -> str | None:
    for name, problem in log.strangers.items():
        return f"{LOG}/{name} {problem}"
    for version, size in log.commits.items():
        if size == 0:
            return f"{_named(log.commit(version))} is empty"
    if log.newest < 0:
        remains = has_remains(log.folder, checksums)
        return f"{LOG} {NO_COMMIT}, although the table's files are there" if remains else None
    base = log.newest_checkpoint
    if base >= 0:
        checkpoint = log.checkpoint(base)
        fault = file_fault(log.folder, DataFile(str(checkpoint), log.checkpoints[base], 0))
        if fault:
            return f"{_named(checkpoint)} {fault}"
    hinted = hinted_checkpoint(log)
    if hinted > base:
        return f"{_named(log.checkpoint(hinted))}, which {LOG}/{LAST_CHECKPOINT} names, is missing"
    lost = next(lost_commits(log, base, checksums.newest), None)
    if lost is not None:
        return f"{_named(log.commit(lost))} is missing"
    last = log.commit(log.newest)
    try:
        commit = read_commit(last)
    except FileNotFoundError:  # the log was cleaned up meanwhile
        return None
    except ValueError as error:
        return f"{_named(last)} {error}"
    # A vacuum may have deleted change data of versions up to the checkpoint.
    change_data = commit.change_data if log.newest > base else ()
    for file in (*commit.added, *change_data):
        fault = file_fault(log.folder, file)
        if fault:
            return f"{file.path}, which {_named(last)} adds, {fault}"
    read = [log.commit(version) for version in log.commits if version > base]
    if base >= 0:
        read.append(log.checkpoint(base))
    return checksums.first_fault(map(_named, read))


def has_remains(folder: Path, checksums: Checksums) -> bool:
    """Whether a folder without a commit has files of a table: then its log is lost."""
    return bool(checksums) or next(folder.rglob("*.parquet"), None) is not None


def lost_commits(log: Log, base: int, recorded: int) -> Iterator[int]:
    """Versions after a checkpoint whose commits are missing; its own, if it is the newest version.

    Args:
        log: the table's log.
        base: the version of the checkpoint; -1: there is none.
        recorded: the newest version whose commit has a checksum, so that it once was there.

    >>> list(lost_commits(Log(Path(), {3: 9, 4: 9, 6: 9}, {2: 9}), 2, 7))
    [5, 7]
    >>> list(lost_commits(Log(Path(), {2: 9, 3: 9}, {4: 9}), 4, -1))
    [4]
    """
    newest = max(log.newest, recorded)
    if newest == base and base not in log.commits:
        yield base
    yield from (version for version in range(base + 1, newest + 1) if version not in log.commits)


def hinted_checkpoint(log: Log) -> int:
    """The checkpoint that ``_last_checkpoint`` names; -1 if that file is absent or unreadable."""
    try:
        with open_regular(log.folder / LOG / LAST_CHECKPOINT) as opened:
            return int(json.loads(opened.read(MOST_BYTES))["version"])
    except (OSError, *UNEXPECTED):
        return -1


def _named(file: Path) -> str:
    return f"{LOG}/{file.name}"
