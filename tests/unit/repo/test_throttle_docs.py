"""The examples of the pages give what the pages say, and the picture is the laws'."""

from __future__ import annotations

import doctest

import pytest

from benchmarks.throttle.picture import picture
from tests.unit.repo.pages import ROOT

DOCS = ROOT / "docs"


@pytest.mark.parametrize(
    ("page", "examples"), [("explain/throttle-laws.md", 10), ("operate/throttle.md", 8)]
)
def test_the_examples(page: str, examples: int) -> None:
    done = doctest.testfile(str(DOCS / page), module_relative=False)
    assert done.attempted > examples
    assert done.failed == 0


def test_the_picture() -> None:
    assert picture() == (DOCS / "measured/throttle/burst.svg").read_text(encoding="utf-8")
