"""Waits until files are on the disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def fsync(path: Path) -> None:
    """Wait until a file's content, or a folder's entries, are on the disk.

    Raises:
        OSError: the disk did not accept them.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some file systems sync folders by themselves and return an error here.
        if error.errno not in (errno.EINVAL, errno.EBADF) or not path.is_dir():
            raise
    finally:
        os.close(handle)
