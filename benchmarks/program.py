"""One of our programs, in a process group of its own, with its output in a file."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
_STOPS_WITHIN_S: Final = 30.0


class Program:
    """A running program."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command, self._log = command, log
        with log.open("w") as out:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": f"{ROOT / 'pipelines'}:{ROOT}"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def check(self) -> None:
        """Check that it runs.

        Raises:
            RuntimeError: it ended; has the end of its output.
        """
        if self._process.poll() is not None:
            tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])
            raise RuntimeError(f"{' '.join(self._command)} ended; its output ends:\n{tail}")

    def wait_for(self, word: str, within_s: float) -> None:
        """Wait until its output has a word.

        Raises:
            RuntimeError: it ended.
            TimeoutError: it took too long.
        """
        deadline = time.monotonic() + within_s
        while word not in self._log.read_text(errors="replace"):
            self.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{' '.join(self._command)} does not say {word!r}: {self._log}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Stop it, by force after a while."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, sign)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=_STOPS_WITHIN_S)
                return
