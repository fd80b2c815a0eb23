"""Runs several programs as parts of one: one output, restarts, an orderly end.

Each part is a process group of its own, so Ctrl-C reaches the supervisor alone, which then ends the
parts in order. If the supervisor is killed, Linux sends SIGTERM to its parts.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import IO, Final, NamedTuple

from quotaplane.agents.periodic import waited

_PR_SET_PDEATHSIG: Final = 1
_CHUNK: Final = 65_536
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None

Write = Callable[[IO[str], str], None]


class Part(NamedTuple):
    """A program to run."""

    name: str
    command: Sequence[str]


class Cadence(NamedTuple):
    """How long the supervisor waits for what, in seconds."""

    first_wait_s: float = 1.0
    """Before a part is started again; doubled each time that it ends soon again."""
    longest_wait_s: float = 60.0
    steady_after_s: float = 60.0
    """A part that has run for so long is started again after ``first_wait_s``."""
    stop_within_s: float = 30.0
    """How long a part may take to end after SIGTERM, before it is killed."""


USUAL: Final = Cadence()


class Ended(NamedTuple):
    """A part that must not be started again."""

    part: str
    code: int
    last_line: str
    """The last line that it wrote to stderr."""


@dataclass
class _Running:
    """A part's process, if it has one."""

    part: Part
    process: asyncio.subprocess.Process | None = None
    last_line: str = ""


class Supervisor:
    """Runs parts until it is stopped, or one of them ends with a code of ``final_codes``.

    Args:
        parts: in the order of their start; they end in the reverse order.
        final_codes: exit codes after which starting again is useless.
        write: writes a line of a part, or of the supervisor, to stdout or stderr.
        cadence: the waits.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        final_codes: Collection[int],
        write: Write,
        cadence: Cadence = USUAL,
    ) -> None:
        self._running = [_Running(part) for part in parts]
        self._final_codes = final_codes
        self._write = write
        self._cadence = cadence
        self._width = max(len(name) for name in ("up", *(part.name for part in parts)))
        self._over = asyncio.Event()
        self._final: Ended | None = None
        self.killed: list[str] = []
        """Parts that did not end in time."""

    async def run(self, stop: asyncio.Event, kill: asyncio.Event) -> Ended | None:
        """Run until ``stop``; returns the part whose end is final, if there is one.

        ``kill`` ends all parts at once.
        """
        kept = [asyncio.create_task(self._keep_running(one)) for one in self._running]
        events = (stop, kill, self._over)
        ends: list[asyncio.Task[object]] = [asyncio.create_task(e.wait()) for e in events]
        try:
            await asyncio.wait([*kept, *ends], return_when=asyncio.FIRST_COMPLETED)
            self._over.set()
            for one, task in reversed(list(zip(self._running, kept, strict=True))):
                await self._end(one, task, kill)
        finally:
            for waiting in (*kept, *ends):
                waiting.cancel()
            for one in self._running:
                _kill(one.process)
        return self._final

    def say(self, text: str) -> None:
        """Write a line of the supervisor's own."""
        self._print(sys.stderr, "up", text)

    async def _keep_running(self, one: _Running) -> None:
        clock, cadence = asyncio.get_running_loop().time, self._cadence
        wait_s = cadence.first_wait_s
        while not self._over.is_set():
            began = clock()
            code = await self._run_once(one)
            if self._over.is_set():
                return
            if code in self._final_codes:
                self._final = Ended(one.part.name, code, one.last_line)
                self._over.set()
                return
            if clock() - began >= cadence.steady_after_s:
                wait_s = cadence.first_wait_s
            self.say(f"{one.part.name} {_how(code)}; it starts again in {wait_s:g} s")
            await waited(self._over, wait_s)
            wait_s = min(2 * wait_s, cadence.longest_wait_s)

    async def _run_once(self, one: _Running) -> int:
        with contextlib.ExitStack() as ends:
            # With pipes of asyncio's own, wait() would also wait for children that hold them.
            out, out_end = await _pipe(ends)
            err, err_end = await _pipe(ends)
            process = one.process = await asyncio.create_subprocess_exec(
                *one.part.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out_end,
                stderr=err_end,
                start_new_session=True,
                preexec_fn=_ended_with(os.getpid()),
            )
        name = one.part.name
        self.say(f"{name} started, process {process.pid}; to restart it alone: kill {process.pid}")
        if self._over.is_set():
            process.terminate()
        copies = asyncio.gather(self._copy(one, out, sys.stdout), self._copy(one, err, sys.stderr))
        code = await process.wait()
        try:
            # A child of the part, such as Spark's JVM, may end a little later.
            await asyncio.wait_for(copies, self._cadence.stop_within_s)
        except asyncio.TimeoutError:
            self.say(f"{name} has left processes behind; they are killed")
            _kill(process)
        one.process = None
        return code

    async def _copy(self, one: _Running, source: asyncio.StreamReader, target: IO[str]) -> None:
        """Copy what a part writes, line by line."""
        rest = b""
        while chunk := await source.read(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _CHUNK:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._print_line(one, line, target)
        if rest:
            self._print_line(one, rest, target)

    def _print_line(self, one: _Running, line: bytes, target: IO[str]) -> None:
        text = line.decode(errors="replace")
        if target is sys.stderr:
            one.last_line = text
        self._print(target, one.part.name, text)

    def _print(self, target: IO[str], name: str, text: str) -> None:
        self._write(target, f"{name:<{self._width}} | {text}\n")

    async def _end(self, one: _Running, kept: asyncio.Task[None], kill: asyncio.Event) -> None:
        """SIGTERM, and SIGKILL to the whole group if that does not help in time."""
        if one.process is not None and one.process.returncode is None and not kill.is_set():
            self.say(f"ending {one.part.name}")
            with contextlib.suppress(ProcessLookupError):
                one.process.terminate()
        hurry = asyncio.create_task(kill.wait())
        await asyncio.wait(
            (kept, hurry),
            timeout=self._cadence.stop_within_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        hurry.cancel()
        if not kept.done():
            self.killed.append(one.part.name)
            self.say(f"{one.part.name} has not ended; it is killed")
            _kill(one.process)
        await kept


async def _pipe(ends: contextlib.ExitStack) -> tuple[asyncio.StreamReader, int]:
    """A pipe: what reads from it, and the descriptor to write to, which ``ends`` closes."""
    read, write = os.pipe()
    ends.callback(os.close, write)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb", buffering=0)
    )
    return reader, write


def _ended_with(supervisor: int) -> Callable[[], None]:
    """A function that a part calls before it begins, so that it ends with the supervisor."""

    def prepare() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != supervisor:  # killed meanwhile
                os._exit(1)

    return prepare


def _kill(process: asyncio.subprocess.Process | None) -> None:
    if process is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _how(code: int) -> str:
    """How a process ended.

    >>> _how(3), _how(-9)
    ('ended with exit code 3', 'was ended by SIGKILL')
    """
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was ended by {signal.Signals(-code).name}"
