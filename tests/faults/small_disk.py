"""The real quota job on a small disk that fills up, becomes read-only, and goes away.

Needs root, for ``mount``, and takes some minutes: ``python -m tests.faults disk``. The topics are
on another disk, so brokers go on reporting.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from quotaplane.client.agent import BrokerClient
from quotaplane.errors import TransportError
from quotaplane.settings import DeltaTransport
from quotaplane.streams.session import SHORT_LIVED
from quotaplane.transport import open_broker_link

_REPOSITORY: Final = Path(__file__).parents[2]
_SIZE: Final = "64m"
_INTERVAL_S: Final = 1.0
_PATIENCE_S: Final = 600.0


class ProblemError(AssertionError):
    """Something that is promised does not hold."""


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
        command = [sys.executable, "-m", "quotaplane", *words, "--conf", str(self.conf)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        _say(f"  {' '.join(words)}: exit code {done.returncode} {done.stderr.strip()}")
        if done.returncode not in codes:
            raise ProblemError(f"{words} ended with {done.returncode}: {done.stderr}")
        if "Traceback" in done.stderr:
            raise ProblemError(done.stderr)
        return done.stdout + done.stderr


class Brokers:
    """A broker that reports, and the times at which limits came."""

    def __init__(self, disk: SmallDisk) -> None:
        self._link = open_broker_link(disk.transport)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.received_s: list[float] = []
        self.limit = float("nan")
        self._thread.start()

    def _work(self) -> None:
        client = BrokerClient(self._link, "broker-1", now_ms=_clock_ms, groups=["orders"])
        while not self._stopped.wait(_INTERVAL_S):
            client.use("orders", publish_messages=80 * _INTERVAL_S)
            try:
                client.report()
                messages = self._link.poll_limits().messages
                if messages:
                    self.received_s.append(time.monotonic())
                for message in messages:
                    client.receive(message.value)
            except TransportError as error:
                _say(f"  broker: {error}")
            self.limit = client.limit("orders")["publish_messages"]

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


class Job:
    """The quota job's process, and its lines."""

    def __init__(self, disk: SmallDisk) -> None:
        words = ["-m", "quotaplane", "run", "quota", "--conf", str(disk.conf)]
        words += ["--driver-java-options", SHORT_LIVED]
        self.process = subprocess.Popen(
            [sys.executable, *words],
            cwd=_REPOSITORY,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())
            _say(f"  job: {line.rstrip()[:400]}")

    def said(self, pattern: str) -> bool:
        return any(re.search(pattern, line) for line in list(self.lines))

    def ended(self) -> bool:
        return self.process.poll() is not None

    def check_ended(self, *codes: int) -> None:
        """The job ended with one of these codes and one line that says why."""
        until("the job has ended", self.ended)
        self._reader.join()
        errors = [line for line in self.lines if "quotaplane: error: " in line]
        if self.process.returncode not in codes or len(errors) != 1:
            raise ProblemError(f"the job ended with {self.process.returncode} and said {errors}")

    def stop(self) -> None:
        """Stop it, which is no error."""
        self.process.terminate()
        until("the job has ended", self.ended)
        if self.process.returncode != 0:
            raise ProblemError(f"the job was stopped and ended with {self.process.returncode}")


def until(what: str, holds: Callable[[], bool]) -> float:
    """Wait until something holds; returns the seconds that it took."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > _PATIENCE_S:
            raise ProblemError(f"not in {_PATIENCE_S:g} s: {what}")
        time.sleep(0.2)
    took_s = time.monotonic() - began
    _say(f"  {what}, after {took_s:.1f} s")
    return took_s


def run(scratch: Path, faults: Sequence[str]) -> None:
    """Try some of ``FAULTS`` one after the other: the job, a fault, the job again, and so on.

    Raises:
        ProblemError: something that is promised does not hold.
    """
    with _mounted(scratch) as disk:
        disk.quotaplane("groups", "put", "orders", "--publish-messages-per-s", "100", "--init")
        job, brokers = Job(disk), Brokers(disk)
        try:
            until("a limit of the quota of 100 came", lambda: brokers.limit == 100)
            until("there are reserves", lambda: len(disk.reserves()) == 2)
            for fault in faults:
                _say(f"== {fault}")
                FAULTS[fault](disk, job, brokers)
                if not os.path.ismount(disk.root):
                    return
                _say("== back")
                job = Job(disk)
                _is_back(disk, brokers)
            job.stop()
        finally:
            brokers.stop()
            if not job.ended():
                job.process.terminate()
                job.process.wait()


def _is_back(disk: SmallDisk, brokers: Brokers) -> None:
    count, quota = len(brokers.received_s), disk.quota()
    until("limits come again", lambda: len(brokers.received_s) > count)
    until(f"a limit of the quota of {quota:g} came", lambda: brokers.limit == quota)
    until("there are reserves", lambda: len(disk.reserves()) == 2)
    disk.quotaplane("doctor")


def _full(disk: SmallDisk, job: Job, brokers: Brokers) -> None:
    disk.fill()
    filled_s = time.monotonic()
    until("the job gave up its reserve", lambda: job.said("reserve of 3 MB was given up"))
    count = len(brokers.received_s)
    until("limits go on", lambda: len(brokers.received_s) > count + 3)
    disk.fill()  # something else takes that space, too
    job.check_ended(3, 4)
    _say(f"  the last limits came {brokers.received_s[-1] - filled_s:.0f} s after it was full")
    said = disk.quotaplane("groups", "put", "orders", "--publish-messages-per-s", "40")
    if "reserve of 3 MB was given up" not in said:
        raise ProblemError("a lower quota did not need the reserve")
    disk.quotaplane("maintain", "--keep-days", "0.0001")
    disk.fill()
    disk.quotaplane("groups", "put", "orders", "--publish-messages-per-s", "50", codes=[4])
    disk.quotaplane("maintain", codes=[4])
    disk.quotaplane("doctor")
    disk.free()
    disk.quotaplane("maintain")


def _read_only(disk: SmallDisk, job: Job, _: Brokers) -> None:
    # tmpfs refuses to become read-only while files are open for writing, as disks do not.
    _system("mount", "-o", "bind", disk.root, disk.root)
    _system("mount", "-o", "remount,bind,ro", disk.root)
    job.check_ended(4)
    disk.quotaplane("groups", "put", "orders", "--publish-messages-per-s", "50", codes=[4])
    disk.quotaplane("maintain", codes=[4])
    disk.quotaplane("groups", "get", "orders")
    _system("umount", "-l", disk.root)


def _gone(disk: SmallDisk, job: Job, _: Brokers) -> None:
    disk.unmount()
    job.check_ended(1, 2, 4)
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


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
