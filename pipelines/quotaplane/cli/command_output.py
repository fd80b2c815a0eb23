"""The stdout of a command: a write that fails is an ``OutputError``, whichever code printed."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from quotaplane.errors import OutputError


@contextlib.contextmanager
def command_output() -> Iterator[None]:
    """Run a command with a stdout that raises ``OutputError`` if it can't be written.

    Raises:
        OutputError: stdout is closed, or a write of the command failed.
    """
    if sys.stdout is None:
        # The next file or socket that the command opens would be its stdout.
        raise OutputError("stdout is closed; nothing was done (> /dev/null discards the output)")
    output = _CheckedOutput(sys.stdout)
    try:
        with contextlib.redirect_stdout(cast(TextIO, output)):
            yield
    finally:
        output.finish()


def discard_unwritten(stream: TextIO) -> None:
    """Discard what the stream can't write.

    Python writes it again at exit; if that failed, the exit code would be Python's own, 120.
    """
    try:
        stream.flush()
    except OSError:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())


class _CheckedOutput:
    """Stands in for ``sys.stdout``.

    The first failure is kept until the end: argparse ignores every ``OSError`` of stdout, and a
    long-running program continues when a status line can't be written.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._failure: OutputError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._checked():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._checked():
            self._stream.flush()

    def finish(self) -> None:
        """Write what is buffered; raise the first failure."""
        with contextlib.suppress(OutputError):
            self.flush()
        discard_unwritten(self._stream)
        if self._failure is not None:
            raise self._failure

    @contextlib.contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            failure = OutputError(f"stdout can't be written: {error.strerror or error}")
            self._failure = self._failure or failure
            raise failure from error
