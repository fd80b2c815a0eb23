"""Makes commits survive a power loss: delta-rs writes files but does not sync them to disk.

Before a write is acknowledged, its data files, the commits that name them, and the folder entries
of both must be on disk. A commit may reach the disk before its data, or empty; but then the write
was not acknowledged, and ``quotaplane doctor`` reverts it. Files on the disk get checksums.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from deltalake import DeltaTable, PostCommitHookProperties

from quotaplane.deltalog.checksums import record
from quotaplane.deltalog.log import LAST_CHECKPOINT, LOG, Log, list_log, local_folder, read_commit
from quotaplane.files import fsync

COMMIT_ONLY: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""For every commit. By default deltalake writes a checkpoint right after a commit and deletes the
commits before it: a power loss could then lose all of them. And if that fails, deltalake reports
the commit as failed."""


class Synced:
    """Tracks up to which version a table is on the disk. Object stores need no sync."""

    def __init__(self, uri: str) -> None:
        self._folder = local_folder(uri)
        self._version: int | None = None
        self._failure: OSError | None = None

    def upto(self, version: int, *, before: int) -> None:
        """Wait until all commits up to ``version``, of all writers, are on the disk.

        Other writers' commits count as well, because a commit is lost if an earlier one is lost.
        The first call syncs all files since the last checkpoint, later ones the new files.

        Args:
            version: the newest that the caller has seen.
            before: a version from before the caller's own commits: a later checkpoint may exist
                although the data of these commits is not on the disk yet.

        Raises:
            OSError: the disk did not accept the data, now or earlier. After a failure the system
                drops the unwritten data and would report success, so it stays an error.
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
            with suppress(PermissionError):  # an existing folder of another user
                fsync(folder)
    record(log.folder, (*files, *commits))


def _each(paths: Iterable[Path]) -> None:
    for path in paths:
        # The file was compacted, or is older than a checkpoint, and was deleted since.
        with suppress(FileNotFoundError):
            fsync(path)


def _names(commit: Path) -> list[str]:
    try:
        made = read_commit(commit)
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise OSError(f"{commit} {error}") from None
    return [file.path for file in (*made.added, *made.change_data)]


def checkpoint(table: DeltaTable, uri: str) -> None:
    """Write a checkpoint of the table's version, then delete expired commits.

    In this order, because the commits are needed until the checkpoint is on the disk. The commit of
    the version is on the disk before: to a log that has a checkpoint of its newest version, but not
    that commit, delta-rs adds nothing.

    Raises:
        DeltaError: the checkpoint could not be written.
        OSError: the disk did not accept it.
    """
    folder = local_folder(uri)
    log = None if folder is None else Log(folder, {}, {})
    if log is not None:
        _each((log.commit(table.version()), log.folder / LOG))
        made = log.checkpoint(table.version())
        is_new = not made.exists()
    table.create_checkpoint()
    if log is not None:
        fsync(made)
        record(log.folder, [made], anew=is_new)
        # Missing if a run was killed before it wrote this: deltalake makes no checkpoint twice.
        _each([log.folder / LOG / LAST_CHECKPOINT])
        fsync(log.folder / LOG)
    table.cleanup_metadata()
