"""The examples of docs/throttle-laws.md give what the page says, and its picture is the laws'."""

from __future__ import annotations

import doctest
from pathlib import Path

from benchmarks.throttle.picture import picture

DOCS = Path(__file__).parents[2] / "docs"


def test_the_examples() -> None:
    done = doctest.testfile(str(DOCS / "throttle-laws.md"), module_relative=False)
    assert done.attempted > 10
    assert done.failed == 0


def test_the_picture() -> None:
    assert picture() == (DOCS / "throttle" / "burst.svg").read_text(encoding="utf-8")
