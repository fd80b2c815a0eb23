"""Spark's log: output of the JVM, the workers and Python libraries, in files of bounded size.

In cluster mode the cluster keeps what a driver prints, so all goes to stderr.

The JVM writes to a pipe that a thread here reads. Thus the log also gets output that no logging
configuration reaches (the launcher, the JVM's last words, workers' tracebacks), and can be rotated.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, TextIO, cast

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import SPARK_LOG
from quotaplane.console.terminal import WARNING_PREFIX
from quotaplane.deltalog.log import local_folder
from quotaplane.errors import ConfigError

MAX_BYTES: Final = 10 << 20
KEPT: Final = 4
"""Number of older files kept beside the newest: FILE.1 to FILE.4."""
_CHUNK: Final = 1 << 16
_STDERR: Final = 2
_PASSED_ON: Final = WARNING_PREFIX.encode()
_LAST_LINES: Final = 4000


def in_cluster_mode() -> bool:
    """Whether a cluster started this driver: its JVM was there first."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def log_places(job: str, checkpoint: str) -> list[Path]:
    """The paths where a job's Spark log may be, best first.

    In ``QUOTAPLANE_LOG_DIR`` if that is set; else beside the checkpoint, or in the user's cache if
    the checkpoint is not on a local file system or its folder can't be written.
    """
    name = f"{job}-spark.log"
    folder = os.environ.get("QUOTAPLANE_LOG_DIR")
    if folder:
        return [Path(folder).absolute() / name]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    as_name = re.sub(r"[^A-Za-z0-9.-]+", "_", checkpoint)
    places = [Path(cache, "quotaplane", "logs", as_name, name)]
    beside = local_folder(checkpoint)
    if beside is not None:
        places.insert(0, Path(f"{beside}-logs") / name)
    return places


def open_log(job: str, checkpoint: str, conditions: Conditions) -> SparkLog:
    """Open a job's log at the first path that can be written; in cluster mode on stderr.

    Raises:
        ConfigError: no path can be written.
    """
    if in_cluster_mode():
        return SparkLog(None, conditions)
    *others, last = log_places(job, checkpoint)
    for path in others:
        with contextlib.suppress(ConfigError):
            return SparkLog(path, conditions)
    return SparkLog(last, conditions)


class SparkLog:
    """A log file that is rotated when it is full; writes that fail are dropped.

    Without a path the log is on stderr.

    ``conditions`` print the warnings of our own code that appear in Spark's output.

    Raises:
        ConfigError: the file can't be written.
    """

    def __init__(
        self,
        path: Path | None,
        conditions: Conditions,
        *,
        max_bytes: int = MAX_BYTES,
        kept: int = KEPT,
    ) -> None:
        self._path = path
        self.place = "in this output" if path is None else str(path)
        """Where to read it, for messages."""
        self._conditions, self._max_bytes, self._kept = conditions, max_bytes, kept
        self._lock = threading.Lock()
        self._file: BinaryIO | None = None
        self._size = 0
        self._failing = False
        self._reader: threading.Thread | None = None
        try:
            self._open()
        except OSError as error:
            raise ConfigError(
                f"{self.place}: Spark's log can't be written: {error.strerror}; set "
                "QUOTAPLANE_LOG_DIR to a folder where it can"
            ) from None

    def write(self, data: bytes) -> None:
        """Append; never raises, because the JVM blocks if its pipe is not read."""
        data, wrong = data[: self._max_bytes], None
        with self._lock:
            try:
                if self._size + len(data) > self._max_bytes and self._size:
                    self._rotate()
                if self._file is None:
                    self._open()
                assert self._file is not None
                self._file.write(data)
                self._size += 0 if self._path is None else len(data)
            except OSError as error:
                wrong = f"{self.place} can't be written: {error.strerror}; what comes is lost"
        # Only at a change: the thread that reads the JVM's pipe must not wait for other lines.
        if wrong is not None or self._failing:
            self._failing = wrong is not None
            self._conditions.note(SPARK_LOG, "", wrong)

    def collect(self) -> int:
        """The writing end of a pipe into the log; the caller closes it."""
        read, write = os.pipe()
        self._reader = threading.Thread(
            target=self._follow, args=(read,), name="spark-log", daemon=True
        )
        self._reader.start()
        return write

    def wait_for_end(self, at_most_s: float = 2.0) -> None:
        """Wait until everything printed is in the file; the writer must have ended."""
        if self._reader is not None:
            self._reader.join(at_most_s)

    def take_python_logs(self) -> None:
        """Also log what libraries of this process log; our own modules' warnings are printed."""
        logging.captureWarnings(True)
        logging.getLogger().addHandler(_Handler(self.write, self._conditions.say))

    def as_text(self) -> TextIO:
        """The log as a text file to print to."""
        return cast(TextIO, _Text(self.write))

    def last_line(self) -> str:
        """The last non-empty line: often the reason why Spark did not start."""
        self.wait_for_end()
        if self._path is None:
            return ""
        with contextlib.suppress(OSError):
            lines = self._path.read_bytes()[-_LAST_LINES:].decode(errors="replace").splitlines()
            return next((line.strip() for line in reversed(lines) if line.strip()), "")
        return ""

    def _follow(self, descriptor: int) -> None:
        begun = b""  # an incomplete line
        with open(descriptor, "rb", buffering=0) as pipe:
            while data := pipe.read(_CHUNK):
                self.write(data)
                *lines, begun = (begun + data).split(b"\n")
                begun = begun[:_CHUNK]
                for line in lines:
                    if line.startswith(_PASSED_ON):
                        self._conditions.say(line[len(_PASSED_ON) :].decode(errors="replace"))

    def _open(self) -> None:
        if self._path is None:
            self._file = io.FileIO(_STDERR, "wb", closefd=False)
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("ab", buffering=0)
        self._size = self._file.tell()

    def _rotate(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        names = [Path(self.place + end) for end in ("", *(f".{n + 1}" for n in range(self._kept)))]
        for older, newer in zip(reversed(names[1:]), reversed(names[:-1]), strict=True):
            with contextlib.suppress(FileNotFoundError):
                newer.replace(older)
        self._size = 0


class _Text(io.TextIOBase):
    """A text file that passes its content to a function."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write

    def write(self, text: str) -> int:
        self._write(text.encode(errors="replace"))
        return len(text)


class _Handler(logging.Handler):
    """Sends Python's log records to the file, and our own modules' warnings to ``warn`` as well."""

    def __init__(self, write: Callable[[bytes], None], warn: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._write, self._warn = write, warn
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if record.name.startswith("quotaplane."):
                self._warn(record.getMessage())
            self._write(f"{self.format(record)}\n".encode(errors="replace"))
        except Exception:  # a log line that can't be formatted
            self._write(b"a line of Python's log could not be formatted\n")
