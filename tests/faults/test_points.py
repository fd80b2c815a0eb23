"""Disks that fail, fill up or go away at the n-th system call, and processes killed there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples import in_soak
from tests.faults import syscalls
from tests.faults.cases import CASES
from tests.faults.points import FAULTS
from tests.faults.power_points import SEQUENCES

pytestmark = pytest.mark.skipif(
    syscalls.available() is not None, reason=f"system calls: {syscalls.available()}"
)
EVERY = {"maintain": 40, "doctor": 20, "round": 12, "a round and maintenance": 25}
"""The soak tries every so many calls, else every 5th; ``make faults`` tries all."""


def faults(*words: str) -> None:
    command = [sys.executable, "-m", "tests.faults", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr + done.stdout


def test_a_put_survives_each_kind_of_fault() -> None:
    """Each in the middle of its calls."""
    faults("points", "groups put", "--middle")


@pytest.mark.parametrize("case", in_soak(*CASES))
def test_every_point(case: str) -> None:
    faults("points", case, "--every", str(EVERY.get(case, 5)))


@pytest.mark.parametrize("sequence", in_soak(*SEQUENCES))
def test_every_state_after_a_power_loss(sequence: str) -> None:
    faults("power", sequence, "--every", str(EVERY.get(sequence, 5)))


@pytest.mark.soak
def test_every_call_of_the_checkpoint_s_note() -> None:
    faults("note")


@pytest.mark.soak
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a disk")
def test_the_real_job_on_a_small_disk() -> None:
    faults("disk")


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
