"""Every state that a power loss can leave of a command's writes, and what must hold in each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.faults import cases, syscalls
from tests.faults.cases import CASES, DataFolder
from tests.faults.crash_states import Disk, Files, put_on_disk, states

SEQUENCES: Final[dict[str, Sequence[str]]] = {
    "two puts": ("groups put", "groups lower"),
    "a put and a delete": ("groups put", "groups delete"),
    "a claim and a round": ("claim", "round"),
    "reports and limits": ("reports", "limits"),
    "a round and maintenance": ("round", "maintain"),
}
"""Cases one after the other: the power is lost in any of them, or after the last one."""


class Survivor(NamedTuple):
    """Result of one state."""

    sequence: str
    calls: int
    state: str
    mended: bool
    """Something was broken, and ``doctor --mend`` mended it."""
    problems: tuple[str, ...]


class PowerPoints:
    """The states of one of ``SEQUENCES``; ``scratch`` is an empty folder."""

    def __init__(self, sequence: str, scratch: Path) -> None:
        self._sequence = sequence
        scratch.mkdir(parents=True, exist_ok=True)
        self._place = DataFolder(Path(scratch, "data").absolute())
        cases.in_child(lambda: cases.begin(self._place))
        self._disk = Disk.of(self._place.root)
        self._after = [cases.in_child(lambda: cases.found(self._place))]
        self.calls: list[syscalls.Call] = []
        self._acknowledged: list[int] = []
        for case in SEQUENCES[sequence]:
            ended = syscalls.run(
                lambda case=case: CASES[case](self._place),  # type: ignore[misc]
                self._place.root,
                lambda _: None,
                record=True,
            )
            assert ended.code == 0, ended.stderr
            self.calls += ended.calls
            self._acknowledged.append(len(self.calls))
            self._after.append(cases.in_child(lambda: cases.found(self._place)))
        self._in_the_end = Disk.of(self._place.root).files()

    def survivors(self, every: int = 1) -> Iterator[Survivor]:
        """Check the states after every so many calls."""
        for count, text, files in states(self._disk, self.calls, every):
            yield self._survivor(count, text, files)
        # The model made what the system made: else the states mean nothing.
        assert self._disk.files() == self._in_the_end

    def _survivor(self, count: int, text: str, files: Files) -> Survivor:
        shutil.rmtree(self._place.root)
        put_on_disk(files, self._place.root)
        acknowledged = sum(ended <= count for ended in self._acknowledged)
        try:
            mended, problems = cases.in_child(lambda: self._check(acknowledged))
        except AssertionError as error:
            mended, problems = False, [str(error)]
        return Survivor(self._sequence, count, text, mended, tuple(problems))

    def _check(self, acknowledged: int) -> tuple[bool, list[str]]:
        problems = []
        mended = cases.doctor(self._place) == 10
        if mended:
            code = cases.mend(self._place)
            if code != 11:
                problems.append(f"doctor --mend ends with {code}")
            if acknowledged == len(self._acknowledged):
                problems.append("something acknowledged is broken")
        problems += self._differences(cases.found(self._place), acknowledged)
        for case in SEQUENCES[self._sequence]:
            code = CASES[case](self._place)
            if code:
                problems.append(f"{case} afterwards ends with {code}")
        return mended, problems

    def _differences(self, now: dict[str, Any], acknowledged: int) -> Iterator[str]:
        for name, value in now.items():
            allowed = [state[name] for state in self._after[acknowledged : acknowledged + 2]]
            if value not in allowed:
                yield f"{name} is {value}, not {' or '.join(map(str, allowed))}"
