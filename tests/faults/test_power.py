"""The model by which unsynced writes are replayed; test_points.py tries it on commands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults import syscalls
from tests.faults.crash_states import Disk, states
from tests.faults.syscalls import Call

needs_watch = pytest.mark.skipif(
    syscalls.available() is not None, reason=f"system calls: {syscalls.available()}"
)


def _left(disk: Disk) -> set[frozenset[tuple[str, bytes | None]]]:
    return {frozenset(files.items()) for _, files in disk.left()}


def test_the_model_loses_what_was_not_synced_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    root, old, new = str(tmp_path), str(tmp_path / "old"), str(tmp_path / "new")
    disk = Disk.of(tmp_path)
    there = {(root, None), (old, b"old")}
    disk.make(Call(1, "open", new, flags=os.O_CREAT | os.O_WRONLY))
    disk.make(Call(2, "write", new, data=b"1234"))
    # the name lost; or the name there, and of the content nothing, half or all
    contents = ({(new, content)} for content in (b"", b"12", b"1234"))
    assert _left(disk) == {frozenset(there), *(frozenset(there | each) for each in contents)}
    disk.make(Call(3, "fsync", new))
    assert _left(disk) == {frozenset(there), frozenset({*there, (new, b"1234")})}
    disk.make(Call(4, "fsync", root))
    assert _left(disk) == {frozenset({*there, (new, b"1234")})}
    disk.make(Call(5, "rename", new, old))
    assert _left(disk) == {
        frozenset({*there, (new, b"1234")}),
        frozenset({(root, None), (old, b"1234")}),
    }


@pytest.mark.parametrize("order", [("parent", "folder"), ("folder", "parent")])
def test_a_synced_folder_has_its_files_whenever_its_own_name_is_synced(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    root = str(tmp_path)
    folder, file = os.path.join(root, "folder"), os.path.join(root, "folder", "file")
    disk = Disk.of(tmp_path)
    disk.make(Call(1, "mkdir", folder))
    disk.make(Call(2, "open", file, flags=os.O_CREAT | os.O_WRONLY))
    disk.make(Call(3, "fsync", file))
    whole = frozenset({(root, None), (folder, None), (file, b"")})
    first, second = ({"parent": root, "folder": folder}[name] for name in order)
    disk.make(Call(4, "fsync", first))
    assert len(_left(disk)) == 2
    assert whole in _left(disk)
    disk.make(Call(5, "fsync", second))
    assert _left(disk) == {whole}


@needs_watch
def test_the_model_makes_what_the_system_makes(tmp_path: Path) -> None:
    def work() -> int:
        folder = tmp_path / "folder"
        folder.mkdir()
        (folder / "a").write_bytes(b"abc")
        with (folder / "a").open("ab") as file:
            file.write(b"de")
            file.flush()
            os.pwrite(os.open(folder / "b", os.O_CREAT | os.O_WRONLY), b"x", 3)
            os.ftruncate(file.fileno(), 4)
        os.link(folder / "a", folder / "c")
        os.rename(folder / "b", folder / "a")
        (folder / "c").unlink()
        return 0

    disk = Disk.of(tmp_path)
    calls = syscalls.run(work, tmp_path, lambda _: None, record=True).calls
    assert len(list(states(disk, calls))) > 10
    assert disk.files() == Disk.of(tmp_path).files()
    assert disk.files()[str(tmp_path / "folder" / "a")] == b"\0\0\0x"
