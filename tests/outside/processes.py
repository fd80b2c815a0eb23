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

from tests.job import ROOT, RunningJob, environment
from tests.outside.journal import Exit
from tests.servers.tools import end
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
        self._log = conf.with_suffix(".log")
        self.replaced = False
        """Another one was started: this one must end by itself, and is not started again."""
        self.exits: list[Exit] = []
        self._start()

    def _start(self) -> None:
        self._printed = self._log.stat().st_size if self._log.exists() else 0
        self._process = self._open()
        self._ended_s: float | None = None

    def _open(self) -> subprocess.Popen[bytes]:
        """Start its process, in a process group of its own; what it prints goes to ``_log``."""
        raise NotImplementedError

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
            self._start()

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
        command = [sys.executable, "-m", "quotaplane", "enforce", "pulsar"]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*command, "--conf", str(self._conf)],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment(),
                start_new_session=True,
            )


class AgentProcess:
    """A broker's agent (``tests.outside.agent``), over all of its restarts."""

    def __init__(self, name: str, conf: Path, journal: Path) -> None:
        self.name, self.journal = name, journal
        self._command = [sys.executable, "-m", "tests.outside.agent", str(conf), name, str(journal)]
        self._log = journal.with_suffix(".log")
        self._demand: dict[str, float] = {}
        self._ahead_s = 0.0
        self.start()

    def start(self) -> None:
        """Start the process; it wants what it wanted before."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env=environment(OMP_NUM_THREADS="1"),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        self.clock(self._ahead_s)
        for group, rate in self._demand.items():
            self.want(group, rate)

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
        if self._process.poll() is not None:
            raise RuntimeError(f"agent {self.name} ended: {self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        """SIGKILL; the journal gets a line that says so."""
        self._process.kill()
        self._process.wait()
        with self.journal.open("a") as journal:
            journal.write(json.dumps({"t": now_ms(), "end": True}) + "\n")

    def freeze(self) -> None:
        """SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it."""
        self.thaw()
        end(self._process, 2.0)
