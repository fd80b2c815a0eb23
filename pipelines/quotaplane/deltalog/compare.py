"""Compares a table's files with their checksums from time to time: bytes also decay unread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from quotaplane.deltalog.checksums import Checksums, Line, checksum_of, replace
from quotaplane.deltalog.log import LOG, list_log

EVERY_MS: Final = 86_400_000
"""Interval at which each file is compared."""
MOST_BYTES: Final = 4 << 30
"""Most bytes of a table that a run compares; the next run continues."""


def compare(folder: Path, live: Iterable[str], now_ms: int) -> str | None:
    """Compare the files of a table that were not compared for a day; those of longest ago first.

    Files without a checksum get one. Lines of files that are gone are removed.

    Args:
        folder: the table's folder.
        live: paths of the table's data files, relative to it.
        now_ms: the time.

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
        if read >= MOST_BYTES:
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
