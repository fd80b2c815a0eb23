"""Processes of a run: jobs under a supervisor, and agents; killed, frozen, with wrong clocks."""

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

_RESTART_AFTER_S: Final = 1.0
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


class Job:
    """A quota job with its own settings file; started again when it has ended by itself."""

    def __init__(self, name: str, conf: Path, clock: WallClock) -> None:
        self.name, self._conf, self._clock = name, conf, clock
        self.replaced = False
        """Another one was started: this one must end by itself, and is not started again."""
        self.frozen = False
        self.exits: list[Exit] = []
        self._ended_s: float | None = None
        self.start()

    def start(self) -> None:
        """Start it; it needs some 15 s until it is ready."""
        log = self._conf.with_suffix(".log")
        self._printed = log.stat().st_size if log.exists() else 0
        self._job = RunningJob(self._conf, variables=self._clock.variables)
        self._ended_s = None

    @property
    def runs(self) -> bool:
        """Whether its process has not ended."""
        return self._job.process.poll() is None

    def said(self) -> str:
        """What this process has printed."""
        data = self._job.log.read_bytes()[self._printed :]
        return data.decode(errors="replace")

    @property
    def is_ready(self) -> bool:
        """Whether this process reads reports already."""
        return self.runs and "quotaplane: ready: " in self.said()

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
            code = self._job.process.returncode
            self.exits.append(Exit(now_ms(), self.name, code, line))
            self._job.kill()  # what is left of its process group, as systemd does
        elif not self.replaced and time.monotonic() > self._ended_s + _RESTART_AFTER_S:
            self.start()

    def kill(self) -> None:
        """SIGKILL; the supervisor starts it again."""
        self.thaw()
        self._job.kill()

    def freeze(self) -> None:
        """SIGSTOP."""
        self.frozen = True
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.frozen = False
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """SIGTERM, and wait; its exit is in ``exits``."""
        self.replaced = True
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._job.process.wait(90)
        self.supervise()
        self._job.kill()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._job.process.pid, number)


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
        self._tell(f"want {group} {messages_per_s}")

    def clock(self, ahead_s: float) -> None:
        """From now on its clock is ahead by this."""
        self._ahead_s = ahead_s
        self._tell(f"clock {ahead_s}")

    def _tell(self, line: str) -> None:
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
