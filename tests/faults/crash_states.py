"""The states that a power loss may leave, from the system calls that a command made.

The model knows no file system in particular and assumes little: what ``fsync`` of a file and of its
folder did not put on the disk may be there or not. See Pillai et al., "All File Systems Are Not
Created Equal" (OSDI 2014), whose tool ALICE does the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tests.faults.syscalls import Call

Files = Mapping[str, "bytes | None"]
"""Content by path; None: a folder."""

LOST: Final = "lost"
TORN: Final = "torn"
WRITTEN: Final = "written"
CONTENTS: Final = (LOST, TORN, WRITTEN)
"""Parts of a file's unsynced bytes that are left: none, half of them, all."""


@dataclass
class _File:
    """A file, whatever its names are."""

    content: bytes
    synced: bytes = b""

    def left(self, how: str) -> bytes:
        if how == LOST or self.content == self.synced:
            return self.synced
        if how == WRITTEN:
            return self.content
        return self.content[: (len(self.synced) + len(self.content)) // 2]


class _Entry(NamedTuple):
    """A change of folders' entries."""

    kind: str
    path: str
    target: str
    file: _File | None

    @property
    def folders(self) -> set[str]:
        return {os.path.dirname(path) for path in (self.path, self.target) if path}


@dataclass
class Disk:
    """Files as programs see them, and as they are certainly on the disk."""

    names: dict[str, _File | None]
    """By path; None: a folder."""
    safe: dict[str, _File | None] = field(default_factory=dict)
    """The names that are on the disk for certain, by path."""
    pending: list[_Entry] = field(default_factory=list)
    """Changes of names that may be on the disk, in order."""
    nowhere: list[_Entry] = field(default_factory=list)
    """Synced changes in folders whose own names are still pending."""

    @classmethod
    def of(cls, folder: Path) -> Disk:
        """All that is in a folder, synced."""
        names: dict[str, _File | None] = {}
        for path in (folder, *folder.rglob("*")):
            content = None if path.is_dir() else path.read_bytes()
            names[str(path)] = None if content is None else _File(content, content)
        return cls(names, dict(names))

    def make(self, call: Call) -> None:
        """Make a call, as the system made it."""
        name = f"_{call.name}"
        if hasattr(self, name):
            getattr(self, name)(call)

    def files(self) -> Files:
        """Files as programs see them."""
        return _contents(self.names, WRITTEN)

    def left(self) -> Iterator[tuple[str, Files]]:
        """(description, files) of each state that a power loss may leave now."""
        for how in CONTENTS:
            # Changes of names reach the disk in order, up to any of them ...
            names = dict(self.safe)
            for count, entry in enumerate((None, *self.pending)):
                if entry is not None:
                    _apply(names, entry)
                text = f"{count} of {len(self.pending)} names, contents {how}"
                yield text, _contents(self._place(dict(names)), how)
        # ... or all but one.
        for missing in range(len(self.pending) - 1):
            names = dict(self.safe)
            for count, entry in enumerate(self.pending):
                if count != missing:
                    _apply(names, entry)
            yield f"all names but number {missing + 1}", _contents(self._place(names), WRITTEN)

    def _open(self, call: Call) -> None:
        there = call.path in self.names
        if not there and call.flags & os.O_CREAT:
            self._change("create", call.path, file=_File(b""))
        elif there and call.flags & os.O_TRUNC and not call.flags & os.O_EXCL:
            self._file(call.path).content = b""

    def _write(self, call: Call) -> None:
        file = self._file(call.path)
        before = file.content[: call.offset].ljust(call.offset, b"\0")
        file.content = before + call.data + file.content[call.offset + len(call.data) :]

    _pwrite = _write

    def _truncate(self, call: Call) -> None:
        file = self._file(call.path)
        file.content = file.content[: call.offset].ljust(call.offset, b"\0")

    def _writev(self, call: Call) -> None:
        raise NotImplementedError(f"writev to {call.path}")

    def _rename(self, call: Call) -> None:
        if call.path in self.names:
            self._change("rename", call.path, call.target)

    def _link(self, call: Call) -> None:
        if call.path in self.names and call.target not in self.names:
            self._change("link", call.path, call.target)

    def _unlink(self, call: Call) -> None:
        if call.path in self.names:
            self._change("unlink", call.path)

    def _mkdir(self, call: Call) -> None:
        if call.path not in self.names:
            self._change("create", call.path)

    def _fsync(self, call: Call) -> None:
        if self.names.get(call.path, None) is not None:
            file = self._file(call.path)
            file.synced = file.content
            return
        rest = []
        for entry in self.pending:
            if not entry.folders <= {call.path}:
                rest.append(entry)
            elif call.path in self.safe:
                _apply(self.safe, entry)
            else:
                self.nowhere.append(entry)
        self.pending = rest
        if not any(entry.folders - self.safe.keys() for entry in self.nowhere):
            self._place(self.safe)
            self.nowhere = []

    def _place(self, names: dict[str, _File | None]) -> dict[str, _File | None]:
        """Names after a loss, with the synced ones in folders that are among them."""
        for entry in self.nowhere:
            _apply(names, entry)
        return names

    def _change(self, kind: str, path: str, target: str = "", file: _File | None = None) -> None:
        entry = _Entry(kind, path, target, file or self.names.get(path))
        _apply(self.names, entry)
        self.pending.append(entry)

    def _file(self, path: str) -> _File:
        file = self.names[path]
        assert file is not None, path
        return file


def _apply(names: dict[str, _File | None], entry: _Entry) -> None:
    if os.path.dirname(entry.target or entry.path) not in names:
        return  # the folder itself is lost
    if entry.kind in ("rename", "unlink"):
        names.pop(entry.path, None)
    if entry.kind in ("rename", "link"):
        names[entry.target] = entry.file
    if entry.kind == "create":
        names[entry.path] = entry.file


def _contents(names: Mapping[str, _File | None], how: str) -> Files:
    # A hard link to a file is the same file: it has the same content under both names.
    return {path: None if file is None else file.left(how) for path, file in names.items()}


def states(disk: Disk, calls: Sequence[Call], every: int = 1) -> Iterator[tuple[int, str, Files]]:
    """All different states: the number of calls made, which state it is, and its files.

    The disk is changed to the one after all calls. The last calls are always tried.
    """
    seen: set[int] = set()
    for count in range(len(calls) + 1):
        if count:
            disk.make(calls[count - 1])
        if count % every and count != len(calls):
            continue
        for text, files in disk.left():
            key = hash(frozenset(files.items()))
            if key not in seen or count == len(calls):
                seen.add(key)
                yield count, text, files


def put_on_disk(files: Files, root: Path) -> None:
    """Make the folder ``root``, which must not exist, as a state has it."""
    root.mkdir()
    for path, content in sorted(files.items()):
        if content is None:
            Path(path).mkdir(exist_ok=True)
        else:
            Path(path).write_bytes(content)
