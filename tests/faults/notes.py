"""Faults at every system call of the checkpoint's note, which a JVM writes.

One JVM makes all attempts, each in a folder of its own; the fault of an attempt concerns its folder
only. A fault that lasts leaves the same files as a kill at that call.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Final, NamedTuple

from quotaplane.errors import QuotaplaneError
from tests.faults import syscalls
from tests.faults.points import FAULTS
from tests.faults.syscalls import KILL, Call, Decide

_MOST_CALLS: Final = 40
_OF_OTHERS: Final = ("denied", "no descriptors")
KINDS: Final = [kind for kind in FAULTS if kind not in ("full, with a reserve", "slow", "killed")]
_HEALTHY: Final = ".healthy"
"""A file of this name beside an attempt's folder ends its fault."""


class Attempt(NamedTuple):
    """Result of one attempt."""

    fault: str
    number: int
    code: int
    """0, or the exit code of the error."""
    line: str
    again: str
    """Problem of the next attempt, without a fault; empty: none."""


def tried(folder: Path) -> tuple[int, list[Attempt]]:
    """The number of calls of an attempt, and all attempts, in a folder that is made.

    Raises:
        AssertionError: the process of the attempts failed.
    """
    folder.mkdir()
    watch = _Faults(folder)
    command = [sys.executable, "-m", "tests.faults.notes", str(folder)]
    results = folder.with_name(f"{folder.name}-attempts")
    ended = syscalls.run([*command, str(results)], folder, watch.decide)
    assert ended.code == 0, ended.stderr
    parsed = [line.split("\t") for line in results.read_text().splitlines()]
    attempts = [Attempt(row[0], int(row[1]), int(row[2]), row[3], row[4]) for row in parsed]
    # An attempt whose number is higher than that of its last call met no fault.
    happened = [each for each in attempts if (each.fault, each.number) in watch.happened]
    return watch.calls["none", 0], happened


def problems(attempt: Attempt) -> list[str]:
    """Conditions that must hold and do not."""
    found = [attempt.again] if attempt.again else []
    known = {0, 2, 4} if attempt.fault in _OF_OTHERS else {0, 4}
    if attempt.code not in known:
        found.append(f"ends with exit code {attempt.code}: {attempt.line}")
    return found


class _Faults:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.calls: dict[tuple[str, int], int] = {}
        self.happened: set[tuple[str, int]] = set()
        self._healthy: set[tuple[str, int]] = set()
        self._decide: dict[tuple[str, int], Decide] = {}

    def decide(self, call: Call) -> int | None:
        name = os.path.relpath(call.path, self._folder).split("/")[0]
        fault, _, number = name.removesuffix(_HEALTHY).rpartition("-")
        key = fault, int(number or 0)
        if name.endswith(_HEALTHY):
            self._healthy.add(key)
        if key in self._healthy:
            return None
        self.calls[key] = self.calls.get(key, 0) + 1
        if fault not in FAULTS:
            return None
        kind = self._decide.setdefault(key, FAULTS[fault].at(key[1]))
        decided = kind(call._replace(number=self.calls[key]))
        if decided is not None:
            assert decided != KILL
            self.happened.add(key)
        return decided


def _attempts(folder: Path) -> Iterator[Attempt]:
    from pyspark.java_gateway import launch_gateway

    from quotaplane.streams.checkpoint import CheckpointFolder

    jvm = launch_gateway().jvm
    jsc = SimpleNamespace(hadoopConfiguration=jvm.org.apache.hadoop.conf.Configuration)
    spark = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm, _jsc=jsc))

    def opened(place: Path) -> str:
        checkpoint = CheckpointFolder(spark, str(place))  # type: ignore[arg-type]
        return checkpoint.open(1, lambda _: 7, {}).id

    opened(folder / "none-0")
    for fault in KINDS:
        for number in range(1, _MOST_CALLS + 1):
            place = folder / f"{fault}-{number}"
            first, code, line = None, 0, ""
            try:
                first = opened(place)
            except QuotaplaneError as error:
                code, line = error.exit_code, str(error)
            except Exception as error:
                code, line = 1, f"{type(error).__name__}: {error}"
            Path(f"{place}{_HEALTHY}").touch()
            again = ""
            try:
                now = opened(place)
                if {first or now, now, opened(place)} != {now}:
                    again = "the next start has another checkpoint"
            except Exception as error:
                again = f"the next start fails: {error}"
            yield Attempt(fault, number, code, *(" ".join(t.split()) for t in (line, again)))


if __name__ == "__main__":
    root, results = map(Path, sys.argv[1:])
    results.write_text("".join("\t".join(map(str, each)) + "\n" for each in _attempts(root)))
    sys.stdout.flush()
    os._exit(0)  # no JVM outlives its parent
