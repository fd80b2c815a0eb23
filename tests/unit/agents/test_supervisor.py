"""Programs that run together: their output, restarts, the end of one and of all."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from quotaplane.agents.supervisor import Cadence, Ended, Part, Supervisor
from tests.unit.repo.pages import ROOT

QUICK = Cadence(first_wait_s=0.05, longest_wait_s=0.2, steady_after_s=60.0, stop_within_s=20.0)
FINAL = (2, 7)


def shell(name: str, script: str) -> Part:
    return Part(name, ("sh", "-c", script))


class Stage:
    """Runs a supervisor until its output has what a test waits for."""

    def __init__(self, *parts: Part, cadence: Cadence = QUICK) -> None:
        self.lines: list[tuple[str, str]] = []
        """(stdout or stderr, line)"""
        self._stop, self._kill = asyncio.Event(), asyncio.Event()
        self.supervisor = Supervisor(parts, FINAL, self._write, cadence)

    def _write(self, stream: IO[str], line: str) -> None:
        assert line.endswith("\n")
        self.lines.append(("stdout" if stream is sys.stdout else "stderr", line[:-1]))

    def said(self, text: str) -> list[str]:
        return [line for _, line in self.lines if re.search(text, line)]

    async def until(self, text: str, times: int = 1) -> None:
        deadline = time.monotonic() + 60
        while len(self.said(text)) < times:
            assert time.monotonic() < deadline, self.lines
            await asyncio.sleep(0.01)

    async def run(self, *steps: Callable[[Stage], object]) -> Ended | None:
        running = asyncio.create_task(self.supervisor.run(self._stop, self._kill))
        for step in steps:
            done = step(self)
            if asyncio.iscoroutine(done):
                await done
        return await running

    def run_until(self, *texts: str, times: int = 1) -> Ended | None:
        """Run until each of these was printed, then stop."""
        steps = [lambda _, text=text: self.until(text, times) for text in texts]
        return asyncio.run(self.run(*steps, Stage.stop))  # type: ignore[arg-type]

    def stop(self) -> None:
        self._stop.set()

    def kill(self) -> None:
        self._kill.set()


def pid_of(stage: Stage, name: str) -> int:
    found = re.search(rf"{name} started, process (\d+);", stage.said(f"{name} started")[-1])
    assert found is not None
    return int(found[1])


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_each_line_has_its_part_in_front() -> None:
    parts = (
        shell("a", "echo one; echo two >&2; printf '\\377no newline'; exec sleep 60"),
        shell("longer", "echo; exec sleep 60"),
    )
    stage = Stage(*parts)
    stage.run_until("two", "longer")
    assert ("stdout", "a      | one") in stage.lines
    assert ("stderr", "a      | two") in stage.lines
    assert ("stdout", "longer | ") in stage.lines
    assert ("stdout", "a      | \N{REPLACEMENT CHARACTER}no newline") in stage.lines


def test_a_line_without_end_is_cut() -> None:
    script = "head -c 300000 /dev/zero | tr '\\0' x; echo; echo end; exec sleep 60"
    stage = Stage(shell("a", script))
    stage.run_until("end")
    assert sum(line.count("x") for line in stage.said("x")) == 300_000
    assert max(len(line) for _, line in stage.lines) < 140_000


def test_a_part_that_ends_starts_again_later_and_later() -> None:
    stage = Stage(shell("a", "exit 3"), shell("b", "echo b; exec sleep 60"))
    ended = stage.run_until("again in", times=5)
    assert ended is None
    waits = [float(line.split()[-2]) for line in stage.said("a ended with exit code 3")]
    assert waits[:5] == [0.05, 0.1, 0.2, 0.2, 0.2]
    assert len(stage.said("b started")) == 1


def test_a_part_that_ran_for_long_starts_again_soon() -> None:
    stage = Stage(shell("a", "exit 3"), cadence=QUICK._replace(steady_after_s=0.0))
    stage.run_until("again in", times=4)
    assert {line.split()[-2] for line in stage.said("again in")} == {"0.05"}


def test_one_part_can_be_restarted_alone() -> None:
    stage = Stage(
        shell("a", "trap 'echo clean; exit 0' TERM; echo up; while :; do sleep 0.02; done"),
        shell("b", "exec sleep 60"),
    )
    pids: list[int] = []

    def restart(s: Stage) -> None:
        pids.append(pid_of(s, "a"))
        os.kill(pids[0], signal.SIGTERM)

    asyncio.run(
        stage.run(
            lambda s: s.until(r"\| up"), restart, lambda s: s.until(r"\| up", 2), lambda s: s.stop()
        )
    )
    assert stage.said("a ended with exit code 0; it starts again")
    assert len(stage.said("b started")) == 1
    assert pid_of(stage, "a") != pids[0]


@pytest.mark.parametrize("code", FINAL)
def test_some_exit_codes_end_all(code: int) -> None:
    stage = Stage(
        shell("good", "trap 'echo bye; exit 0' TERM; while :; do sleep 0.02; done"),
        shell("bad", f"sleep 0.2; echo first >&2; echo 'error: the key' >&2; exit {code}"),
    )
    assert asyncio.run(stage.run()) == Ended("bad", code, "error: the key")
    assert stage.said("bye")
    assert not is_running(pid_of(stage, "good"))


def test_parts_end_one_after_the_other_in_the_reverse_order() -> None:
    slowly = "trap 'sleep 0.2; echo end; exit 0' TERM; echo up; while :; do sleep 0.02; done"
    stage = Stage(*(shell(name, slowly) for name in "abc"))
    stage.run_until(r"\| up", times=3)
    ends = stage.said(r"ending|\| end$")
    assert ends == [
        *("up | ending c", "c  | end"),
        *("up | ending b", "b  | end"),
        *("up | ending a", "a  | end"),
    ]
    assert stage.supervisor.killed == []


def test_a_part_that_does_not_end_is_killed_with_its_children() -> None:
    deaf = "trap '' TERM; sleep 61 & echo child $!; wait"
    stage = Stage(shell("deaf", deaf), cadence=QUICK._replace(stop_within_s=0.3))
    stage.run_until("child")
    assert stage.supervisor.killed == ["deaf"]
    child = int(stage.said("child")[0].split()[-1])
    _gone(child, pid_of(stage, "deaf"))


def test_a_second_signal_kills_at_once() -> None:
    stage = Stage(shell("deaf", "trap '' TERM; echo up; while :; do sleep 0.02; done"))
    began = time.monotonic()
    asyncio.run(
        stage.run(
            lambda s: s.until(r"\| up"),
            lambda s: s.stop(),
            lambda s: s.until("ending deaf"),
            lambda s: s.kill(),
        )
    )
    assert time.monotonic() - began < QUICK.stop_within_s
    _gone(pid_of(stage, "deaf"))


def test_what_a_dead_part_leaves_behind_is_killed_before_it_starts_again() -> None:
    stage = Stage(
        shell("a", "sleep 62 & echo child $!; exit 3"), cadence=QUICK._replace(stop_within_s=0.2)
    )
    stage.run_until("again in")
    assert stage.said("a has left processes behind")
    _gone(int(stage.said("child")[0].split()[-1]))


def test_nothing_starts_after_the_end_of_all() -> None:
    stage = Stage(shell("a", "exit 3"), cadence=QUICK._replace(first_wait_s=30.0))
    stage.run_until("again in")
    assert len(stage.said("a started")) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_a_supervisor_that_is_killed_takes_its_parts_with_it(tmp_path: Path) -> None:
    script = tmp_path / "up.py"
    script.write_text(
        "import asyncio, sys\n"
        "from quotaplane.agents.supervisor import Part, Supervisor\n"
        "parts = [Part(n, ('sh', '-c', 'exec sleep 63')) for n in 'ab']\n"
        "def write(stream, line): print(line, end='', flush=True)\n"
        "asyncio.run(Supervisor(parts, (), write).run(asyncio.Event(), asyncio.Event()))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "pipelines")}
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        pids = [int(line.rpartition(" ")[2]) for line in lines]
        assert all(map(is_running, pids))
        process.kill()
    _gone(*pids)


def _gone(*pids: int) -> None:
    deadline = time.monotonic() + 20
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline, pids
        time.sleep(0.02)
