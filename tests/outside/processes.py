"""Processes of a run: programs under a supervisor, and agents; killed, frozen, started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.job import RunningJob, environment
from tests.outside.journal import Exit, Look, read_journal
from tests.wall_clock import WallClock

_COMMAND_WITHIN_S: Final = 180.0
_TOO_LONG: Final = 124
"""The exit code of a command that was killed; no command has it."""


def now_ms() -> int:
    """The true time."""
    return time.time_ns() // 1_000_000


def quotaplane(*words: str) -> tuple[int, str, str]:
    """Run a command; returns its exit code, stdout and stderr."""
    command = [sys.executable, "-m", "quotaplane", *words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment(), timeout=_COMMAND_WITHIN_S
        )
    except subprocess.TimeoutExpired:
        return _TOO_LONG, "", f"quotaplane {words[0]} took too long"
    return done.returncode, done.stdout, done.stderr


class Program:
    """A program with its own settings file; started again when it has ended by itself."""

    restart_after_s = 0.0

    def __init__(self, name: str, conf: Path) -> None:
        self.name, self._conf = name, conf
        self.replaced = False
        """Another one was started: this one must end by itself, and is not started again."""
        self.exits: list[Exit] = []
        self.start()

    @property
    def _log(self) -> Path:
        return self._conf.with_suffix(".log")

    def start(self) -> None:
        """Start its process."""
        self._printed = self._log.stat().st_size if self._log.exists() else 0
        self._process = self._open()
        self._ended_s: float | None = None

    def _open(self) -> subprocess.Popen[bytes]:
        """Start its process, in a process group of its own; what it prints goes to ``_log``."""
        raise NotImplementedError

    def _python(self, *words: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start a Python module with its arguments."""
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *words],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=stdin,
                env=environment(OMP_NUM_THREADS="1"),
                start_new_session=True,
            )

    @property
    def runs(self) -> bool:
        """Whether its process has not ended."""
        return self._process.poll() is None

    def said(self) -> str:
        """Output of this process so far."""
        return self._log.read_bytes()[self._printed :].decode(errors="replace")

    def supervise(self) -> None:
        """Start it again if it has ended, unless it was replaced."""
        if self.runs:
            return
        if self._ended_s is None:
            self._ended_s = time.monotonic()
            said = self.said()
            line = (said.strip().splitlines() or [""])[-1]
            if "Traceback" in said:
                line = said[said.index("Traceback") :][:2000]
            self.exits.append(Exit(now_ms(), self.name, self._process.returncode, line))
            self._signal(signal.SIGKILL)  # what is left of its process group, as systemd does
        if not self.replaced and time.monotonic() >= self._ended_s + self.restart_after_s:
            self.start()

    def kill(self) -> None:
        """SIGKILL; the supervisor starts it again."""
        self.thaw()
        self._signal(signal.SIGKILL)
        self._process.wait()

    def freeze(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """SIGTERM, and wait; its exit is in ``exits``."""
        self.replaced = True
        self.thaw()
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(90)
        self.supervise()
        self.kill()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


class Job(Program):
    """A quota job; it needs some 15 s until it is ready."""

    restart_after_s = 1.0

    def __init__(self, name: str, conf: Path, clock: WallClock) -> None:
        self._clock = clock
        super().__init__(name, conf)

    def _open(self) -> subprocess.Popen[bytes]:
        return RunningJob(self._conf, variables=self._clock.variables).process

    @property
    def is_ready(self) -> bool:
        """Whether this process reads reports already."""
        return self.runs and "quotaplane: ready: " in self.said()


class Enforcer(Program):
    """``quotaplane enforce pulsar``."""

    def _open(self) -> subprocess.Popen[bytes]:
        return self._python("quotaplane", "enforce", "pulsar", "--conf", str(self._conf))


class AgentProcess(Program):
    """A broker's agent (``tests.outside.agent``), over all of its restarts."""

    def __init__(self, name: str, conf: Path, journal: Path) -> None:
        self.journal = journal
        self._demand: dict[str, float] = {}
        self._ahead_s = 0.0
        super().__init__(name, conf)

    @property
    def _log(self) -> Path:
        return self.journal.with_suffix(".log")

    def looks(self) -> list[Look]:
        """Its journal so far."""
        if not self.journal.exists():
            return []
        with self.journal.open() as lines:
            return read_journal(lines)

    def start(self) -> None:
        """Start the process; it wants what it wanted before."""
        super().start()
        self.clock(self._ahead_s)
        for group, rate in self._demand.items():
            self.want(group, rate)

    def _open(self) -> subprocess.Popen[bytes]:
        words = (str(self._conf), self.name, str(self.journal))
        return self._python("tests.outside.agent", *words, stdin=subprocess.PIPE)

    def want(self, group: str, messages_per_s: float) -> None:
        """From now on it wants so much of a group."""
        self._demand[group] = messages_per_s
        self._send(f"want {group} {messages_per_s}")

    def clock(self, ahead_s: float) -> None:
        """From now on its clock is ahead by this."""
        self._ahead_s = ahead_s
        self._send(f"clock {ahead_s}")

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()

    def check(self) -> None:
        """Check that it runs.

        Raises:
            RuntimeError: it has ended by itself; has its last words.
        """
        if not self.runs:
            raise RuntimeError(f"agent {self.name} ended: {self.said()[-2000:]}")

    def kill(self) -> None:
        """SIGKILL; the journal gets a line that says so."""
        super().kill()
        with self.journal.open("a") as journal:
            journal.write(json.dumps({"t": now_ms(), "end": True}) + "\n")
