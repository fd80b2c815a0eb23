"""Disks that fail, fill up or go away at the n-th system call, and processes killed there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import syscalls
from tests.faults.points import FAULTS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        syscalls.available() is not None, reason=f"system calls: {syscalls.available()}"
    ),
]


def test_a_put_survives_each_kind_of_fault() -> None:
    """Each in the middle of its calls; ``make nightly`` tries other calls and commands."""
    command = [sys.executable, "-m", "tests.faults", "points", "groups put", "--middle"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr + done.stdout


def test_calls_are_counted_over_all_threads_and_children(tmp_path: Path) -> None:
    a, b, c = (f"{tmp_path}/{name}" for name in "abc")
    words = ["sh", "-c", f"echo a > {a}; (echo b > {b}); mv {a} {c}"]
    ended = syscalls.run(words, tmp_path, lambda _: None, record=True)
    assert ended.code == 0
    assert [(call.name, Path(call.path).name, call.data) for call in ended.calls] == [
        ("open", "a", b""),
        ("write", "a", b"a\n"),
        ("open", "b", b""),
        ("write", "b", b"b\n"),
        ("rename", "a", b""),
    ]
    failed = syscalls.run(words, tmp_path, FAULTS["one error"].at(3))
    assert "I/O error" in failed.stderr or "Input/output error" in failed.stderr
    killed = syscalls.run(words, tmp_path, FAULTS["killed"].at(2))
    assert (killed.code, len(killed.calls)) == (-9, 2)
