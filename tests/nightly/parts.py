"""The parts of a night: what each runs, and the command of one turn."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from tests.faults.cases import CASES
from tests.faults.power_points import SEQUENCES
from tests.fuzz.__main__ import TARGETS
from tests.matrix import RUNS
from tests.nightly.machines import FILES
from tests.unit.repo.pages import ROOT

TURN_S: Final = 300
"""Length of a turn of a part without an end. One with real servers takes ``OUTSIDE_MINUTES``."""
OUTSIDE_MINUTES: Final = 10
_MOST_INPUTS: Final = 1_000_000
_EVERY: Final = {"maintain": 40, "doctor": 20, "round": 12, "a round and maintenance": 25}
"""A turn tries each so many calls of a command, else each 5th; the next turn begins one later."""
_PYTEST: Final = ("-m", "pytest", "-q", "--nightly")


class Part(NamedTuple):
    """A part of the night, in items. One turn runs one item."""

    name: str
    does: str
    """For the page."""
    unit: str
    """The unit that is counted."""
    items: tuple[str, ...]
    words: Callable[[str, int], list[str]]
    """Arguments of the Python process of a turn: of an item, from a seed or number on."""
    seeds: str | None = None
    """The word behind the number of seeds used up, in the output. None: one each turn, and an item
    that has passed on this code is done."""

    @property
    def endless(self) -> bool:
        """Whether each turn tries something new."""
        return self.seeds is not None

    def command(self, item: str, first: int) -> list[str]:
        """The command of a turn."""
        return [sys.executable, *self.words(item, first)]

    def count(self, output: str) -> int:
        """The number of units in the output of a turn."""
        return _last_number(output, self.unit)

    def seeds_used(self, output: str) -> int:
        """By how much the next turn's seed is higher."""
        return 1 if self.seeds is None else _last_number(output, self.seeds)


def _last_number(output: str, unit: str) -> int:
    """The last number before the unit; 0 without any.

    >>> _last_number("12 seeds, 40 rounds in 9 s; 13 seeds, 44 rounds", "rounds")
    44
    """
    numbers = re.findall(rf"(\d+) {unit}\b", output)
    return int(numbers[-1]) if numbers else 0


def _test_files() -> dict[str, str]:
    """The text of each file of tests."""
    paths = sorted(ROOT.glob("tests/*/**/test_*.py"))
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def _nightly_files() -> tuple[str, ...]:
    texts = _test_files().items()
    nightly = (file for file, text in texts if "mark.nightly" in text or "in_nightly(" in text)
    return tuple(file for file in nightly if file not in FILES)


def _folders_with_properties() -> tuple[str, ...]:
    files = [file for file, text in _test_files().items() if "from hypothesis" in text]
    return tuple(dict.fromkeys(file.rpartition("/")[0] for file in files if "/unit/" in file))


def _simulation(item: str, first: int) -> list[str]:
    world = ["--enforcer"] if item == "enforcer" else []
    seeds = f"{first}:{first + _MOST_INPUTS}"
    return ["-m", "tests.simulation.run", *world, "--seeds", seeds, "--seconds", str(TURN_S)]


def _fuzz(item: str, first: int) -> list[str]:
    numbers = ["--first", str(first), "--inputs", str(_MOST_INPUTS), "--seconds", str(TURN_S)]
    return ["-m", "tests.fuzz", item, *numbers]


def _outside(item: str, first: int) -> list[str]:
    words = ["-m", "tests.outside", item, "--seed", str(first)]
    return [*words, "--minutes", str(OUTSIDE_MINUTES)]


def _every(item: str) -> str:
    return str(_EVERY.get(item, 5))


def _points(item: str, first: int) -> list[str]:
    every = _every(item)
    offset = str(first % int(every))
    return ["-m", "tests.faults", "points", item, "--first", offset, "--every", every]


PARTS: Final = (
    Part(
        "tests",
        "tests that take too long for `make test`, by file",
        "passed",
        _nightly_files(),
        lambda item, _: [*_PYTEST, "-m", "nightly", item],
    ),
    Part(
        "machines",
        "those of them that lose [a part around the job](machines.md), recorded, by file",
        "passed",
        FILES,
        lambda item, _: [*_PYTEST, "-m", "nightly", "--record-outages", item],
    ),
    Part(
        "properties",
        "each property of the unit tests with 300 new examples, by folder",
        "passed",
        _folders_with_properties(),
        lambda item, _: [*_PYTEST, "-m", "hypothesis", "--hypothesis-profile=explore", item],
    ),
    Part(
        "simulation",
        "job and enforcer in [virtual time](../explain/simulation.md), with new seeds",
        "rounds",
        ("job", "enforcer"),
        _simulation,
        seeds="seeds",
    ),
    Part(
        "fuzz",
        "generated [hostile inputs](../operate/reliability.md#hostile-input), new ones, by target",
        "inputs",
        tuple(TARGETS),
        _fuzz,
        seeds="inputs",
    ),
    Part(
        "outside",
        "faults of [real servers](../operate/reliability.md#from-outside-with-real-servers), with "
        f"new seeds, {OUTSIDE_MINUTES} minutes each",
        "runs",
        ("kafka", "plugin", "pulsar"),
        _outside,
        seeds="runs",
    ),
    Part(
        "matrix",
        "the quota job [from a wheel](../adr/0002-versions.md#tried-together), by the versions of "
        "Spark, Python, Java and Kafka",
        "runs",
        tuple(versions.name for versions in RUNS),
        lambda item, _: ["-m", "tests.matrix", item],
    ),
    Part(
        "points",
        "a fault at each [system call](../explain/contributing.md#faults-of-disks), by command",
        "points",
        tuple(CASES),
        _points,
    ),
    Part(
        "power",
        "each state after a power loss, by sequence of commands",
        "states",
        tuple(SEQUENCES),
        lambda item, _: ["-m", "tests.faults", "power", item, "--every", _every(item)],
    ),
    Part(
        "disk",
        "a fault at each call of the checkpoint's note; the real job on a small disk (root)",
        "points",
        ("note", "disk"),
        lambda item, _: ["-m", "tests.faults", item],
    ),
)


def next_turn(
    names: Collection[str],
    spent_s: Mapping[str, float],
    spent_on_item: Mapping[tuple[str, str], float],
    left_out: Collection[tuple[str, str]],
) -> tuple[Part, str] | None:
    """The part that had least time tonight, and its item that had least time so far.

    Args:
        names: of the parts to run.
        spent_s: seconds by part, tonight.
        spent_on_item: time by part and item, in all nights.
        left_out: items that are done, or have failed tonight.
    """
    left = {
        part: [item for item in part.items if (part.name, item) not in left_out]
        for part in PARTS
        if part.name in names
    }
    possible = [part for part, items in left.items() if items]
    if not possible:
        return None
    part = min(possible, key=lambda part: spent_s.get(part.name, 0.0))
    return part, min(left[part], key=lambda item: spent_on_item.get((part.name, item), 0.0))
