"""Tools for servers on loopback: fetch jars once, find free ports, run a JVM."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, TypeVar

import pyspark

from tests.waiting import wait_until

_READY_WITHIN_S: Final = 180.0
_TAIL_LINES: Final = 40
_Found = TypeVar("_Found")
_Process = TypeVar("_Process", bound="LoggedProcess")


def fetched_once(name: str, wanted: Path, fill: Callable[[Path], None]) -> Path:
    """Return a folder of the user's cache, which ``fill`` fills at the first call.

    Args:
        name: What the folder's name starts with.
        wanted: The Ivy file that says what is in it; another text is another folder.
        fill: Fills the folder that it is given.
    """
    return made_once(name, wanted.read_text(), fill)


def made_once(name: str, made_of: str, fill: Callable[[Path], None]) -> Path:
    """The same for what is made of a text."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quotaplane"
    folder = cache / f"{name}-{uuid.uuid5(uuid.NAMESPACE_OID, made_of).hex[:12]}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        fill(Path(scratch) / "full")
        # Renamed when complete, so that an interrupted fetch does not look finished.
        try:
            os.rename(f"{scratch}/full", folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was first
                raise
    return folder


def ivy_retrieve(wanted: Path, types: list[str], pattern: str, *options: str) -> None:
    """Fetch the artifacts of an Ivy file to ``pattern``, with the Ivy jar that comes with Spark.

    Raises:
        RuntimeError: something could not be fetched; has the resolver's message.
    """
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    settings = os.environ.get("QUOTAPLANE_IVY_SETTINGS")
    command = [java(), "-jar", str(ivy), *(["-settings", settings] if settings else []), *options]
    command += ["-ivy", str(wanted), "-types", *types, "-retrieve", pattern]
    run(f"fetching what {wanted.name} asks for", command)


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def run(what: str, command: list[str], env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        raise RuntimeError(f"{what} failed:\n{done.stdout}{done.stderr}")


class LoggedProcess:
    """A server's process, whose output goes to a file; it may be started again.

    As a context manager it is started, and stopped at the end.

    Args:
        name: of the server, for messages.
        log: the file.
        command: the words.
        env: its environment; None: ours.
        cwd: its folder; None: ours.
    """

    def __init__(
        self,
        name: str,
        log: Path,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self._name, self.log, self._command = name, log, command
        self._env, self._cwd = env, cwd
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id; -1 = not running."""
        return self._process.pid if self._process else -1

    def start(self, stdin: int = subprocess.DEVNULL) -> None:
        """Start the process without waiting for it."""
        with self.log.open("wb") as out:
            self._process = subprocess.Popen(
                self._command,
                env=self._env,
                cwd=self._cwd,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=stdin,
                # Its own session: Ctrl-C in a terminal must reach the tests first, not the server.
                start_new_session=True,
            )

    def __enter__(self: _Process) -> _Process:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def said(self) -> str:
        """All that it has printed."""
        return self.log.read_text(errors="replace")

    def wait_until(self, ready: Callable[[], _Found]) -> _Found:
        """Wait until ``ready()``, and return what it gave.

        Raises:
            AssertionError: the process ended, or took too long; has the end of its log.
        """

        def last_words() -> str:
            tail = "\n".join(self.said().splitlines()[-_TAIL_LINES:])
            return f"{self._name} does not serve; its log ends:\n{tail}"

        try:
            return wait_until(ready, _READY_WITHIN_S, process=self._process, said=last_words)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop it cleanly, or by force after 20 s."""
        if self._process is not None:
            end(self._process)
        self._process = None

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None


def end(process: subprocess.Popen[bytes], within_s: float = 20.0) -> None:
    """Stop a process cleanly, or by force if that takes too long."""
    process.terminate()
    try:
        process.wait(timeout=within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def processes_below(folder: Path) -> dict[Path, list[int]]:
    """Ids of all processes that run in folders below one, by their folder."""
    found: dict[Path, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has ended
            where = Path(os.readlink(f"/proc/{name}/cwd"))
            if where != folder and where.is_relative_to(folder):
                found.setdefault(where, []).append(int(name))
    return found


def parent_of(pid: int) -> int:
    """The id of the process that has started one; -1 if that has ended."""
    with suppress(OSError):
        # behind the name of its program, which may have spaces
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return -1


def kill_all(pids: Iterable[int]) -> None:
    """SIGKILL to processes, as if their machine lost power."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


_PROCESSES: Final = 8
_GIVEN: Final[set[int]] = set()
_LOCK: Final = threading.Lock()


def free_ports(count: int) -> list[int]:
    """Free ports below the system's range of ephemeral ports.

    An ephemeral port might be taken before the server starts, or while it is stopped. No port is
    given twice, and each of pytest's processes has ports of its own.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ours = range(20_000 + worker % _PROCESSES, 32_000, _PROCESSES)
    free: list[int] = []
    with ExitStack() as held:
        for port in random.SystemRandom().sample(ours, 100):
            if len(free) == count:
                return free
            with suppress(OSError):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
                with _LOCK:
                    if port not in _GIVEN:
                        _GIVEN.add(port)
                        free.append(port)
    raise RuntimeError(f"fewer than {count} of 100 ports from 20000 to 32000 are free")
