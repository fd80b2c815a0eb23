"""Lines for people on stderr; hostile text in them is made harmless."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import Final

WARNING_PREFIX: Final = "quotaplane: warning: "
_STDERR: Final = 2
_MAX_LINE: Final = 4000
"""In characters. Whole lines of up to 4096 bytes do not mix with those of other processes."""


def one_line(text: str, most: int | None = None) -> str:
    r"""The text on one line, with what a terminal would obey written out; cut after ``most``.

    >>> one_line("brokers.b\n\x1b[2J: unknown key")
    'brokers.b\\n\\x1b[2J: unknown key'
    >>> one_line("x" * 100, most=5)
    'xxxxx...'
    """
    if most is not None and len(text) > most:
        text = f"{text[:most]}..."
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def tell(line: str) -> None:
    """Tell what was done, beside the answer on stdout."""
    print(f"quotaplane: {one_line(line)}", file=sys.stderr, flush=True)


def warn(line: str) -> None:
    """Tell something that somebody should read, and go on."""
    print(f"{WARNING_PREFIX}{one_line(line)}", file=sys.stderr, flush=True)


def write_line(line: str) -> None:
    """Write a line to stderr, past Python's buffers: a thread that is stuck in it locks nothing.

    Nothing is raised where nobody reads any more: a job does not end for that.
    """
    with contextlib.suppress(OSError):
        os.write(_STDERR, f"{one_line(line, _MAX_LINE)}\n".encode(errors="replace"))


def log_to_stderr() -> None:
    """Warnings that our modules log go to stderr as ``warn`` writes them.

    For Spark's workers, whose stderr ends in Spark's log: a job knows the lines by their beginning
    and passes them on. Where logging was set up already nothing is changed.
    """
    logger = logging.getLogger("quotaplane")
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(f"{WARNING_PREFIX}%(message)s"))
        logger.addHandler(handler)
