"""A disk that loses power: what was not synced by then is empty, or was never there."""

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
    """Nothing that the code handles."""


class Disk:
    """Watches what is synced below ``root``; everything there at first is on the disk."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._files = {_content(file) for file in root.rglob("*") if file.is_file()}
        self._entries = {folder: _names(folder) for folder in [root, *root.rglob("*")]}
        self._fsync: Callable[[Path], None] = sync.fsync
        self.order: list[Path] = []
        self.fails_after: int | None = None
        """So many syncs, then the power is lost."""
        self.broken = False
        """The disk answers, and keeps nothing."""
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

    def lose_power(self, into: Path, unsynced: Unsynced) -> Path:
        """What another computer finds on the disk, copied to ``into``."""
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
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
