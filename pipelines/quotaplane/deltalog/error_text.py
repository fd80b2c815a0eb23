"""The text of an error of the deltalake package, on one line, and what to do about a disk."""

from __future__ import annotations

import errno
import os
import re
from itertools import takewhile
from typing import Final

DOCTOR: Final = "run `quotaplane doctor`, which says what is lost and how to mend it"
"""The advice for a broken table."""

_COLOR: Final = re.compile(r"\x1b\[[0-9;]*m")
_CAUSE: Final = "↳"
"""Sign before each cause of an error; there is one a line, the operating system's is the last."""
_NODES: Final = re.compile(r": \[DatanodeInfoProto .*")
"""All that HDFS knows of the nodes that failed, 500 characters for each."""


def one_line(error: BaseException) -> str:
    r"""The first line of an error's text, and its causes; stack frames and advice are left out.

    >>> one_line(OSError("Generic error\n   \x1b[31m↳\x1b[0m Unable to open /a\n    ↳ Disk full\n"))
    'Generic error: Unable to open /a: Disk full'
    >>> one_line(ValueError("No such table\nstack backtrace:\n  0: main"))
    'No such table'
    >>> one_line(ValueError("All DataNodes failed: [DatanodeInfoProto { id: 7 }]"))
    'All DataNodes failed'
    >>> one_line(ValueError())
    'ValueError'
    """
    first, *others = (
        line.strip() for line in _COLOR.sub("", str(error)).strip().splitlines() or [""]
    )
    causes = takewhile(lambda line: line.startswith(_CAUSE), others)
    parts = (first, *(cause.removeprefix(_CAUSE).strip() for cause in causes))
    return _NODES.sub("", ": ".join(filter(None, parts))) or type(error).__name__


_ADVICE: Final = {
    errno.ENOSPC: "the disk is full: free some space, for example with `quotaplane maintain`",
    errno.EDQUOT: "the disk quota is used up: free some space, or raise it",
    errno.EROFS: "the file system is read-only: see the system log, check the disk, mount it again",
    errno.EIO: "the disk failed: see the system log, check the disk, then run `quotaplane doctor`",
}
_NUMBER: Final = re.compile(r"\(os error (\d+)\)")


def disk_error(error: BaseException) -> int | None:
    """The number (``errno``) of the operating system's error that caused this one, if it has any.

    >>> disk_error(ValueError("Unable to copy data to file: No space left on device (os error 28)"))
    28
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    found = _NUMBER.search(str(error))
    return int(found[1]) if found else None


def is_full(error: BaseException) -> bool:
    """Whether a full disk, or a disk quota that is used up, caused an error.

    The errors of Python, Rust, Java and DuckDB have the operating system's words for it.

    >>> is_full(ValueError("java.io.IOException: No space left on device"))
    True
    """
    return any(os.strerror(number) in str(error) for number in (errno.ENOSPC, errno.EDQUOT))


def disk_failure(text: str) -> str | None:
    r"""The disk's error in a text of several lines, and advice; None: the text has none.

    >>> disk_failure("java.io.IOException: No space left on device\n\tat java.base")
    'No space left on device; the disk is full: free some space, for example with `quotaplane
    maintain`'
    """
    found = (number for number in _ADVICE if os.strerror(number) in text)
    return next((f"{os.strerror(number)}; {_ADVICE[number]}" for number in found), None)


REFUSED_KEYS: Final = "the store refuses: see the keys in history.storage_options"
_KEYS_REFUSED: Final = re.compile(
    "403 Forbidden|401 Unauthorized|ExpiredToken|InvalidAccessKeyId|SignatureDoesNotMatch"
)


def with_advice(error: BaseException) -> str:
    """``one_line``, and what to do if the disk, or the keys of a store, are the cause.

    >>> with_advice(OSError("Unable to rename file: Read-only file system (os error 30)"))
    'Unable to rename file: Read-only file system (os error 30); the file system is read-only: see
    the system log, check the disk, mount it again'
    """
    if _KEYS_REFUSED.search(str(error)):
        return f"{one_line(error)}; {REFUSED_KEYS}"
    number = disk_error(error)
    advice = _ADVICE.get(number) if number is not None else None
    return one_line(error) + (f"; {advice}" if advice else "")
