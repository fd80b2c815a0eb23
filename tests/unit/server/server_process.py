"""Runs ``quotaplane serve`` as a process."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from quotaplane.settings import History
from tests.histories import make_history
from tests.job import write_conf

OPEN: Final[dict[str, Any]] = {"anonymous": "admin-without-authentication", "port": 0}
"""Everybody may do everything, on any free port."""


def conf(folder: Path, server: dict[str, Any] | None, *, history: bool = True) -> Path:
    """A settings file with this section ``server``; ``history``: its tables exist."""
    if history:
        make_history(History(path=str(folder / "history")))
    sections = {} if server is None else {"server": server}
    return write_conf(folder, {"kind": "delta", "path": str(folder / "topics")}, **sections)


class Process:
    """``quotaplane serve``; ``url`` and ``lines`` are what it printed."""

    def __init__(self, path: Path, code: str = "") -> None:
        start = f"import sys\n{code}\nfrom quotaplane.cli.main import main\n"
        command = [sys.executable, "-c", f"{start}sys.exit(main(sys.argv[1:]))"]
        self.process = subprocess.Popen(
            [*command, "serve", "--conf", str(path)],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        self.lines = [self.process.stderr.readline()]
        found = re.search(r"serves (\S+);", self.lines[0])
        assert found, self.lines[0] + self.process.stderr.read()
        self.url = found[1]
        self.port = int(self.url.rpartition(":")[2])

    def end(self, number: int = signal.SIGTERM) -> int:
        """Stop it; returns the exit code."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        """Wait until it has ended; returns the exit code."""
        out, err = self.process.communicate(timeout=30)
        self.lines += err.splitlines(keepends=True)
        assert out == ""
        return self.process.returncode


@contextlib.contextmanager
def running(path: Path, code: str = "") -> Iterator[Process]:
    """A server that is ready; ``code`` runs in its process first."""
    server = Process(path, code)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.communicate()
