"""How a command or job ends: its exit code, one line for an error, and a stdout that is checked."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Final, TextIO, cast

from quotaplane.console.terminal import one_line
from quotaplane.errors import OutputError, QuotaplaneError
from quotaplane.extras import missing_packages_named

INTERRUPTED: Final = 130
"""Exit code: Ctrl-C before a job ran, or in a command that is not a job."""
READER_LEFT: Final = 141
"""Exit code: the reader of stdout has left (``... | head -1``)."""
UNFORESEEN: Final = 70
"""Exit code: an unforeseen error, which is a bug; sysexits.h has this number for it."""

_STDERR: Final = 2
_MOST_OF_A_BUG: Final = 500
"""Characters of an unforeseen error in its line."""

_ESCAPED: Final = "quotaplane_escaped"
"""Name of an error handler for encodings: ``escaped``."""


def exit_code_of(run: Callable[[], int | None], say: Callable[[str], None]) -> int:
    """Run a command or job; returns its exit code, one of those in docs/reference/cli.md.

    ``say`` prints the line of an error. A reader of stdout that has left ends a command without a
    line, as a shell expects. Exceptions that are not ours are bugs: their traceback goes to a file
    in the system's temporary folder.
    """
    try:
        with missing_packages_named(), command_output():
            return run() or 0
    except QuotaplaneError as error:
        if isinstance(error, OutputError) and isinstance(error.__cause__, BrokenPipeError):
            return READER_LEFT
        say(f"quotaplane: error: {one_line(str(error))}")
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as finished:  # --help, --version; SIGTERM to a job that is still starting
        return finished.code if isinstance(finished.code, int) else 0
    except BaseException as error:  # a panic in deltalake's Rust is no Exception
        say(f"quotaplane: error: {one_line(_bug(error))}")
        return UNFORESEEN


def _bug(error: BaseException) -> str:
    """The line of an unforeseen error, whose traceback is kept."""
    text = one_line(f"{type(error).__name__}: {error}", _MOST_OF_A_BUG)
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="quotaplane-", suffix=".traceback", delete=False, errors="backslashreplace"
        ) as file:
            file.writelines(traceback.format_exception(error))
    except OSError as failure:
        return f"a bug: {text}; its traceback can't be written ({failure.strerror or failure})"
    return f"a bug: {text}; please report it with its traceback, which is in {file.name}"


def escaped(error: UnicodeError) -> tuple[str, int]:
    r"""Characters that an encoding lacks, as a text of JSON escapes them.

    >>> codecs.register_error("shown", escaped)
    >>> "caf\u00e9 \U0001f600".encode("latin-1", "shown")
    b'caf\xe9 \\ud83d\\ude00'
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    units = lacking.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)), error.end


codecs.register_error(_ESCAPED, escaped)


@contextlib.contextmanager
def command_output() -> Iterator[None]:
    """Run a command with a stdout that raises ``OutputError`` if it can't be written.

    Characters that the terminal's encoding lacks are escaped.

    Raises:
        OutputError: stdout is closed, or a write of the command failed.
    """
    if sys.stdout is None:
        # The next file or socket that the command opens would be its stdout.
        raise OutputError("stdout is closed; nothing was done (> /dev/null discards the output)")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_ESCAPED)
    output = _CheckedOutput(sys.stdout)
    try:
        with contextlib.redirect_stdout(cast(TextIO, output)):
            yield
    finally:
        output.finish()


@contextlib.contextmanager
def without_library_output() -> Iterator[None]:
    """Keep from the terminal what libraries write to stderr past Python.

    For each file that can't be written, deltalake prints a panic of several lines, before or after
    it raises the error that becomes our one line: `groups put` on a full disk would print 11 lines.
    So after such an error its output stays dropped; with a bug it belongs to the traceback.
    """
    # Not a file: the disk may be full. Without Linux, or with another stderr (tests): no change.
    if sys.stderr is not sys.__stderr__ or sys.stderr is None or not hasattr(os, "memfd_create"):
        yield
        return
    sys.stderr.flush()
    hidden, shown = os.memfd_create("library-output"), os.dup(_STDERR)
    stream, sys.stderr = sys.stderr, open(shown, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
    os.dup2(hidden, _STDERR)
    try:
        yield
    except QuotaplaneError:
        os.close(hidden)
        raise
    except BaseException as error:
        if not isinstance(error, KeyboardInterrupt | SystemExit):
            text = os.pread(hidden, os.fstat(hidden).st_size, 0).decode(errors="replace")
            if text:
                setattr(error, "__notes__", [text])  # noqa: B010 (Python 3.10 has no add_note)
        _show_again(stream, shown, hidden)
        raise
    _show_again(stream, shown, hidden)


def _show_again(stream: TextIO, shown: int, hidden: int) -> None:
    os.dup2(shown, _STDERR)
    discard_unwritten(sys.stderr)
    sys.stderr.close()
    sys.stderr = stream
    os.close(hidden)


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
