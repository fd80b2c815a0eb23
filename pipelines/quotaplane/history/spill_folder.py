"""The folder of rows that do not fit into DuckDB's memory.

It is removed at the end, or by the next process if this one is killed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from quotaplane.errors import HistoryError

NAME: Final = "quotaplane-spill-"
_NEW_S: Final = 60.0
"""A folder as young as this may not be locked yet."""


@contextmanager
def spill_folder() -> Iterator[Path]:
    """A folder in the system's temporary folder that is locked while it is used, then removed.

    Folders of killed processes, which are not locked, are removed first.

    Raises:
        HistoryError: it can't be made.
    """
    _remove_left_over()
    path = Path(tempfile.gettempdir(), f"{NAME}{uuid.uuid4().hex}")
    try:
        path.mkdir(mode=0o700)
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise HistoryError(
            f"the history can't be read: {path} can't be made: {error.strerror}; it is for rows "
            "that do not fit into memory; TMPDIR names another place"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _remove_left_over() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{NAME}*"):
        # Another user's, in use, or gone meanwhile: it stays.
        with suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if time.time() - os.fstat(lock).st_mtime > _NEW_S:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
