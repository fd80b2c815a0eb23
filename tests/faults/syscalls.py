"""Runs a command and decides about each of its system calls on files of a folder.

The kernel stops the process (all its threads and children) at each of these calls and asks here:
seccomp's user notification. So calls of Python, of Rust (deltalake) and of a JVM are counted in one
order, which ``strace -e inject`` does not do: it counts the calls of each thread apart.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

# x86-64's numbers, the call's name here, and where its paths are: pairs of arguments (folder's
# descriptor or None, path), or the argument that is a file's descriptor.
_BY_PATH: Final[dict[int, tuple[str, tuple[tuple[int | None, int], ...]]]] = {
    2: ("open", ((None, 0),)),
    257: ("open", ((0, 1),)),
    85: ("open", ((None, 0),)),
    82: ("rename", ((None, 0), (None, 1))),
    264: ("rename", ((0, 1), (2, 3))),
    316: ("rename", ((0, 1), (2, 3))),
    86: ("link", ((None, 0), (None, 1))),
    265: ("link", ((0, 1), (2, 3))),
    87: ("unlink", ((None, 0),)),
    263: ("unlink", ((0, 1),)),
    83: ("mkdir", ((None, 0),)),
    258: ("mkdir", ((0, 1),)),
}
_BY_FILE: Final = {1: "write", 18: "pwrite", 20: "writev", 74: "fsync", 75: "fsync", 77: "truncate"}
_OPEN_FLAGS: Final = {2: 1, 257: 2}
_FLAGS_OF_CREAT: Final = os.O_CREAT | os.O_WRONLY | os.O_TRUNC

_SET_NO_NEW_PRIVS: Final = 38
_SECCOMP: Final = 317
_NEW_LISTENER: Final = 1 << 3
_ASK: Final = 0x7FC00000
_ALLOW: Final = 0x7FFF0000
_ARCH: Final = 0xC000003E
_RECEIVE: Final = 0xC0502100
_SEND: Final = 0xC0182101
_CONTINUE: Final = 1
_NOTIFICATION: Final = struct.Struct("=QIIiIQ6Q")
_PATH_BYTES: Final = 4096

KILL: Final = -1
"""In place of an error: the process is killed at this call."""


class Call(NamedTuple):
    """A system call on a file below the folder that is watched."""

    number: int
    """1 for the first one."""
    name: str
    """``open``, ``write``, ``rename``, ``link``, ``unlink``, ``mkdir``, ``fsync``, ..."""
    path: str
    target: str = ""
    """The new path of a ``rename`` or ``link``."""
    flags: int = 0
    """Flags of an ``open``."""
    data: bytes = b""
    """Bytes of a ``write``, if they are recorded."""
    offset: int = 0
    """Where it writes it."""

    @property
    def changes(self) -> bool:
        """Whether the call needs a disk that can be written to."""
        return self.name != "open" or bool(
            self.flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        )

    @property
    def alters(self) -> bool:
        """Whether a reader finds something else once the call is made."""
        return self.changes and self.name != "fsync"

    @property
    def needs_room(self) -> bool:
        """Whether the call needs free space."""
        if self.name == "open":
            return bool(self.flags & os.O_CREAT)
        return self.name in ("write", "pwrite", "writev", "mkdir", "link")

    @property
    def by_name(self) -> bool:
        """Whether the call asks for a path, and so can be denied."""
        return self.name in ("open", "mkdir", "rename", "link", "unlink")

    @property
    def opens(self) -> bool:
        """Whether the call needs one more file descriptor."""
        return self.name == "open"


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    """Its exit code; -9: it was killed."""
    stderr: str
    calls: list[Call]
    """All calls on files below the folder."""


Decide = Callable[[Call], "int | None"]
"""The error (``errno``) that a call returns, ``KILL``, or None: it is made."""


def available() -> str | None:
    """Why system calls can't be watched here; None: they can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "needs Linux on x86-64"
    try:
        ended = run(lambda: 0, Path("/nowhere"), lambda _: None)
    except OSError as error:
        return f"the kernel refuses seccomp's user notification: {error}"
    return None if ended.code == 0 else f"a watched process ends with {ended.code}: {ended.stderr}"


def run(
    work: Callable[[], int] | Sequence[str],
    folder: Path,
    decide: Decide,
    *,
    record: bool = False,
    patience_s: float = 300.0,
) -> Ended:
    """Run a function in a child process, or a command, and decide about its calls.

    Args:
        work: returns the exit code; or the words of a command.
        folder: only calls on files below it are counted and decided.
        decide: called for each of them, before it is made.
        record: also read what the writes write.
        patience_s: after this time the process is killed; a test then sees -9.

    Raises:
        OSError: the kernel does not allow it.
    """
    # Not in ``folder``, so that these writes are not counted.
    errors = os.memfd_create("stderr")
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _child(work, theirs, errors)
    theirs.close()
    watch = _Watch(os.path.realpath(folder), decide, record, child)
    try:
        with ours:
            message, descriptors, _, _ = socket.recv_fds(ours, 16, 1)
        if not descriptors:
            os.waitpid(child, 0)
            raise OSError(int(message or b"1"), "seccomp")
        watch.until_ended(descriptors[0], time.monotonic() + patience_s)
        os.close(descriptors[0])
        _, status = os.waitpid(child, 0)
    finally:
        watch.close()
    with os.fdopen(errors, "rb") as file:
        file.seek(0)
        text = file.read().decode(errors="replace")
    return Ended(os.waitstatus_to_exitcode(status), text, watch.calls)


def _child(work: Callable[[], int] | Sequence[str], theirs: socket.socket, errors: int) -> None:
    code = 70
    try:
        os.setpgid(0, 0)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor, onto in ((nowhere, 0), (nowhere, 1), (errors, 2)):
            os.dup2(descriptor, onto)
        # Whoever started this one, for example pytest, may have its own.
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = sys.__stderr__ = open(2, "w", closefd=False)  # noqa: SIM115
        listener = _install()
        if listener < 0:
            theirs.send(b"%d" % ctypes.get_errno())
            os._exit(71)
        socket.send_fds(theirs, [b"0"], [listener])
        os.close(listener)
        theirs.close()
        if callable(work):
            code = work()
            sys.stdout.flush()
            sys.stderr.flush()
        else:
            os.execvp(work[0], list(work))
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        code = 1
    finally:
        os._exit(code)


def _install() -> int:
    """Ask about the calls of this process from now on; returns the listener's descriptor."""
    numbers = sorted({*_BY_PATH, *_BY_FILE})
    load, equal, give = 0x20, 0x15, 0x06
    lines = [(load, 0, 0, 4), (equal, 0, len(numbers) + 1, _ARCH), (load, 0, 0, 0)]
    lines += ((equal, len(numbers) - at, 0, number) for at, number in enumerate(numbers))
    lines += [(give, 0, 0, _ALLOW), (give, 0, 0, _ASK)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(lines), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return int(libc.syscall(_SECCOMP, 1, _NEW_LISTENER, ctypes.byref(program)))


class _Watch:
    def __init__(self, folder: str, decide: Decide, record: bool, child: int) -> None:
        self._below = folder + "/"
        self._folder = folder
        self._decide = decide
        self._record = record
        self._child = child
        self._memories: dict[int, int] = {}
        self.calls: list[Call] = []

    def close(self) -> None:
        for memory in self._memories.values():
            os.close(memory)

    def until_ended(self, listener: int, deadline_s: float) -> None:
        waiting = select.poll()
        waiting.register(listener, select.POLLIN)
        while True:
            if time.monotonic() > deadline_s:
                self._kill_all()
            events = waiting.poll(1000)
            if not events:
                continue
            if not events[0][1] & select.POLLIN:
                return  # no process is left
            self._answer(listener)

    def _answer(self, listener: int) -> None:
        raw = bytearray(80)
        try:
            fcntl.ioctl(listener, _RECEIVE, raw)
        except OSError as error:
            if error.errno == errno.ENOENT:  # killed meanwhile
                return
            raise
        ident, thread, _, number, _, _, *arguments = _NOTIFICATION.unpack(raw)
        call = None
        with suppress(OSError):  # the thread is gone
            call = self._call(thread, number, arguments)
        fault = None
        if call is not None:
            self.calls.append(call)
            fault = self._decide(call)
        if fault == KILL:
            self._kill_all()
            return
        answer = struct.pack("=QqiI", ident, 0, -(fault or 0), 0 if fault else _CONTINUE)
        with suppress(FileNotFoundError):
            fcntl.ioctl(listener, _SEND, bytearray(answer))

    def _kill_all(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._child, signal.SIGKILL)

    def _call(self, thread: int, number: int, arguments: Sequence[int]) -> Call | None:
        if number in _BY_FILE:
            return self._by_file(thread, _BY_FILE[number], arguments)
        name, places = _BY_PATH[number]
        paths = [self._path(thread, arguments, *place) for place in places]
        if not any(map(self._is_below, paths)):
            return None
        flags = 0
        if name == "open":
            at = _OPEN_FLAGS.get(number)
            flags = _FLAGS_OF_CREAT if at is None else arguments[at]
        return Call(len(self.calls) + 1, name, paths[0], "".join(paths[1:]), flags)

    def _by_file(self, thread: int, name: str, arguments: Sequence[int]) -> Call | None:
        path = os.readlink(f"/proc/{thread}/fd/{arguments[0]}").removesuffix(" (deleted)")
        if not self._is_below(path):
            return None
        call = Call(len(self.calls) + 1, name, path)
        if not self._record or name in ("fsync", "writev"):
            return call
        if name == "truncate":
            return call._replace(offset=arguments[1])
        data = os.pread(self._memory(thread), arguments[2], arguments[1])
        offset = arguments[3] if name == "pwrite" else self._offset(thread, arguments[0], path)
        return call._replace(data=data, offset=offset)

    def _offset(self, thread: int, descriptor: int, path: str) -> int:
        info = Path(f"/proc/{thread}/fdinfo/{descriptor}").read_text(encoding="ascii").split()
        if int(info[3], 8) & os.O_APPEND:
            return os.stat(path).st_size
        return int(info[1])

    def _is_below(self, path: str) -> bool:
        return path == self._folder or path.startswith(self._below)

    def _path(self, thread: int, arguments: Sequence[int], folder: int | None, at: int) -> str:
        raw = os.pread(self._memory(thread), _PATH_BYTES, arguments[at])
        path = os.fsdecode(raw.partition(b"\0")[0])
        if not path.startswith("/"):
            descriptor = None if folder is None else ctypes.c_int(arguments[folder]).value
            base = "cwd" if descriptor in (None, -100) else f"fd/{descriptor}"
            path = os.path.join(os.readlink(f"/proc/{thread}/{base}"), path)
        return os.path.normpath(path)

    def _memory(self, thread: int) -> int:
        if thread not in self._memories:
            self._memories[thread] = os.open(f"/proc/{thread}/mem", os.O_RDONLY)
        return self._memories[thread]
