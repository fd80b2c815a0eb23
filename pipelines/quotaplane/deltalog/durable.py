"""Keeping commits through a power loss: delta-rs writes files and leaves it to the system when they
reach the disk.

What a writer acknowledges must be there before: the data files, the commits that name them, and the
folders' entries of both. A commit may appear on the disk before its data, or empty; but then nobody
was told that it succeeded, and ``quotaplane doctor`` takes it back.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from deltalake import DeltaTable, PostCommitHookProperties

from quotaplane.deltalog.log import LAST_CHECKPOINT, LOG, Log, list_log, local_folder, parse_commit

COMMIT_ONLY: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""For every commit: by itself the package makes a checkpoint right after it and deletes the commits
before, of which a power loss would then leave nothing. And when that fails, so does what was
committed."""


def fsync(path: Path) -> None:
    """Return when a file's bytes, or a folder's entries, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some file systems sync folders by themselves, and refuse to be asked.
        if error.errno not in (errno.EINVAL, errno.EBADF) or not path.is_dir():
            raise
    finally:
        os.close(handle)


class Synced:
    """Knows up to which version a table is on the disk. On an object store it always is."""

    def __init__(self, uri: str) -> None:
        self._folder = local_folder(uri)
        self._version: int | None = None
        self._failure: OSError | None = None

    def upto(self, version: int, *, before: int) -> None:
        """Return when all commits up to ``version`` are on the disk, whoever made them.

        Another writer's as well: a commit of which an earlier one is lost is lost, too. At first
        that is all since the last checkpoint, later what came since the last call.

        Args:
            version: the newest that the caller has seen.
            before: one that was there before the caller's own commits: a checkpoint may have been
                made after these, and says nothing of whether their data is on the disk.

        Raises:
            OSError: the disk did not take them, now or before: asked again, the system says that
                all is well, having forgotten what it could not write.
        """
        if self._folder is None:
            return
        if self._failure is not None:
            raise self._failure
        try:
            self._sync(self._folder, version, before)
        except OSError as error:
            self._failure = error
            raise

    def _sync(self, folder: Path, version: int, before: int) -> None:
        since = self._version
        if since is None:
            log = list_log(folder)
            if log.checkpoints:
                _each([log.checkpoint(log.newest_checkpoint)])
            since = min(log.newest_checkpoint, before)
        if since < version:
            _sync(Log(folder, {}, {}), range(since + 1, version + 1))
        self._version = max(since, version)


def _sync(log: Log, versions: range) -> None:
    commits = [log.commit(version) for version in versions]
    files = [log.folder / name for commit in commits for name in _names(commit)]
    _each(files)
    folders = {folder for file in files for folder in file.parents if log.folder in folder.parents}
    _each((*sorted(folders), log.folder))
    _each((*commits, log.folder / LOG))
    if 0 in versions:
        for folder in log.folder.parents:
            with suppress(PermissionError):  # it was there before
                fsync(folder)


def _each(paths: Iterable[Path]) -> None:
    for path in paths:
        # Compacted, or behind a checkpoint, and deleted since.
        with suppress(FileNotFoundError):
            fsync(path)


def _names(commit: Path) -> list[str]:
    try:
        made = parse_commit(commit.read_bytes())
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise OSError(f"{commit} {error}") from None
    return [file.path for file in (*made.added, *made.change_data)]


def checkpoint(table: DeltaTable, uri: str) -> None:
    """Make a checkpoint at the table's version, then delete the commits that have expired.

    In this order: until the checkpoint is on the disk the commits before it are all there is.

    Raises:
        DeltaError: it could not be made.
        OSError: the disk did not take it.
    """
    table.create_checkpoint()
    folder = local_folder(uri)
    if folder is not None:
        log = Log(folder, {}, {})
        fsync(log.checkpoint(table.version()))
        fsync(folder / LOG / LAST_CHECKPOINT)
        fsync(folder / LOG)
    table.cleanup_metadata()
