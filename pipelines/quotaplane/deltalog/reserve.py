"""Reserves disk space: a file that is deleted when the disk is full."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

_ROOM: Final = 8
"""The file is made only if this many times its size is free."""


class Reserve:
    """A file that takes up space until it is deleted.

    Args:
        folder: a folder on the file system whose space it keeps.
        name: the file's name.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / name

    def keep(self, size_bytes: int) -> bool:
        """Make the file if there is none and the disk has room; returns whether there is one now.

        A size of 0 deletes it. A failure to write is no error: the writes that matter report it.
        """
        with suppress(OSError):
            if size_bytes == 0:
                self.release()
                return False
            if self._path.exists() and self._path.stat().st_size == size_bytes:
                return True
            if shutil.disk_usage(self._path.parent).free < _ROOM * size_bytes:
                return False
            self._make(size_bytes)
            return True
        return False

    def _make(self, size_bytes: int) -> None:
        handle = os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            os.ftruncate(handle, 0)
            os.posix_fallocate(handle, 0, size_bytes)
        except OSError:
            self.release()
            raise
        finally:
            os.close(handle)

    def release(self) -> int:
        """Delete the file; returns the bytes that this freed, 0 if there was none."""
        try:
            size_bytes = self._path.stat().st_size
            self._path.unlink()
        except OSError:
            return 0
        return size_bytes
