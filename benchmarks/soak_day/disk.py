"""A small disk of its own for the history, which can be filled; needs root and loop devices."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType

_BALLAST = "ballast"


class SmallDisk:
    """An ext4 file system in a file, mounted at ``folder``."""

    def __init__(self, image: Path, folder: Path, size_mb: int) -> None:
        self._image, self.folder = image, folder
        self._size_mb = size_mb

    def __enter__(self) -> SmallDisk:
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self._image.exists():
            with self._image.open("wb") as image:
                image.truncate(self._size_mb << 20)
            subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(self._image)], check=True)
        subprocess.run(["mount", "-o", "loop", str(self._image), str(self.folder)], check=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        subprocess.run(["umount", str(self.folder)], check=False)

    def used_share(self) -> float:
        """How full it is."""
        found = os.statvfs(self.folder)
        return 1.0 - found.f_bavail / found.f_blocks

    def fill_to(self, share: float) -> None:
        """Let ballast grow or shrink until it is so full."""
        found = os.statvfs(self.folder)
        missing = int((share - self.used_share()) * found.f_blocks * found.f_frsize)
        with (self.folder / _BALLAST).open("ab") as ballast:
            if missing > 0:
                os.posix_fallocate(ballast.fileno(), ballast.tell(), missing)
            else:
                ballast.truncate(max(0, ballast.tell() + missing))
