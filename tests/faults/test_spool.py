"""The spool of reports under a power loss, a full disk and a kill, at each of its system calls."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from quotaplane.console.command_output import exit_code_of
from quotaplane.console.terminal import print_to_stderr
from quotaplane.pulsar.spool import Spool
from tests.faults import syscalls
from tests.faults.crash_states import Disk, put_on_disk, states
from tests.faults.points import FAULTS
from tests.unit.pulsar.spool_cases import found, live_values, offset, rows

pytestmark = pytest.mark.skipif(
    syscalls.available() is not None, reason=f"system calls: {syscalls.available()}"
)
BATCHES = ((0, 3), (3, 5), (5, 9))


def keep(folder: Path, start: int, end: int) -> int:
    """As the job does it; the exit code."""
    spool = Spool(str(folder))
    return exit_code_of(
        lambda: (spool.keep(rows(start + 1, end), offset(start), offset(end)), 0)[1],
        print_to_stderr,
    )


def test_a_power_loss_takes_no_batch_that_spark_may_know(tmp_path: Path) -> None:
    root = tmp_path / "checkpoint"
    root.mkdir()
    folder = root / "spool"
    disk, calls, acknowledged = Disk.of(root), [], []
    for start, end in BATCHES:
        ended = syscalls.run(lambda: keep(folder, start, end), root, lambda _: None, record=True)  # noqa: B023
        assert ended.code == 0, ended.stderr
        calls += ended.calls
        acknowledged.append(len(calls))
    tried = 0
    for count, text, files in states(disk, calls):
        shutil.rmtree(root)
        put_on_disk(files, root)
        done = sum(count >= each for each in acknowledged)
        for number, (start, end) in enumerate(BATCHES):
            left = found(folder, offset(start), offset(end))
            # What is there is whole; and the newest that Spark may know is there.
            assert left == live_values(start + 1, end) or number != done - 1, (count, text, left)
            assert left == live_values(start + 1, end) or isinstance(left, str), (count, text)
        tried += 1
    assert tried > 15


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=() if fault in ("full", "killed") else pytest.mark.nightly)
        for fault in FAULTS
    ],
)
def test_each_call_may_fail(tmp_path: Path, fault: str) -> None:
    before = tmp_path / "before" / "spool"
    for start, end in BATCHES[:2]:
        assert keep(before, start, end) == 0
    root, (start, end) = tmp_path / "data", BATCHES[2]
    number = 0
    while True:
        number += 1
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(before.parent, root)
        folder = root / "spool"
        ended = syscalls.run(lambda: keep(folder, start, end), root, FAULTS[fault].at(number))  # noqa: B023
        stored = found(folder, offset(start), offset(end)) == live_values(start + 1, end)
        if ended.code == 0:
            assert stored
        else:
            assert ended.code in (3, -9), ended.stderr
            if ended.code == 3:
                assert ended.stderr.count("\n") == 1
                assert "can't be stored" in ended.stderr
        # The batch before is there in any case, and the next start stores again.
        assert found(folder, offset(3), offset(5)) == live_values(4, 5)
        assert keep(folder, start, end) == 0
        assert found(folder, offset(start), offset(end)) == live_values(start + 1, end)
        if number > len(ended.calls):
            break
    assert number > 5
