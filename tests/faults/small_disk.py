"""The real quota job on a small disk that fills up, becomes read-only, and goes away.

Needs root, for ``mount``, and takes some minutes: ``python -m tests.faults disk``. The topics are
on another disk, so brokers go on reporting.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from quotaplane.settings import DeltaTransport
from tests.outside.journal import Held
from tests.outside.processes import AgentProcess, Job, quotaplane
from tests.waiting import wait_until
from tests.wall_clock import WallClock

_SIZE: Final = "64m"
_INTERVAL_S: Final = 1.0
_PATIENCE_S: Final = 600.0


class SmallDisk:
    """A file system in memory, with a history, a checkpoint and their settings file beside it."""

    def __init__(self, scratch: Path) -> None:
        self.root = scratch / "disk"
        self.conf = scratch / "settings.yaml"
        self.transport = DeltaTransport(kind="delta", path=str(scratch / "topics"))
        self.root.mkdir()
        _system("mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "quotaplane-small-disk", self.root)
        self.conf.write_text(
            f"transport: {{kind: delta, path: {self.transport.path}}}\n"
            f"history: {{path: {self.root}/history, reserve_mb: 6}}\n"
            f"checkpoint: {self.root}/checkpoint\n"
            f"reports: {{interval_s: {_INTERVAL_S}}}\n"
            "limits: {refresh_rounds: 1}\n"
            "shards: 1\n"
        )

    def fill(self) -> None:
        """Use all free space, down to the last page."""
        with (self.root / "fill").open("ab", buffering=0) as file:
            for size_bytes in (1 << 20, 4096):
                try:
                    while True:
                        file.write(b"\0" * size_bytes)
                except OSError:
                    continue

    def free(self) -> None:
        (self.root / "fill").unlink()

    def reserves(self) -> set[str]:
        return {path.name for path in (self.root / "history").glob(".reserve-*")}

    def quota(self) -> float:
        """The group's quota, as a command prints it."""
        said = self.quotaplane("groups", "get", "orders", "--json")
        return float(json.loads(said)["publish_messages_per_s"])

    def unmount(self) -> None:
        _system("umount", "-l", self.root)

    def quotaplane(self, *words: str, codes: Sequence[int] = (0,)) -> str:
        """Run a command; what it said. An error must be one line."""
        code, printed, error = quotaplane(*words, "--conf", str(self.conf))
        _say(f"  {' '.join(words)}: exit code {code} {error.strip()}")
        if code not in codes or "Traceback" in error:
            raise AssertionError(f"{words} ended with {code}: {error}")
        return printed + error

    def job(self) -> Job:
        """Start the quota job."""
        return Job("job", self.conf, WallClock(self.conf.parent))

    def broker(self) -> Broker:
        """Start a broker."""
        broker = Broker("broker-1", self.conf, self.conf.with_name("broker.jsonl"))
        broker.want("orders", 80.0)
        return broker


class Broker(AgentProcess):
    """A broker that reports, and the limits that came."""

    def _limits(self) -> list[Held]:
        return [look.held["orders"] for look in self.looks() if look.held]

    @property
    def limit(self) -> float:
        """The limit now; NaN: none came yet."""
        return self._limits()[-1].limit if self._limits() else float("nan")

    def received(self) -> int:
        """How many limits came."""
        return len({(held.epoch, held.seq) for held in self._limits() if held.epoch >= 0})


def check_ended(job: Job, *codes: int) -> None:
    """Check that the job ends with one of these codes and one line that says why."""
    until("the job has ended", lambda: not job.runs)
    job.replaced = True
    job.supervise()
    errors = [line for line in job.said().splitlines() if "quotaplane: error: " in line]
    if job.exits[-1].code not in codes or len(errors) != 1:
        raise AssertionError(f"the job ended with {job.exits[-1].code}: {job.said()[-4000:]}")


def until(what: str, holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    began = time.monotonic()
    wait_until(holds, _PATIENCE_S, said=lambda: f"waiting for: {what}", every_s=0.2)
    _say(f"  {what}, after {time.monotonic() - began:.1f} s")


def run(scratch: Path, faults: Sequence[str]) -> None:
    """Try some of ``FAULTS`` one after the other: the job, a fault, the job again, and so on.

    Raises:
        AssertionError: something that is promised does not hold.
    """
    with _mounted(scratch) as disk:
        disk.quotaplane("groups", "put", "orders", "--publish-messages-per-s", "100", "--init")
        job, broker = disk.job(), disk.broker()
        try:
            until("a limit of the quota of 100 came", lambda: broker.limit == 100)
            until("there are reserves", lambda: len(disk.reserves()) == 2)
            for fault in faults:
                _say(f"== {fault}")
                FAULTS[fault](disk, job, broker)
                if not os.path.ismount(disk.root):
                    return
                _say("== back")
                job = disk.job()
                _is_back(disk, broker)
            job.stop()
            if job.exits[-1].code != 0:
                raise AssertionError(f"the job was stopped and ended with {job.exits[-1].code}")
        finally:
            broker.stop()
            job.kill()


def _is_back(disk: SmallDisk, broker: Broker) -> None:
    count, quota = broker.received(), disk.quota()
    until("limits come again", lambda: broker.received() > count)
    until(f"a limit of the quota of {quota:g} came", lambda: broker.limit == quota)
    until("there are reserves", lambda: len(disk.reserves()) == 2)
    disk.quotaplane("doctor")


def _full(disk: SmallDisk, job: Job, broker: Broker) -> None:
    disk.fill()
    given_up = "reserve of 3 MB was given up"
    until("the job gave up its reserve", lambda: given_up in job.said())
    count = broker.received()
    until("limits go on", lambda: broker.received() > count + 3)
    disk.fill()  # something else takes that space, too
    check_ended(job, 3, 4)
    said = disk.quotaplane("groups", "put", "orders", "--publish-messages-per-s", "40")
    if given_up not in said:
        raise AssertionError("a lower quota did not need the reserve")
    disk.quotaplane("maintain", "--keep-days", "0.0001")
    disk.fill()
    disk.quotaplane("groups", "put", "orders", "--publish-messages-per-s", "50", codes=[4])
    disk.quotaplane("maintain", codes=[4])
    disk.quotaplane("doctor")
    disk.free()
    disk.quotaplane("maintain")


def _read_only(disk: SmallDisk, job: Job, _: Broker) -> None:
    # tmpfs refuses to become read-only while files are open for writing, as disks do not.
    _system("mount", "-o", "bind", disk.root, disk.root)
    _system("mount", "-o", "remount,bind,ro", disk.root)
    check_ended(job, 4)
    disk.quotaplane("groups", "put", "orders", "--publish-messages-per-s", "50", codes=[4])
    disk.quotaplane("maintain", codes=[4])
    disk.quotaplane("groups", "get", "orders")
    _system("umount", "-l", disk.root)


def _gone(disk: SmallDisk, job: Job, _: Broker) -> None:
    disk.unmount()
    check_ended(job, 1, 2, 4)
    disk.quotaplane("groups", "put", "orders", "--publish-messages-per-s", "50", codes=[2, 4])


FAULTS: Final = {"full": _full, "read-only": _read_only, "gone": _gone}


@contextmanager
def _mounted(scratch: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(scratch)
    try:
        yield disk
    finally:
        while os.path.ismount(disk.root):
            disk.unmount()


def _system(*words: object) -> None:
    subprocess.run([*map(str, words)], check=True)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
