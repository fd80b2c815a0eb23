"""A mark in a local history, by which a process on another machine knows the same disk.

A folder of the same path may be a shared one, or one of that machine's own: what is written there
would be missing from the history.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from quotaplane.deltalog.error_text import one_line
from quotaplane.errors import HistoryError
from quotaplane.parsing.folders import local_folder
from quotaplane.settings import History


class DiskMark(NamedTuple):
    """A small file, and its random content."""

    file: Path
    content: str

    def is_here(self) -> bool:
        """Whether this machine finds the file, with this content."""
        try:
            return self.file.read_text("ascii") == self.content
        except (OSError, ValueError):
            return False


def mark_of(history: History, name: str) -> Path | None:
    """The file of a mark; None: the history is on a store."""
    folder = local_folder(history.path)
    return None if folder is None else folder / f".disk-of-{name}"


def leave_mark(history: History, name: str) -> DiskMark | None:
    """Put a new mark in the place of the last one of this name; None: the history is on a store.

    Raises:
        HistoryError: the folder can't be written.
    """
    file = mark_of(history, name)
    if file is None:
        return None
    mark = DiskMark(file, uuid4().hex)
    try:
        file.write_text(mark.content, "ascii")
    except OSError as error:
        raise HistoryError(f"history at {file.parent}: {one_line(error)}") from None
    return mark
