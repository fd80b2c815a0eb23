"""Repairs a Delta table in a folder. Broken files are moved aside, not deleted."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import DeltaTable

from quotaplane.deltalog.checksums import record
from quotaplane.deltalog.diagnose import Mending
from quotaplane.deltalog.durable import Synced
from quotaplane.deltalog.log import LAST_CHECKPOINT, LOG, Log, inside, list_log, read_commit
from quotaplane.files import fsync


def mend(folder: Path, mending: Mending, aside: Path) -> None:
    """Carry out a diagnosis, while no other process writes to the table.

    If it is interrupted, the table is at most as broken as before, and another run can continue.

    Args:
        folder: the table's folder.
        mending: from a recent ``diagnose``.
        aside: folder for the broken files, which keep their relative paths; on the same file
            system.

    Raises:
        DeltaError, OSError: it failed.
    """
    log = list_log(folder)
    for name in mending.strangers:
        _set_aside(folder, folder / LOG / name, aside)
    for version in mending.checkpoints:
        _set_aside(folder, log.checkpoint(version), aside)
    if mending.hint:
        _set_aside(folder, folder / LOG / LAST_CHECKPOINT, aside)
    if mending.cut or mending.log:
        # A vacuum would delete files that no commit names, and without a log they look like a table
        # that has lost it.
        named = set() if mending.log else _named(folder, mending.emptied)
        for file in list(folder.rglob("*.parquet")):
            if LOG not in file.parts and str(file.relative_to(folder)) not in named:
                _set_aside(folder, file, aside)
    if mending.log:
        _set_aside(folder, folder / LOG, aside)
        return
    # The last commit first: until the first one is replaced, the table is recognisably broken.
    for version in sorted(mending.emptied, reverse=True):
        _empty(folder, log.commit(version), aside)
    for path in mending.taken_out:
        _set_aside(folder, folder / path, aside)
    if mending.taken_out:
        before = DeltaTable(folder).version()
        _take_out(folder, before + 1, mending.taken_out)
        Synced(str(folder)).upto(before + 1, before=before)


def _set_aside(folder: Path, path: Path, aside: Path) -> None:
    target = aside / path.relative_to(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.rename(target)
    except FileNotFoundError:
        return
    for parent in target.parents:  # up to a folder that existed before
        fsync(parent)
        if parent in folder.parents:
            break
    fsync(path.parent)


def _info(now_ms: int) -> dict[str, Any]:
    """The action of a commit that says how it was made."""
    return {
        "commitInfo": {
            "timestamp": now_ms,
            "operation": "MEND",
            "operationParameters": {},
            "engineInfo": "quotaplane doctor",
        }
    }


def _take_out(folder: Path, version: int, paths: Iterable[str]) -> None:
    """Make the version without some files.

    As a change of no row: readers of changes would look for the rows in the files, and fail; and
    groups whose rows are lost can be restored from the changes.
    """
    now_ms = time.time_ns() // 1_000_000
    removed = (
        {"remove": {"path": path, "deletionTimestamp": now_ms, "dataChange": False}}
        for path in paths
    )
    _commit(folder, version, [_info(now_ms), *removed])


def _commit(folder: Path, version: int, actions: Sequence[Mapping[str, Any]]) -> None:
    """Write a version's actions to the log, all or nothing."""
    text = "".join(json.dumps(action, ensure_ascii=False) + "\n" for action in actions)
    begun = folder / LOG / f"_commit_{uuid.uuid4()}.json.tmp"
    try:
        begun.write_text(text, encoding="utf-8")
        os.link(begun, Log(folder, {}, {}).commit(version))
    finally:
        begun.unlink(missing_ok=True)


def _empty(folder: Path, commit: Path, aside: Path) -> None:
    empty = commit.with_suffix(".mended")
    info = _info(time.time_ns() // 1_000_000)
    empty.write_text(json.dumps(info) + "\n", encoding="utf-8")
    fsync(empty)
    _set_aside(folder, commit, aside)
    os.replace(empty, commit)
    fsync(commit.parent)
    record(folder, [commit], anew=True)


def _named(folder: Path, without: Collection[int]) -> set[str]:
    """The data files, live or not, that the log names, ignoring some commits."""
    log = list_log(folder)
    named: set[str] = set()
    for version in log.commits.keys() - set(without):
        commit = read_commit(log.commit(version))
        named |= {file.path for file in (*commit.added, *commit.change_data)} | {*commit.removed}
    for version in log.checkpoints:
        with pq.ParquetFile(log.checkpoint(version)) as file:
            actions = file.read(columns=["add.path", "remove.path"])
        for kind in ("add", "remove"):
            entries = actions[kind].to_pylist()
            named |= {inside(unquote(action["path"])) for action in entries if action is not None}
    return named
