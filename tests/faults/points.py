"""Every point at which a command can fail, and what must hold after each."""

from __future__ import annotations

import errno
import importlib
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from quotaplane.cli.main import hide_pandas
from quotaplane.history.disk_reserve import OF_COMMANDS
from tests.faults import cases, syscalls
from tests.faults.cases import AT_LEAST_ONCE, BROKEN, CASES, JOBS, STEPS, DataFolder
from tests.faults.syscalls import KILL, Call, Decide

KNOWN_CODES: Final = {0, 2, 3, 4, 10}
"""Exit codes of docs/reference/cli.md, without 1: that is a bug."""


_SAID_MEANWHILE: Final = ("quotaplane: mended ", "quotaplane: warning: ")
_ID: Final = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}|doctor-[0-9TZ]+")


class FaultKind(NamedTuple):
    """Kind of a fault: its effect on the n-th call, and on later ones."""

    error: int
    lasting: bool
    """Also at all later calls of the kind."""
    only: str = ""
    """Only calls of which this property is true."""
    reserve: bool = False
    """Commands have a reserve, and the fault ends when it is deleted."""
    delay_s: float = 0.0
    """In place of an error: so much longer the call takes."""

    def concerns(self, call: Call) -> bool:
        return not self.only or bool(getattr(call, self.only))

    def at(self, number: int) -> Decide:
        """Decides that the fault happens at the call with this number; of one point."""

        happened = []
        ended = []

        def decide(call: Call) -> int | None:
            if self.reserve and call.name == "unlink" and call.path.endswith(OF_COMMANDS):
                ended.append(call)
            if ended:
                return None
            # Threads may change the order of calls: then it is one of the next ones.
            if call.number < number or not self.concerns(call) or (happened and not self.lasting):
                return None
            happened.append(call)
            time.sleep(self.delay_s)
            return self.error or None

        return decide


FAULTS: Final = {
    "one error": FaultKind(errno.EIO, lasting=False),
    "gone": FaultKind(errno.EIO, lasting=True),
    "full": FaultKind(errno.ENOSPC, lasting=True, only="needs_room"),
    "full for a moment": FaultKind(errno.ENOSPC, lasting=False, only="needs_room"),
    "full, with a reserve": FaultKind(errno.ENOSPC, lasting=True, only="needs_room", reserve=True),
    "quota used up": FaultKind(errno.EDQUOT, lasting=True, only="needs_room"),
    "read-only": FaultKind(errno.EROFS, lasting=True, only="changes"),
    "denied": FaultKind(errno.EACCES, lasting=True, only="by_name"),
    "no descriptors": FaultKind(errno.EMFILE, lasting=True, only="opens"),
    # Between two calls that alter something, a killed process leaves the same files everywhere.
    "slow": FaultKind(0, lasting=True, only="changes", delay_s=0.02),
    "killed": FaultKind(KILL, lasting=False, only="alters"),
}


class Outcome(NamedTuple):
    """Result of one point."""

    case: str
    fault: str
    call: Call
    code: int
    """The command's exit code; -9: it was killed."""
    line: str
    """Message of the command on stderr."""
    problems: tuple[str, ...]
    """Conditions that must hold and do not."""


class Points:
    """The points of one case.

    Args:
        case: one of ``CASES``.
        scratch: an empty folder, for one point at a time.
    """

    def __init__(self, case: str, scratch: Path) -> None:
        self._case = case
        self._scratch = scratch
        scratch.mkdir(parents=True, exist_ok=True)
        self._beginning = DataFolder(scratch / "beginning")
        self._place = DataFolder(scratch / "data")
        cases.in_child(lambda: cases.begin(self._beginning))
        self._before = cases.in_child(lambda: cases.found(self._beginning))
        if case in BROKEN:
            cases.in_child(lambda: cases.break_tables(self._beginning))
        self._import_what_the_case_does()
        ended = self._run(lambda _: None)
        assert ended.code == 0, ended.stderr
        self._after = cases.in_child(lambda: cases.found(self._place))
        self.calls = ended.calls
        self._checked: dict[object, list[str]] = {}
        """Problems of what was left, by the calls that made it."""

    def numbers(self, fault: FaultKind) -> Sequence[int]:
        """The calls that the fault concerns."""
        concerned = [call.number for call in self.calls if fault.concerns(call)]
        return concerned[:1] if fault.delay_s else concerned

    def _import_what_the_case_does(self) -> None:
        # Here, once, instead of in the child process of each point.
        shutil.copytree(self._beginning.root, self._place.root)

        def modules() -> list[str]:
            CASES[self._case](self._place)
            return sorted(sys.modules)

        hide_pandas()
        for name in cases.in_child(modules):
            with suppress(ImportError):
                importlib.import_module(name)

    def _run(self, decide: Decide, *, reserve: bool = False) -> syscalls.Ended:
        shutil.rmtree(self._place.root, ignore_errors=True)
        shutil.copytree(self._beginning.root, self._place.root)
        self._place.conf()
        if reserve:
            Path(self._place.history.path, OF_COMMANDS).write_bytes(b"0")
        return syscalls.run(lambda: CASES[self._case](self._place), self._place.root, decide)

    def outcome(self, name: str, number: int) -> Outcome:
        """Let the fault happen at the call with this number."""
        made: list[object] = []
        failed: list[Call] = []
        kind = FAULTS[name]
        fault = kind.at(number)

        def decide(call: Call) -> int | None:
            decided = fault(call)
            if decided is not None:
                failed.append(call)
            elif call.alters:
                made.append((call.name, _without_ids(call.path), _without_ids(call.target)))
            return decided

        ended = self._run(decide, reserve=kind.reserve)
        call = ended.calls[min(number, len(ended.calls)) - 1]
        # None, if threads made their calls in another order and this was one of the last.
        problems = [*self._of_ending(name, ended)] if failed or kind.delay_s else []
        # The same calls leave the same files, so these are checked once.
        left = ended.code == 0, tuple(made)
        if left not in self._checked:
            try:
                self._checked[left] = cases.in_child(lambda: self._of_tables(ended.code))
            except AssertionError as error:
                self._checked[left] = [str(error)]
        problems += self._checked[left]
        return Outcome(self._case, name, call, ended.code, ended.stderr.strip(), tuple(problems))

    def _of_ending(self, name: str, ended: syscalls.Ended) -> Iterator[str]:
        if FAULTS[name].error == KILL:
            if ended.code != -9:
                yield f"was to be killed, ended with {ended.code}"
            return
        if FAULTS[name].reserve and ended.code and self._case not in JOBS:
            yield f"ends with {ended.code} in spite of the reserve"
        if FAULTS[name].delay_s and ended.code:
            yield f"ends with {ended.code} on a slow disk"
        if ended.code not in KNOWN_CODES:
            yield f"ends with exit code {ended.code}"
        lines = ended.stderr.splitlines()
        errors = [line for line in lines if line.startswith("quotaplane: error: ")]
        lines = [line for line in lines if not line.startswith(_SAID_MEANWHILE)]
        # A job's stderr also has what libraries write.
        if len(errors) != (ended.code not in (0, 10)) or (
            self._case not in JOBS and lines != errors
        ):
            yield f"says {len(lines)} lines"
        if "Traceback" in ended.stderr:
            yield "has a bug"

    def _of_tables(self, code: int) -> list[str]:
        problems = []
        if code == 0 or self._case not in BROKEN:
            problems += self._differences(cases.found(self._place), done=code == 0)
            broken = cases.doctor(self._place)
            if broken:
                problems.append(f"doctor ends with {broken} afterwards")
        again = CASES[self._case](self._place)
        if again:
            problems.append(f"repeated, it ends with {again}")
        problems += (f"repeated: {text}" for text in self._differences(cases.found(self._place)))
        return problems

    def _differences(self, now: dict[str, Any], *, done: bool = True) -> Iterator[str]:
        for name, value in now.items():
            allowed = [self._after[name]] if done else [self._before[name], self._after[name]]
            if AT_LEAST_ONCE.get(self._case) == name:
                value = dict.fromkeys(value, 1)
            if self._case in STEPS and not done and isinstance(value, dict):
                new = sorted(self._after[name].items() - self._before[name].items())
                allowed = [{**self._before[name], **dict(new[:n])} for n in range(len(new) + 1)]
            if value not in allowed:
                yield f"{name} is {value}, not {' or '.join(map(str, allowed))}"


def _without_ids(path: str) -> str:
    return _ID.sub("*", path)


def summary(fault: str, outcomes: Sequence[Outcome]) -> str:
    """How many points there were of a fault, and how they ended."""
    codes = sorted(Counter(each.code for each in outcomes).items())
    ends = ", ".join(f"{code}: {count}" for code, count in codes)
    wrong = sum(bool(each.problems) for each in outcomes)
    return f"{fault:20} {len(outcomes):5}  {wrong:3} wrong  ({ends})"
