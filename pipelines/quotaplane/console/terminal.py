"""Prints lines to stderr for administrators; control characters in them are escaped."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import Final

WARNING_PREFIX: Final = "quotaplane: warning: "
_STDERR: Final = 2
_MAX_LINE: Final = 4000
"""Characters per line. Writes of up to 4096 bytes are not mixed with other processes' output."""


def one_line(text: str, most: int | None = None) -> str:
    r"""The text on one line, with control characters escaped, cut after ``most`` characters.

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


def inform(line: str) -> None:
    """Print a line about progress to stderr; stdout has the command's result."""
    print_to_stderr(f"quotaplane: {one_line(line)}")


def warn(line: str) -> None:
    """Print a warning to stderr and continue."""
    print_to_stderr(f"{WARNING_PREFIX}{one_line(line)}")


def print_to_stderr(line: str) -> None:
    """Print a line to stderr; a stderr that can't be written must not change how a command ends."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def write_line(line: str) -> None:
    """Write a line to stderr without Python's buffers, so that a blocked thread locks no others.

    Errors are ignored: a job must not end because its terminal was closed.
    """
    with contextlib.suppress(OSError):
        os.write(_STDERR, f"{one_line(line, _MAX_LINE)}\n".encode(errors="replace"))


def log_to_stderr() -> None:
    """Print warnings that our modules log to stderr, in the form of ``warn``.

    Spark's workers call this. Their stderr goes to Spark's log, where the job recognises these
    lines by their prefix and prints them. Existing logging handlers are not changed.
    """
    logger = logging.getLogger("quotaplane")
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(f"{WARNING_PREFIX}%(message)s"))
        logger.addHandler(handler)
