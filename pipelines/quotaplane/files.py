"""Files that programs create: their mode, and waiting until they are on the disk."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Final

from quotaplane.errors import ConfigError

VARIABLE: Final = "QUOTAPLANE_UMASK"
DEFAULT: Final = "077"


def set_umask() -> None:
    """Let this process and its children create files only for their user.

    The history has names of tenants and authors of changes; Spark's checkpoint has the reports.
    ``QUOTAPLANE_UMASK`` (octal) replaces 077; 027 lets the user's group read.

    Raises:
        ConfigError: it is not octal, or takes rights from the user itself.
    """
    text = os.environ.get(VARIABLE, DEFAULT)
    if not re.fullmatch("0{0,2}[0-7]{2}", text):
        raise ConfigError(f"{VARIABLE}: {text!r} must be octal, such as 077 or 027")
    os.umask(int(text, 8))


def umask_of_hadoop() -> dict[str, str]:
    """The Spark option by which Hadoop gives new files of this process's JVM the same rights.

    Hadoop sets the rights of a checkpoint's files itself, to 644 by default; it ignores the umask.
    """
    umask = os.umask(0o077)  # there is no way to read it alone
    os.umask(umask)
    return {"spark.hadoop.fs.permissions.umask-mode": f"{umask:03o}"}


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
