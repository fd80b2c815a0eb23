"""A simulated disk that loses power: files that were not synced are then empty or missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from quotaplane.deltalog import durable as sync

Unsynced = Literal["empty", "gone"]
"""A file system may have written the folder before the file, or neither."""


class PowerLossError(BaseException):
    """Ends a test's code: no ``except Exception`` handles it."""


class Disk:
    """Records which files below ``root`` are synced; those that exist at first count as synced."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._files = {_content(file) for file in root.rglob("*") if file.is_file()}
        self._entries = {folder: _names(folder) for folder in [root, *root.rglob("*")]}
        self._fsync: Callable[[Path], None] = sync.fsync
        self.order: list[Path] = []
        self.fails_after: int | None = None
        """Number of syncs after which the power is lost."""
        self.broken = False
        """Every sync fails with an I/O error."""
        monkeypatch.setattr(sync, "fsync", self._synced)

    def _synced(self, path: Path) -> None:
        if self.broken:
            raise OSError(5, "Input/output error", str(path))
        if self.fails_after is not None and len(self.order) >= self.fails_after:
            raise PowerLossError
        self._fsync(path)
        self.order.append(path)
        if path.is_dir():
            self._entries[path] = _names(path)
        else:
            self._files.add(_content(path))

    def ends_before_its_sync(self, do: Callable[[], object]) -> None:
        """Call ``do``, and lose the power before anything it writes is synced."""
        self.fails_after = 0
        with pytest.raises(PowerLossError):
            do()
        self.fails_after = None

    def lose_power(self, into: Path, unsynced: Unsynced) -> Path:
        """Copy to ``into`` what is left on the disk."""
        shutil.rmtree(into, ignore_errors=True)
        self._copy(self._root, into, unsynced)
        return into

    def _copy(self, folder: Path, into: Path, unsynced: Unsynced) -> None:
        into.mkdir()
        for path in folder.iterdir():
            if unsynced == "gone" and path.name not in self._entries.get(folder, ()):
                continue
            if path.is_dir():
                self._copy(path, into / path.name, unsynced)
            elif _content(path) in self._files:
                shutil.copyfile(path, into / path.name)
            else:
                (into / path.name).touch()


def _names(folder: Path) -> frozenset[str]:
    return frozenset(os.listdir(folder)) if folder.is_dir() else frozenset()


def _content(file: Path) -> tuple[int, int, int]:
    status = file.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns
