"""Checksums of a table's files, by which damaged bytes show.

delta-rs and DuckDB write Parquet files without checksums, and a log has none. A changed bit may
then be another quota. Therefore a file in the log's folder has a line for each file of the table,
also for those of the log. Delta's readers ignore it. The line is appended once the file is on the
disk (``durable``), for files of all writers, and is not synced itself. A file without a line is not
checked: `quotaplane doctor` counts it, and `quotaplane maintain` gives it one. ``compare`` looks at
files that nobody reads, from time to time: their bytes decay, too.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from quotaplane.deltalog.log import LOG, list_log, open_regular
from quotaplane.files import fsync

CHECKSUMS: Final = "_checksums"
"""The file, in the log's folder. A line: name, CRC-32, time of the last comparison (ms), CRC-32 of
these."""

_COMMIT: Final = re.compile(rf"\n{LOG}/(\d{{20}})\.json\t".encode())
_UNFIT: Final = re.compile(r"[\t\n]")
"""No name in a line has these; no writer makes such a file."""
_PORTION_BYTES: Final = 1 << 20
_MOST_REMEMBERED: Final = 100_000
_FEW: Final = 8
"""Up to this many lines are searched for; for more, all lines are parsed, which takes longer."""

_found_whole: dict[Path, tuple[int, int, int, int]] = {}
"""Files that this process has checked: checksum, inode, time of change, size."""


class Line(NamedTuple):
    """The line of a file."""

    checksum: int
    checked_ms: int
    """When its bytes were last found whole."""

    def text(self, name: str) -> bytes:
        """The line, behind the end of the one before, which may be cut off."""
        begins = f"{name}\t{self.checksum:08x}\t{self.checked_ms}".encode()
        return b"\n%b\t%08x" % (begins, zlib.crc32(begins))


class Checksums:
    """The checksums of a table's files, as they are known now.

    Args:
        folder: the table's folder.

    Raises:
        OSError: they can't be read.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._text = b""
        self._looked_for = 0
        absent = suppress(FileNotFoundError, NotADirectoryError, ValueError)
        with absent, open_regular(_path(folder)) as opened:
            self._text = opened.read()

    def __bool__(self) -> bool:
        return bool(self._text)

    @cached_property
    def _lines(self) -> dict[bytes, bytes]:
        """By name; a later line of a name replaces an earlier one."""
        return {line[: line.find(b"\t")]: line for line in self._text.split(b"\n") if line}

    def _last_line(self, name: bytes) -> bytes:
        if self._looked_for == _FEW:
            return self._lines.get(name, b"")
        self._looked_for += 1
        begin = self._text.rfind(b"\n%b\t" % name) + 1
        end = self._text.find(b"\n", begin)
        return self._text[begin : None if end < 0 else end] if begin else b""

    @property
    def names(self) -> list[str]:
        """The files that have a line; the line may be damaged."""
        return [name.decode("utf-8", "replace") for name in self._lines]

    @property
    def newest(self) -> int:
        """The newest version whose commit has a checksum; -1: none has."""
        versions = sorted(map(int, _COMMIT.findall(self._text)), reverse=True)
        return next((v for v in versions if self.line(f"{LOG}/{v:020d}.json") is not None), -1)

    def line(self, name: str) -> Line | None:
        """The line of a file; None: it has none, or a damaged one."""
        parts = self._last_line(name.encode()).rpartition(b"\t")
        with suppress(ValueError):
            if int(parts[2], 16) == zlib.crc32(parts[0]):
                _, checksum, checked_ms = parts[0].split(b"\t")
                return Line(int(checksum, 16), int(checked_ms))
        return None

    def fault(self, name: str) -> str | None:
        """The fault of a file's bytes, as text to follow its name; None: none is known.

        Raises:
            OSError: the disk does not let it be read.
        """
        known = self.line(name)
        if known is None:
            return None
        path = self._folder / name
        try:
            status = path.stat()
            state = known.checksum, status.st_ino, status.st_mtime_ns, status.st_size
            if _found_whole.get(path) == state:
                return None
            found = checksum_of(path)
        except (FileNotFoundError, ValueError):  # its reader says so
            return None
        if found != known.checksum:
            return f"has damaged bytes: their checksum is {found:08x}, it was {known.checksum:08x}"
        if len(_found_whole) >= _MOST_REMEMBERED:
            _found_whole.clear()
        _found_whole[path] = state
        return None

    def first_fault(self, names: Iterable[str]) -> str | None:
        """The first of these files whose bytes are damaged, and what is wrong; None: none is.

        Raises:
            OSError: the disk does not let one be read.
        """
        faults = ((name, self.fault(name)) for name in names)
        return next((f"{name} {fault}" for name, fault in faults if fault is not None), None)


def checksum_of(path: Path) -> int:
    """The CRC-32 of a file's bytes.

    Raises:
        OSError: it can't be read.
        ValueError: it is no regular file.
    """
    checksum = 0
    with open_regular(path) as opened:
        while portion := opened.read(_PORTION_BYTES):
            checksum = zlib.crc32(portion, checksum)
    return checksum


def record(folder: Path, paths: Iterable[Path], *, anew: bool = False) -> None:
    """Append the checksums of files that are on the disk now and have none yet.

    That it fails is no error: the files are not checked then.

    Args:
        folder: the table's folder.
        paths: files below it; those that are gone are passed over.
        anew: also of files that have one.
    """
    with suppress(OSError):
        known = Checksums(folder)
        now_ms = time.time_ns() // 1_000_000
        lines = []
        for path in paths:
            name = str(path.relative_to(folder))
            if (anew or known.line(name) is None) and not _UNFIT.search(name):
                with suppress(FileNotFoundError, ValueError):
                    lines.append(Line(checksum_of(path), now_ms).text(name))
        if lines:
            with _locked(_path(folder), fcntl.LOCK_SH) as handle:
                os.write(handle, b"".join(lines))


def replace(folder: Path, changed: Callable[[Checksums], dict[str, Line]]) -> None:
    """Write the file of checksums anew, while no process appends to it.

    Args:
        folder: the table's folder.
        changed: all lines that are to be there, by name, from those that are.

    Raises:
        OSError: it can't be written.
    """
    path = _path(folder)
    made = path.with_name(f"{CHECKSUMS}.new")
    with _locked(path, fcntl.LOCK_EX):
        try:
            lines = changed(Checksums(folder))
            made.write_bytes(b"".join(line.text(name) for name, line in lines.items()))
            fsync(made)
            os.replace(made, path)
        except BaseException:  # not after the replacement: then another process may be making it
            made.unlink(missing_ok=True)
            raise


@contextmanager
def _locked(path: Path, how: int) -> Iterator[int]:
    """The file of checksums, to append to; no process replaces it meanwhile."""
    while True:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            with suppress(OSError):  # of a file system without locks
                fcntl.flock(handle, how)
            if not _is_at(path, handle):  # replaced before the lock was there
                continue
            yield handle
            return
        finally:
            os.close(handle)


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _path(folder: Path) -> Path:
    return folder / LOG / CHECKSUMS


EVERY_MS: Final = 86_400_000
"""Interval at which each file is compared."""
MOST_BYTES: Final = 4 << 30
"""Most bytes of a table that a run compares; the next run continues."""


def compare(
    folder: Path, live: Iterable[str], now_ms: int, most_bytes: int = MOST_BYTES
) -> str | None:
    """Compare the files of a table that were not compared for a day; those of longest ago first.

    Files without a checksum get one. Lines of files that are gone are removed.

    Args:
        folder: the table's folder.
        live: paths of the table's data files, relative to it.
        now_ms: the time.
        most_bytes: after so many the rest is left to the next time.

    Returns:
        The first damaged file, and what is wrong; None: none was found.

    Raises:
        OSError: a file can't be read.
    """
    checksums = Checksums(folder)
    lines = {name: checksums.line(name) for name in checksums.names}
    gone = {name for name in lines if not (folder / name).is_file()}
    change_data = (name for name in lines if name.startswith("_change_data/"))
    needed = {*live, *_of_log(folder), *change_data} - gone
    ages = {name: _age_ms(lines.get(name), now_ms) for name in needed}
    due = sorted((name for name in needed if ages[name] >= EVERY_MS), key=lambda name: -ages[name])
    fault, whole, read = None, dict[str, Line](), 0
    for name in due:
        if read >= most_bytes:
            break
        damage = checksums.fault(name)
        if damage is not None:
            fault = fault or f"{name} {damage}"
            continue
        with suppress(FileNotFoundError):  # vacuumed meanwhile
            read += (folder / name).stat().st_size
            known = lines.get(name)
            checksum = checksum_of(folder / name) if known is None else known.checksum
            whole[name] = Line(checksum, now_ms)

    def kept(current: Checksums) -> dict[str, Line]:
        there = {name: current.line(name) for name in current.names if name not in gone}
        return {name: line for name, line in there.items() if line is not None} | whole

    with suppress(OSError):  # of a full disk, on which maintenance is to make room
        replace(folder, kept)
    return fault


def _of_log(folder: Path) -> Iterator[str]:
    """The log's files that are needed: all commits, and the newest checkpoint."""
    log = list_log(folder)
    yield from (f"{LOG}/{log.commit(version).name}" for version in log.commits)
    if log.checkpoints:
        yield f"{LOG}/{log.checkpoint(log.newest_checkpoint).name}"


def _age_ms(line: Line | None, now_ms: int) -> int:
    """How long ago a file was compared; a time to come is one of a wrong clock."""
    return now_ms if line is None else abs(now_ms - line.checked_ms)
