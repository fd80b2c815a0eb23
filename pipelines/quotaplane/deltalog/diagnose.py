"""Finds all faults of a Delta table in a folder, and how to repair them.

Repair restores the table to its last complete commit. Later commits are replaced by empty ones, not
removed: a stream that has read them continues after them, but would skip new commits with the same
numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from quotaplane.deltalog.checksums import Checksums
from quotaplane.deltalog.error_text import disk_error
from quotaplane.deltalog.faults import NO_COMMIT, file_fault, hinted_checkpoint, lost_commits
from quotaplane.deltalog.log import (
    LAST_CHECKPOINT,
    LOG,
    UNEXPECTED,
    Commit,
    DataFile,
    commit_time,
    list_log,
    read_commit,
)

NOTHING: Final = "nothing"
_COPY: Final = "can't be mended: restore the table from a copy"
_SHOWN: Final = 3
"""Number of lost commits that are listed one by one."""


class Finding(NamedTuple):
    """A broken file."""

    file: str
    problem: str
    loss: str
    """The data that the repair loses, or the reason why the file can't be repaired."""


@dataclass
class Mending:
    """The steps of a repair."""

    checkpoints: list[int] = field(default_factory=list)
    """Checkpoints to move aside."""
    hint: bool = False
    """Move ``_last_checkpoint`` aside."""
    emptied: list[int] = field(default_factory=list)
    """Commits to move aside and replace by empty ones."""
    cut: bool = False
    """Some of these added data; move files aside that no commit names any more."""
    taken_out: list[str] = field(default_factory=list)
    """Data files to move aside and remove from the table."""
    strangers: list[str] = field(default_factory=list)
    """Other files of the log to move aside, which no writer makes."""
    log: bool = False
    """Move the whole log aside: the table had no rows yet, and will be created again."""

    def __bool__(self) -> bool:
        return self != Mending()


class Diagnosis(NamedTuple):
    """The state of a table."""

    version: int
    """Newest version in the log; -1 if there is none."""
    files: int
    """Number of live data files."""
    unchecked: int
    """Those without a checksum, of which damaged bytes don't show."""
    findings: list[Finding]
    mending: Mending


def diagnose(folder: Path, *, rewritten: bool) -> Diagnosis:
    """Examine every file of a table, each byte if it has a checksum.

    ``rewritten``: the table's changes rewrite its rows. With a broken data file, such a table goes
    back to before the commit that added the file, as the rows were in other files then. A table
    that only grows loses just that file, unless no complete commit follows.

    Raises:
        OSError: the disk does not let a file be read. That is no fault of the file: it may be
            intact once the disk is, so nothing must be moved aside for it.
    """
    return _Examination(folder, rewritten).diagnosis()


class _Examination:
    def __init__(self, folder: Path, rewritten: bool) -> None:
        self._checksums = Checksums(folder)  # before the log: it has all commits of these then
        self._log = list_log(folder)
        self._newest = max(self._log.newest, self._checksums.newest)
        self._rewritten = rewritten
        self._findings: list[Finding] = []
        self._mending = Mending()
        self._faults: dict[str, str | None] = {}
        self._report_strangers()
        self._base, self._first = self._whole_checkpoint()
        self._commits: dict[int, Commit] = {}
        self._unreadable: dict[int, str] = {}
        for version in sorted(self._log.commits):
            try:
                self._commits[version] = self._read(version)
            except FileNotFoundError:  # cleaned up meanwhile
                if version > self._base:
                    self._unreadable[version] = "is missing"
            except ValueError as error:
                self._unreadable[version] = str(error)
        for version in lost_commits(self._log, self._base, self._checksums.newest):
            self._unreadable.setdefault(version, "is missing")

    def _read(self, version: int) -> Commit:
        file = self._log.commit(version)
        commit = read_commit(file)
        damage = self._checksums.fault(_in_log(file))
        if damage is not None:
            raise ValueError(damage)
        return commit

    def diagnosis(self) -> Diagnosis:
        newest = self._newest
        if self._log.newest < 0:
            return Diagnosis(-1, 0, 0, [Finding(LOG, NO_COMMIT, _COPY)], Mending())
        last = self._last_readable()
        last_good = self._before_broken_data(last)
        if last_good < 0:
            return self._nothing_whole(last)
        cut = range(last_good + 1, newest + 1)
        if cut:
            self._mending.emptied += cut
            self._mending.cut = True
            self._report_cut(last_good, last, self._lost(cut))
        for version in self._unreadable:
            if version <= self._base:
                # The checkpoint has the rows, but the change feed lacks the changes.
                self._mending.emptied.append(version)
                self._report_commit(version, "its changes, for streams that have not read them")
        live = self._live(last_good)
        for path, (file, _) in live.items():
            fault = self._fault(file)
            if fault is not None:
                self._mending.taken_out.append(path)
                self._findings.append(Finding(path, fault, f"its {file.rows} rows"))
        self._report_change_data(last_good)
        unchecked = sum(self._checksums.line(path) is None for path in live)
        return Diagnosis(newest, len(live), unchecked, self._findings, self._mending)

    def _report_strangers(self) -> None:
        read = {self._log.commit(version).name for version in self._log.commits}
        read |= {self._log.checkpoint(version).name for version in self._log.checkpoints}
        for name, problem in self._log.strangers.items():
            if name not in read:  # of the others the reader says it
                self._mending.strangers.append(name)
                self._findings.append(Finding(f"{LOG}/{name}", problem, NOTHING))

    def _nothing_whole(self, last: int) -> Diagnosis:
        newest = self._newest
        loss = NOTHING if newest == 0 else _COPY
        self._mending = Mending(log=newest == 0)
        self._findings = [f._replace(loss=loss) for f in self._findings]
        self._report_cut(-1, last, loss)
        return Diagnosis(newest, 0, 0, self._findings, self._mending)

    def _whole_checkpoint(self) -> tuple[int, dict[str, DataFile]]:
        """The newest readable checkpoint, and the files that are live in it."""
        checkpoint: tuple[int, dict[str, DataFile]] = (-1, {})
        for version in sorted(self._log.checkpoints, reverse=True):
            file = self._log.checkpoint(version)
            size = self._log.checkpoints[version]
            problem = file_fault(self._log.folder, DataFile(str(file), size, 0))
            problem = problem or self._checksums.fault(_in_log(file))
            if problem is None:
                try:
                    checkpoint = version, _files_of(file)
                    break
                except (OSError, pa.ArrowException, *UNEXPECTED) as error:
                    if disk_error(error) is not None:
                        raise
                    problem = " ".join(str(error).split())
            self._mending.checkpoints.append(version)
            self._mending.hint = True
            self._findings.append(Finding(_in_log(file), problem, NOTHING))
        hinted = hinted_checkpoint(self._log)
        if hinted > self._log.newest_checkpoint:
            problem = f"names checkpoint {hinted}, which is missing"
            self._mending.hint = True
            self._findings.append(Finding(f"{LOG}/{LAST_CHECKPOINT}", problem, NOTHING))
        return checkpoint

    def _last_readable(self) -> int:
        """The last version before the first commit that is missing or can't be read."""
        broken = (version for version in self._unreadable if version > self._base)
        return min(broken, default=self._newest + 1) - 1

    def _before_broken_data(self, last: int) -> int:
        """The last usable version at or before ``last``; -1 if no table would be left."""
        last_good = last
        while last_good > self._base:
            live = self._live(last_good)
            broken = {version for file, version in live.values() if self._fault(file) is not None}
            lowest = self._lowest_to_cut(last_good, broken)
            if lowest is None:
                break
            last_good = lowest - 1
        return last_good

    def _lowest_to_cut(self, last_good: int, broken: Collection[int]) -> int | None:
        later = [version for version in broken if version > self._base]
        if self._rewritten and later:
            return min(later)
        lowest = None
        for version in range(last_good, self._base, -1):
            commit = self._commits[version]
            if version in broken or any(map(self._fault, commit.change_data)):
                lowest = version
            elif commit.added or commit.removed:
                break
        return lowest

    def _live(self, version: int) -> dict[str, tuple[DataFile, int]]:
        """The live files of a version, each with the commit that added it."""
        live = {path: (file, self._base) for path, file in self._first.items()}
        for later in range(self._base + 1, version + 1):
            for path in self._commits[later].removed:
                live.pop(path, None)
            for file in self._commits[later].added:
                live[file.path] = (file, later)
        return live

    def _fault(self, file: DataFile) -> str | None:
        if file.path not in self._faults:
            fault = file_fault(self._log.folder, file) or self._checksums.fault(file.path)
            self._faults[file.path] = fault
        return self._faults[file.path]

    def _report_cut(self, last_good: int, last: int, loss: str) -> None:
        live = self._live(last)  # a file that a later commit removed may be deleted
        for version in range(last_good + 1, last + 1):
            commit = self._commits[version]
            added = [file for file in commit.added if file.path in live]
            for file in (*added, *commit.change_data):
                fault = self._fault(file)
                if fault is not None:
                    self._findings.append(Finding(file.path, fault, loss))
        if last < self._newest:
            self._report_commit(last + 1, loss)

    def _report_commit(self, version: int, loss: str) -> None:
        problem = self._unreadable.get(version, "is missing")
        self._findings.append(Finding(_in_log(self._log.commit(version)), problem, loss))

    def _report_change_data(self, last_good: int) -> None:
        for version, commit in self._commits.items():
            if version > last_good:
                continue
            for file in commit.change_data:
                # A vacuum may have deleted change data of versions up to the checkpoint.
                is_old = version <= self._base
                fault = self._checksums.fault(file.path) if is_old else self._fault(file)
                if fault is not None:
                    loss = f"can't be mended: the change feed can't be read past version {version}"
                    self._findings.append(Finding(file.path, fault, loss))

    def _lost(self, versions: range) -> str:
        lost = [self._described(version) for version in versions[:_SHOWN]]
        more = len(versions) - len(lost)
        rows = sum(self._commits[v].rows for v in versions if v in self._commits)
        if more:
            lost.append(f"{more} more up to {versions[-1]}")
        if rows:
            lost.append(f"{rows} rows in all that can be read")
        return "; ".join(lost)

    def _described(self, version: int) -> str:
        commit = self._commits.get(version)
        if commit is None:
            return f"commit {version}, which can't be read"
        info: Mapping[str, object] = commit.info
        by = f" by {info['userName']}" if "userName" in info else ""
        return f"commit {version}{by}{_at(info)}"


def _files_of(checkpoint: Path) -> dict[str, DataFile]:
    with pq.ParquetFile(checkpoint) as opened:
        adds = opened.read(columns=["add"])["add"].to_pylist()
    try:
        files = [DataFile.of(add) for add in adds if add is not None]
    except UNEXPECTED:
        raise ValueError("names a file without a path, or a size that is no number") from None
    return {file.path: file for file in files}


def _at(info: Mapping[str, object]) -> str:
    try:
        return f" at {commit_time(info):%Y-%m-%dT%H:%M:%SZ}"
    except ValueError:
        return ""


def _in_log(file: Path) -> str:
    return f"{LOG}/{file.name}"
