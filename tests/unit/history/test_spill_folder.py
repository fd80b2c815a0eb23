"""The folder of large answers is removed, also those of processes that were killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quotaplane.history.spill_folder import NAME, spill_folder

HOLD = (
    "import sys\n"
    "from quotaplane.history.spill_folder import spill_folder\n"
    "with spill_folder() as path:\n"
    "    (path / 'rows').write_bytes(b'...')\n"
    "    print(path, flush=True)\n"
    "    sys.stdin.read()\n"
)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def other(temporary: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has a folder, made a while ago."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert process.stdout is not None
    os.utime(process.stdout.readline().strip(), (0, 0))
    yield process
    process.kill()
    process.communicate()


def folders(temporary: Path) -> list[Path]:
    return sorted(temporary.glob(f"{NAME}*"))


def test_it_is_its_owner_s_alone_and_goes(temporary: Path) -> None:
    with spill_folder() as path:
        (path / "rows").write_bytes(b"...")
        assert path.stat().st_mode & 0o777 == 0o700
    assert folders(temporary) == []


def test_a_folder_in_use_stays(temporary: Path, other: subprocess.Popen[str]) -> None:
    theirs = folders(temporary)
    with spill_folder() as path:
        assert folders(temporary) == sorted([*theirs, path])
    other.communicate("")
    assert folders(temporary) == []


def test_a_folder_left_behind_goes(temporary: Path, other: subprocess.Popen[str]) -> None:
    other.kill()
    other.wait()
    assert len(folders(temporary)) == 1
    with spill_folder() as path:
        assert folders(temporary) == [path]


def test_a_new_folder_and_what_is_no_folder_stay(temporary: Path) -> None:
    new, file, link = (temporary / f"{NAME}{name}" for name in ("new", "file", "link"))
    new.mkdir()
    file.touch()
    (temporary / "elsewhere").mkdir()
    os.utime(temporary / "elsewhere", (0, 0))
    link.symlink_to(temporary / "elsewhere")
    with spill_folder():
        pass
    assert folders(temporary) == sorted([new, file, link])
    assert (temporary / "elsewhere").is_dir()
